"""The steering op written for reading: what the fast implementations are tested against."""

from collections.abc import Iterable
from typing import TypeAlias

import torch

_Op: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""(slot_u, slot_w) and (c0, c1, c2, c3, lo, hi)."""


def steer_reference(
    hidden: torch.Tensor,
    residual: torch.Tensor | None,
    bank: torch.Tensor,
    op_slots: torch.Tensor,
    op_coef: torch.Tensor,
    op_count: torch.Tensor,
    limit: torch.Tensor,
    token_row: torch.Tensor,
    *,
    compute: torch.dtype = torch.float32,
    out: torch.dtype | None = None,
) -> torch.Tensor:
    """Return what ``hidden`` should become; shapes and dtypes as in :mod:`hotwire_plugin.op`.

    For one token, with x = x0 = hidden + residual, u and w rows of the bank, and every op reading
    the x that the one before it left::

        d_k = (c0 + c1 ||x|| + c2 (x.u) + c3 (clamp(x.u, lo, hi) - x.u)) w ;  x += d_k
        d   = sum of d_k
        d  *= min(1, limit ||x0|| / ||d||)
        hidden = round(hidden + d)

    The terms are those of activation addition, norm-matched addition, directional ablation and
    projection capping, whose sources :mod:`hotwire_plugin.op_forms` names. A limit that isn't
    above zero leaves the token untouched.

    ``compute`` is the dtype of the arithmetic (float32, or float64 for a truth to measure errors
    against); ``out`` is the result's dtype, by default that of ``hidden`` (give ``compute`` to see
    the value before its one rounding).
    """
    result = hidden.to(out or hidden.dtype, copy=True)
    for token in range(hidden.shape[0]):
        row = int(token_row[token])
        count = int(op_count[row])
        if row == 0 or count == 0 or not limit[row] > 0:
            continue
        h = hidden[token].to(compute)
        x0 = h if residual is None else h + residual[token].to(compute)
        ops = zip(op_slots[row, :count], op_coef[row, :count].to(compute), strict=True)
        d = _limited(_delta(x0, bank.to(compute), ops), x0, limit[row].to(compute))
        result[token] = (h + d).to(result.dtype)
    return result


def _delta(x0: torch.Tensor, bank: torch.Tensor, ops: Iterable[_Op]) -> torch.Tensor:
    x = x0
    total = torch.zeros_like(x0)
    for (slot_u, slot_w), (c0, c1, c2, c3, lo, hi) in ops:
        amount = c0 + c1 * torch.linalg.vector_norm(x)
        if c2 != 0 or c3 != 0:
            dot = torch.dot(x, bank[slot_u])
            amount = amount + c2 * dot + c3 * (dot.clamp(lo, hi) - dot)
        d = amount * bank[slot_w]
        x = x + d
        total = total + d
    return total


def _limited(d: torch.Tensor, x0: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    most = limit * torch.linalg.vector_norm(x0)
    norm = torch.linalg.vector_norm(d)
    return d * (most / norm) if norm > most else d
