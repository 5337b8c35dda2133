"""Random calls of the steering op, and how far from the truth an implementation may end.

The truth is the reference in float64, unrounded. An implementation rounds once at the store, so it
may miss by half a unit in the last place of its dtype, and computes in float32 before that. There,
a sum or a dot product of H terms, in whatever order, misses by about sqrt(H) float32 roundings of
its largest partial results. ``check`` allows (16 + 8 sqrt(H)) * 2**-24 of a token's largest values;
a row that only adds has no dot product, and gets 16 * 2**-24 whatever its width. For bfloat16 and
float16 this is a small part of the half unit: a second rounding would not pass.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from hotwire_plugin.op_reference import steer_reference

ROWS, SLOTS, LAYERS = 6, 7, 3
KINDS = {"add": (0,), "norm": (1,), "project": (2,), "clamp": (3,), "mixed": (0, 1, 2, 3)}

Steer = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """The arguments of one call, in the order of the schema."""

    hidden: torch.Tensor
    residual: torch.Tensor | None
    bank: torch.Tensor
    op_slots: torch.Tensor
    op_coef: torch.Tensor
    op_count: torch.Tensor
    limit: torch.Tensor
    token_row: torch.Tensor

    @property
    def args(self) -> tuple[Any, ...]:
        return tuple(vars(self).values())

    def to(self, device: str) -> "Case":
        """The same on another device; views keep their strides and offsets."""
        moved: list[Any] = [x if x is None else _moved(x, device) for x in self.args]
        return Case(*moved)

    def with_hidden(self) -> "Case":
        """The same with a copy of hidden, strided alike, to be changed."""
        return replace(self, hidden=_moved(self.hidden, str(self.hidden.device)))


def _moved(tensor: torch.Tensor, device: str) -> torch.Tensor:
    whole = tensor.new_empty(0).set_(tensor.untyped_storage())
    moved = whole.clone().to(device)
    return moved.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def make(
    tokens: int,
    width: int,
    *,
    max_ops: int = 4,
    dtype: torch.dtype = torch.float32,
    residual: bool = True,
    kind: str = "mixed",
    limit: float = math.inf,
    pad: int = 0,
    seed: int = 0,
) -> Case:
    """A random call. Vectors have norms near 1; row 0 and unused places hold what mustn't be used.

    Rows come out of order, row 1 has all ``max_ops`` ops and row 2 none. The tables are the middle
    layer's of a bigger tensor. ``pad`` is how much longer than ``width`` a row's stride is.
    """
    rng = torch.Generator().manual_seed(seed)
    coef = torch.zeros(LAYERS, ROWS, max_ops, 6)
    for column in KINDS[kind]:
        size = (4.0, 0.2, 1.0, 1.0)[column]
        coef[..., column] = (torch.rand(LAYERS, ROWS, max_ops, generator=rng) * 2 - 1) * size
    coef[..., 4] = -0.3
    coef[..., 5] = 0.4
    coef[..., ::2, 4] = -math.inf
    coef[:, 1::2, :, 5] = math.inf
    slots = torch.randint(SLOTS, (LAYERS, ROWS, max_ops, 2), generator=rng, dtype=torch.int32)
    count = torch.randint(max_ops + 1, (LAYERS, ROWS), generator=rng, dtype=torch.int32)
    count[:, :3] = torch.tensor([max_ops, max_ops, 0])
    unused = torch.arange(max_ops) >= count[..., None]
    unused[:, 0] = True
    slots[unused] = 2**31 - 1
    coef[unused] = math.nan
    rows = torch.randint(ROWS, (tokens + 3,), generator=rng, dtype=torch.int32)
    return Case(
        hidden=_rows(tokens, width, pad, rng, dtype),
        residual=_rows(tokens, width, 2 * pad, rng, dtype) if residual else None,
        bank=torch.randn(SLOTS, width, generator=rng) / math.sqrt(width),
        op_slots=slots[1],
        op_coef=coef[1],
        op_count=count[1],
        limit=torch.full((LAYERS, ROWS), limit)[1],
        token_row=rows,
    )


def _rows(
    tokens: int, width: int, pad: int, rng: torch.Generator, dtype: torch.dtype
) -> torch.Tensor:
    return torch.randn(tokens, width + pad, generator=rng).to(dtype)[:, :width]


def check(steer: Steer, case: Case, *, units: float = 0.5) -> torch.Tensor:
    """Run ``steer`` on a copy and compare with the truth; return the new hidden.

    ``units`` is what the store may miss by, in units in the last place.
    """
    changed = case.with_hidden()
    assert steer(*changed.args) is None
    got = changed.hidden
    case = case.to("cpu")
    truth = steer_reference(*case.args, compute=torch.float64, out=torch.float64)
    miss = (got.cpu().double() - truth).abs()
    unit = torch.finfo(got.dtype).eps
    allowed = units * unit * truth.abs() + _subnormal(got.dtype) + _float32_error(case)
    assert bool((miss <= allowed).all()), f"{(miss / allowed).max()} of what is allowed"
    untouched = case.token_row[: got.shape[0]] == 0
    assert same_bits(got.cpu()[untouched], case.hidden[untouched])
    return got


def _subnormal(dtype: torch.dtype) -> float:
    """Half the distance between the smallest numbers."""
    info = torch.finfo(dtype)
    return info.tiny * info.eps / 2


def _float32_error(case: Case) -> torch.Tensor:
    """(T, 1) float64: what float32 arithmetic may miss by, for each token."""
    tokens, width = case.hidden.shape
    whole = case.hidden.double()
    if case.residual is not None:
        whole = whole + case.residual.double()
    largest = torch.zeros(tokens, 1, dtype=torch.float64)
    if width and tokens:
        largest = torch.maximum(whole.abs(), case.hidden.double().abs()).amax(1, keepdim=True)
        largest = largest + _largest_steps(case)
    only_adds = not case.op_coef.nan_to_num()[..., 1:4].any() and bool((case.limit > 1e9).all())
    roundings = 16 if only_adds else 16 + 8 * math.sqrt(width)
    return largest * roundings * 2.0**-24


def _largest_steps(case: Case) -> torch.Tensor:
    """(T, 1) float64: the sum over a token's ops of the largest value of |d_k|, unlimited."""
    free = replace(case, limit=torch.full_like(case.limit, math.inf))
    total = torch.zeros(case.hidden.shape[0], 1, dtype=torch.float64)
    before = case.hidden.double()
    for count in range(1, int(case.op_count.max()) + 1):
        first = replace(free, op_count=case.op_count.clamp(max=count))
        after = steer_reference(*first.args, compute=torch.float64, out=torch.float64)
        total += (after - before).abs().amax(1, keepdim=True)
        before = after
    return total


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one dtype are equal bit for bit, NaN and signed zeros included."""
    whole = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return torch.equal(a.contiguous().view(whole), b.contiguous().view(whole))
