"""What each operation does to a residual stream, written down from its formula and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from hotwire_plugin.program import ProgramOp

Load = Callable[[str, int], torch.Tensor]
"""(revision, layer) -> (hidden,) fp64."""


def applied(x: torch.Tensor, op: ProgramOp, load: Load) -> torch.Tensor:
    """Return x, (n, hidden) fp64, after one operation."""
    v, s = load(op.revision, op.layer), op.scale
    if op.op == "add":
        return x + s * v
    unit = v / v.norm()
    component = (x @ unit)[:, None]
    if op.op == "norm_add":
        return x + s * x.norm(dim=1, keepdim=True) * unit
    if op.op == "ablate":
        return x - s * component * unit
    if op.op == "clamp":
        return x + s * (component.clamp(*op.bounds) - component) * unit
    target = load(op.target, op.layer)
    return x + s * component * (target / target.norm() - unit)


def acts(op: ProgramOp, position: int, prompt_len: int) -> bool:
    """Whether an operation acts at a position, said position by position."""
    where = op.positions
    start, stop = where.generated
    in_scope = {
        "all": True,
        "prompt": position < prompt_len,
        "generated": position >= prompt_len,
        "last_prompt_token": position == prompt_len - 1,
    }[op.scope]
    if position >= prompt_len:
        index = position - prompt_len
        in_scope = in_scope and index >= start and (stop is None or index < stop)
    if where.include and not _named(where.include, position, prompt_len):
        return False
    return in_scope and not _named(where.exclude, position, prompt_len)


def _named(ranges: Sequence[tuple[int, int | None]], position: int, prompt_len: int) -> bool:
    for first, last in ranges:
        start = first + prompt_len if first < 0 else first
        end = position if last is None else last + prompt_len if last < 0 else last
        if start <= position <= end:
            return True
    return False


def steered(
    x: torch.Tensor,
    ops: Sequence[ProgramOp],
    positions: Sequence[int],
    prompt_len: int,
    load: Load,
    *,
    limit: float | torch.Tensor = math.inf,
) -> torch.Tensor:
    """Return x, (n, hidden) fp64 at these positions, after all operations, each in its turn.

    limit: the most that they add together over the norm of x; one for all, or (n,).
    """
    before = x
    for op in ops:
        here = torch.tensor([acts(op, position, prompt_len) for position in positions])
        x = torch.where(here[:, None], applied(x, op, load), x)
    added = x - before
    most = before.norm(dim=1) * limit
    factor = (most / added.norm(dim=1)).clamp(max=1.0).nan_to_num(1.0)
    return before + added * factor[:, None]


def loader(rows: Mapping[tuple[str, int], torch.Tensor]) -> Load:
    """Return what loads rows from a dictionary, in fp64."""
    return lambda revision, layer: rows[revision, layer].double()
