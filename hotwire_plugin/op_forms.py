"""What a user asks for, as the coefficients of the steering op's one form.

The op does ``(c0 + c1 ||x|| + c2 (x.u) + c3 (clamp(x.u, lo, hi) - x.u)) w`` to x, the residual
stream (or what the attention or the MLP returns, at those sites). With v the vector as
registered, v' = v / ||v|| its direction and s the scale:

==============  ===============================================  ==================================
op              what it does                                     u, w and coefficients
==============  ===============================================  ==================================
add             x += s v                                         w = v; c0 = s
norm_add        x += s ||x|| v'                                  w = v'; c1 = s
ablate          x -= s (x.v') v'                                 u = w = v'; c2 = -s
clamp           x += s (clamp(x.v', min, max) - x.v') v'         u = w = v'; c3 = s; lo, hi
swap            x += s (x.v') (t' - v'), t' another direction    u = v', w = t' - v'; c2 = s
==============  ===============================================  ==================================

A request's ``scale_component`` with coefficient c, which keeps what is orthogonal to v and makes
(x.v') into c (x.v'), is ``ablate`` with s = 1 - c. A clamp with min = max pins the component.

Units: s of add is in multiples of v; s of norm_add in multiples of the token's own norm, at most
``cap`` of it where the request gives one; s of the others is a plain factor: 1 does all of it.
min and max are components along the direction, in units of the residual stream, whatever ||v||.

Sources: add, Turner et al. 2023 (arXiv:2308.10248) and Rimsky et al. 2023 (arXiv:2312.06681);
ablate, Arditi et al. 2024 (arXiv:2406.11717); clamp with min = max, the feature clamping of
Templeton et al. 2024 (Scaling Monosemanticity); the others follow from the form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hotwire_plugin.program import ProgramOp

Coefficients: TypeAlias = tuple[float, float, float, float, float, float]
Row: TypeAlias = npt.NDArray[np.float32]
LoadRow: TypeAlias = Callable[[str, int], Row]
"""(revision, layer) -> (hidden,) fp32 as registered; KeyError if it isn't there."""


class Direction(NamedTuple):
    """A row that an op reads, made from one vector or two: what a bank slot holds.

    Attributes:
        revision: the vector's.
        layer: which of its rows.
        unit: whether it is divided by its norm.
        target: the revision whose direction this one is subtracted from; empty for none.
    """

    revision: str
    layer: int
    unit: bool = False
    target: str = ""

    def row(self, load: LoadRow) -> Row:
        """Return the row, (hidden,) fp32. Raises KeyError if a vector has none for the layer."""
        own = load(self.revision, self.layer)
        if not self.unit:
            return own
        direction = _unit(own)
        if self.target:
            direction = _unit(load(self.target, self.layer)) - direction
        return direction.astype(np.float32)


class Form(NamedTuple):
    """An op in the one form; u is None where the coefficients do not ask for x.u."""

    u: Direction | None
    w: Direction
    coefficients: Coefficients


def form(op: ProgramOp) -> Form:
    """Return the directions and coefficients of an operation.

    Raises:
        ValueError: for an op that is not in the table.
    """
    raw, unit = Direction(op.revision, op.layer), Direction(op.revision, op.layer, unit=True)
    if op.op == "add":
        return Form(None, raw, (op.scale, 0.0, 0.0, 0.0, -math.inf, math.inf))
    if op.op == "norm_add":
        return Form(None, unit, (0.0, op.scale, 0.0, 0.0, -math.inf, math.inf))
    if op.op == "ablate":
        return Form(unit, unit, (0.0, 0.0, -op.scale, 0.0, -math.inf, math.inf))
    if op.op == "clamp":
        return Form(unit, unit, (0.0, 0.0, 0.0, op.scale, *op.bounds))
    if op.op == "swap":
        other = unit._replace(target=op.target)
        return Form(unit, other, (0.0, 0.0, op.scale, 0.0, -math.inf, math.inf))
    raise ValueError(f"unknown op {op.op!r}")


def directions(ops: Iterable[ProgramOp]) -> frozenset[Direction]:
    """Return every direction that operations read: each takes a bank slot while it is used."""
    forms = [form(op) for op in ops]
    return frozenset([f.w for f in forms] + [f.u for f in forms if f.u is not None])


def _unit(row: Row) -> npt.NDArray[np.float64]:
    """Divide by the norm, in fp64: an fp32 sum of squares can over- or underflow."""
    wide = row.astype(np.float64)
    return wide / np.linalg.norm(wide)
