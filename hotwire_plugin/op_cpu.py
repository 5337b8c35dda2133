"""The steering op on CPU tensors, made of few calls: a call into torch costs more than its work.

Tables are read through numpy views, which cost less than small tensors do. Tokens whose rows only
add, without a limit, go together; the others go row by row.
"""

import math
from typing import Any, NamedTuple, TypeAlias

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
    token_rows = token_row.numpy()[: hidden.shape[0]]
    rows = [row for row in set(token_rows.tolist()) if row != 0 and counts[row] > 0]
    if not rows:
        return
    table = _Table(bank, op_slots.numpy(), op_coef.numpy(), counts, limit.numpy())
    adding = [row for row in rows if table.only_adds(row)]
    if adding:
        _add(hidden, table, adding, token_rows)
    for row in set(rows).difference(adding):
        if table.limits[row] > 0:
            _general(hidden, residual, table, row, np.flatnonzero(token_rows == row))


class _Table(NamedTuple):
    """One layer's tables, as numpy views but for the bank."""

    bank: torch.Tensor
    slots: _Array
    coef: _Array
    counts: _Array
    limits: _Array

    def only_adds(self, row: int) -> bool:
        """Whether the row's d is the same whatever x is."""
        unlimited: bool = self.limits[row] == math.inf
        return unlimited and not self.coef[row, : self.counts[row], 1:4].any()


def _add(hidden: torch.Tensor, table: _Table, rows: list[int], token_rows: _Array) -> None:
    """Steer the tokens of all rows that only add: one d a row, given to each of its tokens."""
    if len(rows) == 1:  # by far the commonest, and cheaper without gathering
        _store(hidden, np.flatnonzero(token_rows == rows[0]), _sum(table, rows[0]))
        return
    delta = _sums(table, rows)
    place = np.full(len(table.counts), -1)
    place[rows] = range(len(rows))
    places = place[token_rows]
    tokens = np.flatnonzero(places >= 0)
    _store(hidden, tokens, delta.index_select(0, torch.from_numpy(places[tokens])))


def _sum(table: _Table, row: int) -> torch.Tensor:
    """Return the sum of c0 * w over the ops of one row, (H,) float32."""
    count = table.counts[row]
    slots = table.slots[row, :count, 1].tolist()
    scales = table.coef[row, :count, 0].tolist()
    total: torch.Tensor = table.bank[slots[0]] * scales[0]
    for slot, scale in zip(slots[1:], scales[1:], strict=True):
        total.add_(table.bank[slot], alpha=scale)
    return total


def _sums(table: _Table, rows: list[int]) -> torch.Tensor:
    """Return the sum of c0 * w over the ops of each row, (len(rows), H) float32."""
    counts = table.counts[rows]
    max_ops = table.slots.shape[1]
    firsts = [row * max_ops for row in rows]
    used = [first + k for first, n in zip(firsts, counts, strict=True) for k in range(n)]
    slots = torch.from_numpy(table.slots.reshape(-1, 2)[used, 1])
    scales = torch.from_numpy(table.coef.reshape(-1, 6)[used, 0])
    starts = torch.from_numpy(counts.cumsum(dtype=np.int32) - counts)
    sums: torch.Tensor = torch.embedding_bag(
        table.bank, slots, starts, mode=0, per_sample_weights=scales
    )[0]
    return sums


def _store(hidden: torch.Tensor, tokens: _Array, delta: torch.Tensor) -> None:
    """hidden[tokens] += delta, in float32 with one rounding; delta may be one row for all."""
    if len(tokens) == hidden.shape[0]:
        hidden.add_(delta)
        return
    index = torch.from_numpy(tokens)
    hidden.index_copy_(0, index, hidden.index_select(0, index).add_(delta))


def _general(
    hidden: torch.Tensor,
    residual: torch.Tensor | None,
    table: _Table,
    row: int,
    tokens: _Array,
) -> None:
    """Steer the tokens of one row, with any ops and limit."""
    index = torch.from_numpy(tokens)
    x = hidden.index_select(0, index).float()
    if residual is not None:
        x.add_(residual.index_select(0, index))
    limit = table.limits[row].item()
    most = _norm(x).mul_(limit) if limit != math.inf else None
    delta = torch.zeros_like(x)
    for k in range(table.counts[row]):
        slot_u, slot_w = table.slots[row, k].tolist()
        amount = _amount(x, table.bank, slot_u, table.coef[row, k].tolist())
        d = amount * table.bank[slot_w]
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
