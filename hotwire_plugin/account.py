"""What a request asked for and gets, operation by operation: what its receipt is made from. Pure.

One account serves all requests that a decision serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hotwire_plugin.program import ProgramOp
from hotwired.dose import Contribution, DoseDecision


@dataclass(frozen=True, slots=True)
class Account:
    """The operations of a specification, and the dose they come to.

    vectors: the name behind each operation. ops: as asked for, in the order of the entries.
    scales: those in force, in the same order; None if they are the ones asked for. relative_dose,
    worst_layer, total_relative_dose: as in a DoseDecision, of what was asked for.
    """

    vectors: tuple[str, ...]
    ops: tuple[ProgramOp, ...]
    scales: tuple[float, ...] | None
    relative_dose: float | None
    worst_layer: int | None
    total_relative_dose: float | None

    @classmethod
    def of(
        cls, ops: Iterable[ProgramOp], parts: Sequence[Contribution], decision: DoseDecision
    ) -> Account:
        """Return the account of operations, what each contributes, and what was decided on it."""
        dose = decision.relative_dose, decision.worst_layer, decision.total_relative_dose
        return cls(tuple(part.vector for part in parts), tuple(ops), None, *dose)

    def with_scales(self, ops: Iterable[ProgramOp]) -> Account:
        """Return the same with the scales of these operations in force."""
        return replace(self, scales=tuple(op.scale for op in ops))

    @property
    def scales_in_force(self) -> Iterable[float]:
        """The scale of each operation, if the request is steered at all."""
        return (op.scale for op in self.ops) if self.scales is None else self.scales
