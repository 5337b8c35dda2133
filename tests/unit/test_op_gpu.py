"""The steering op compiled for a GPU."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from hotwire_plugin import op
from tests.unit.op_cases import KINDS, check, make, same_bits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def steer(*args: torch.Tensor | None) -> None:
    """The op as a model calls it."""
    torch.ops.hotwired.steer(*args)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 64, 576, 1000, 2560, 8192, 16384])
def test_matches_the_reference(width: int, dtype: torch.dtype) -> None:
    """Every dtype and width; widths that are no power of two, and that fill a block's registers."""
    for tokens, max_ops, residual in ((0, 1, True), (1, 1, False), (5, 4, True), (64, 2, True)):
        case = make(tokens, width, max_ops=max_ops, dtype=dtype, residual=residual, seed=tokens)
        check(steer, case.to("cuda"))


@pytest.mark.parametrize("limit", [0.0, 0.1, 1.0, float("inf")])
@pytest.mark.parametrize("kind", KINDS)
def test_each_term_with_a_limit(kind: str, limit: float) -> None:
    """Each coefficient, alone and with the others, with limits that do and don't hold back."""
    for seed, dtype in enumerate(DTYPES):
        case = make(9, 576, max_ops=8, kind=kind, limit=limit, dtype=dtype, seed=seed).to("cuda")
        got = check(steer, case)
        assert limit > 0 or same_bits(got, case.hidden)


@pytest.mark.parametrize("pad", [1, 8])
def test_rows_may_be_further_apart_than_wide(pad: int) -> None:
    """Row strides are honoured, aligned ones and others."""
    for dtype in DTYPES:
        check(steer, make(7, 576, pad=pad, dtype=dtype).to("cuda"))


def test_nothing_compiles_after_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the batch, strides, alignment, tables and residual, no call compiles anything."""
    triton = pytest.importorskip("triton")
    compiled: list[Any] = []
    op.warm(320, torch.bfloat16, torch.device("cuda"), 4)
    monkeypatch.setattr(
        triton.knobs.runtime, "jit_cache_hook", lambda **kwargs: compiled.append(kwargs)
    )
    for tokens in (1, 2, 3, 16, 64):
        for pad, max_ops in ((0, 1), (0, 4), (1, 4), (8, 8), (16, 16)):
            for residual in (True, False):
                case = make(
                    tokens, 320, pad=pad, max_ops=max_ops, residual=residual, dtype=torch.bfloat16
                )
                steer(*case.to("cuda").args)
    assert not compiled
    op.warm(322, torch.bfloat16, torch.device("cuda"), 4)
    assert compiled, "the hook sees no compilation"


def test_captured_graph() -> None:
    """A graph captured while no token is steered steers whatever the tables say at replay."""
    case = make(8, 576, dtype=torch.bfloat16).to("cuda")
    hidden, rows = case.hidden.clone(), case.token_row.clone()
    op.warm(576, torch.bfloat16, torch.device("cuda"), 4)
    case.token_row.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steer(*case.args)
    graph.replay()
    assert same_bits(case.hidden, hidden)
    case.token_row.copy_(rows)
    graph.replay()
    want = check(steer, replace(case, hidden=hidden))
    assert same_bits(case.hidden, want)
    assert not same_bits(want, hidden)


def test_inductor() -> None:
    """Compiled code with a dynamic batch does what eager code does."""
    weight = torch.eye(64, device="cuda", dtype=torch.bfloat16)

    def step(*args: torch.Tensor) -> torch.Tensor:
        hidden = args[0] @ weight
        steer(hidden, *args[1:])
        return hidden @ weight

    compiled: Callable[..., torch.Tensor] = torch.compile(step, fullgraph=True, dynamic=True)
    for tokens in (4, 9, 33):
        args = make(tokens, 64, dtype=torch.bfloat16, seed=tokens).to("cuda").args
        assert torch.equal(compiled(*args), step(*args))
