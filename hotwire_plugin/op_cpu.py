"""The steering op on CPU tensors, made of few calls: a call into torch costs more than its work.

Tables are read through numpy views, which cost less than small tensors do. Tokens whose rows only
add, without a limit, go together; the others go row by row.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

_Array: TypeAlias = npt.NDArray[Any]


class CpuGate:
    """Says if any token of the coming step is steered; while not ``active`` the op returns at once.

    Starts active, so that a caller who knows nothing of the gate gets right results.
    """

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = True


gate = CpuGate()


def steer_cpu(
    hidden: torch.Tensor,
    residual: torch.Tensor | None,
    bank: torch.Tensor,
    op_slots: torch.Tensor,
    op_coef: torch.Tensor,
    op_count: torch.Tensor,
    limit: torch.Tensor,
    token_row: torch.Tensor,
) -> None:
    """Steer ``hidden`` in place; arguments as in :mod:`hotwire_plugin.op`."""
    if not gate.active:
        return
    counts = op_count.numpy()
    if not counts.any():
        return
    limits = limit.numpy()
    rows = token_row.numpy()[: hidden.shape[0]]
    live = (counts > 0) & (limits > 0)
    live[0] = False
    tokens = np.flatnonzero(live[rows])
    if not tokens.size:
        return
    rows = rows[tokens]
    coef = op_coef.numpy()
    plain = [r for r in set(rows.tolist()) if _only_adds(coef[r, : counts[r]], limits[r])]
    slots = op_slots.numpy()
    adds = np.isin(rows, plain)
    if adds.any():
        _add(hidden, bank, slots, coef, counts, rows[adds], tokens[adds])
    for row in set(rows.tolist()).difference(plain):
        ops = zip(slots[row, : counts[row]].tolist(), coef[row, : counts[row]].tolist(),
                  strict=True)
        _general(hidden, residual, bank, list(ops), limits[row].item(), tokens[rows == row])


def _only_adds(coef: _Array, limit: np.float32) -> bool:
    return bool(limit == np.inf) and not coef[:, 1:4].any()


def _add(
    hidden: torch.Tensor,
    bank: torch.Tensor,
    slots: _Array,
    coef: _Array,
    counts: _Array,
    rows: _Array,
    tokens: _Array,
) -> None:
    """Add sum of c0 * w to tokens whose rows do nothing else: x needn't be known."""
    count = counts[rows]
    most = int(count.max())
    used = np.arange(most) < count[:, None]
    # An unused place adds 0 times the row's first vector, whatever is left in the table there.
    slot = np.where(used, slots[rows, :most, 1], slots[rows, :1, 1])
    scale = torch.from_numpy(np.where(used, coef[rows, :most, 0], np.float32(0)))
    delta = bank.index_select(0, torch.from_numpy(slot[:, 0])).mul_(scale[:, :1])
    for k in range(1, most):
        picked = bank.index_select(0, torch.from_numpy(slot[:, k].copy()))
        delta.addcmul_(picked, scale[:, k : k + 1])
    _store(hidden, tokens, delta)


def _store(hidden: torch.Tensor, tokens: _Array, delta: torch.Tensor) -> None:
    """hidden[tokens] += delta, in float32 with one rounding."""
    if len(tokens) == hidden.shape[0]:
        hidden.add_(delta)
        return
    index = torch.from_numpy(tokens)
    hidden.index_copy_(0, index, hidden.index_select(0, index).add_(delta))


def _general(
    hidden: torch.Tensor,
    residual: torch.Tensor | None,
    bank: torch.Tensor,
    ops: Sequence[tuple[list[int], list[float]]],
    limit: float,
    tokens: _Array,
) -> None:
    """Steer the tokens of one row, with any ops and limit."""
    index = torch.from_numpy(tokens)
    x = hidden.index_select(0, index).float()
    if residual is not None:
        x.add_(residual.index_select(0, index))
    most = _norm(x) * limit if limit != np.inf else None
    delta = torch.zeros_like(x)
    for (slot_u, slot_w), coefficients in ops:
        d = _amount(x, bank, slot_u, coefficients) * bank[slot_w]
        x.add_(d)
        delta.add_(d)
    if most is not None:
        norm = _norm(delta)
        delta.mul_(torch.where(norm > most, most / norm, 1.0))
    _store(hidden, tokens, delta)


def _norm(x: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return norm


def _amount(
    x: torch.Tensor, bank: torch.Tensor, slot_u: int, coefficients: list[float]
) -> torch.Tensor:
    """The factor of w for each token, (n, 1) float32."""
    c0, c1, c2, c3, lo, hi = coefficients
    amount = torch.full((x.shape[0], 1), c0, dtype=torch.float32)
    if c1 != 0:
        amount.add_(_norm(x), alpha=c1)
    if c2 != 0 or c3 != 0:
        dot = torch.mv(x, bank[slot_u]).unsqueeze(1)
        amount.add_(dot, alpha=c2).add_(dot.clamp(lo, hi).sub_(dot), alpha=c3)
    return amount
