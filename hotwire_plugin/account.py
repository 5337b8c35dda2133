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

    vectors, targets: the names behind each operation; a target's is empty for none. ops: as asked
    for, in the order of the entries. scales: those in force, in the same order; None if they are
    the ones asked for. relative_dose, worst_layer, total_relative_dose: as in a DoseDecision, of
    what was asked for. weight: how many operations and ranges of positions it holds.
    """

    vectors: tuple[str, ...]
    targets: tuple[str, ...]
    ops: tuple[ProgramOp, ...]
    scales: tuple[float, ...] | None
    relative_dose: float | None
    worst_layer: int | None
    total_relative_dose: float | None
    weight: int

    @classmethod
    def of(
        cls, ops: Iterable[ProgramOp], parts: Sequence[Contribution], decision: DoseDecision
    ) -> Account:
        """Return the account of operations, what each contributes, and what was decided on it."""
        kept = tuple(ops)
        dose = decision.relative_dose, decision.worst_layer, decision.total_relative_dose
        vectors = tuple(part.vector for part in parts)
        targets = tuple(part.target for part in parts)
        return cls(vectors, targets, kept, None, *dose, _weight(kept))

    def with_scales(self, ops: Iterable[ProgramOp]) -> Account:
        """Return the same with the scales of these operations in force."""
        return replace(self, scales=tuple(op.scale for op in ops))

    @property
    def scales_in_force(self) -> Iterable[float]:
        """The scale of each operation, if the request is steered at all."""
        return (op.scale for op in self.ops) if self.scales is None else self.scales


def _weight(ops: tuple[ProgramOp, ...]) -> int:
    # The operations of an entry share its positions: they are told apart by identity.
    positions = {id(op.positions): op.positions for op in ops}.values()
    return len(ops) + sum(len(each.include) + len(each.exclude) for each in positions)
