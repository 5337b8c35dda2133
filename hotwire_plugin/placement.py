"""Which operations act at which positions of one request: the same for its blocks and its rows.

Pure: standard library only.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hotwire_plugin.program import Program, ProgramOp, effect_digest

MAX_SETS = 8
"""The most different sets of operations that act somewhere in one request: each needs a row."""


MAX_PLACES_UNSEEN = MAX_SETS.bit_length() - 1
"""The most kinds of places whose sets are few enough whatever the prompt's length is."""


@dataclass(frozen=True, slots=True)
class OpSet:
    """Operations that act together, within a limit of what they add.

    ``key`` tells them from others, and is empty for none.
    """

    key: str
    ops: tuple[ProgramOp, ...]
    limit: float = math.inf


NOTHING = OpSet("", ())


@dataclass(frozen=True)
class Placement:
    """A program laid out over the positions of a request.

    starts: where each stretch begins, ascending from 0; the last one has no end. sets: what acts
    in each; neighbours differ. limit: the program's.
    """

    starts: tuple[int, ...]
    sets: tuple[OpSet, ...]
    limit: float

    @classmethod
    def of(cls, program: Program, prompt_len: int) -> Placement:
        """Lay a program out over a request with this many prompt tokens."""
        kinds = list(program.places)
        number = {kind: at for at, kind in enumerate(kinds)}
        kind_of = [number[op.scope, op.positions] for op in program.ops]
        known: dict[frozenset[int], OpSet] = {frozenset(): NOTHING}
        starts: list[int] = []
        sets: list[OpSet] = []
        for start, active in _stretches([p.intervals(s, prompt_len) for s, p in kinds]):
            if active not in known:
                chosen = [op for op, at in zip(program.ops, kind_of, strict=True) if at in active]
                known[active] = _op_set(tuple(chosen), program.limit)
            if not sets or sets[-1] is not known[active]:
                starts.append(start)
                sets.append(known[active])
        return cls(tuple(starts), tuple(sets), program.limit)

    @cached_property
    def distinct(self) -> tuple[OpSet, ...]:
        """The different sets that act anywhere."""
        return tuple({s.key: s for s in self.sets if s is not NOTHING}.values())

    def between(self, start: int, stop: int) -> Iterator[tuple[int, OpSet]]:
        """Yield the length and the set of each stretch of the positions from start to stop."""
        at = bisect_right(self.starts, start) - 1
        while start < stop:
            end = self.starts[at + 1] if at + 1 < len(self.starts) else stop
            yield min(end, stop) - start, self.sets[at]
            start, at = end, at + 1

    def steered(self, stop: int) -> int:
        """Return at how many of the positions below ``stop`` anything acts."""
        return sum(length for length, each in self.between(0, stop) if each.key)

    def key(self, start: int, stop: int) -> str | None:
        """Return what tells apart how the positions of a block are steered; None: not at all."""
        inside = list(self.between(start, stop))
        if len(inside) == 1:
            return inside[0][1].key or None
        if not any(each.key for _, each in inside):
            return None
        text = ",".join(f"{length}:{each.key}" for length, each in inside)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def _stretches(
    lists: list[list[tuple[float, float]]],
) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield where what is active changes, and the lists that are active from there on."""
    changes: dict[float, set[int]] = {0: set()}
    for number, intervals in enumerate(lists):
        for edge in (edge for interval in intervals for edge in interval):
            # An interval that begins where one of the same list ends leaves it active.
            changes.setdefault(edge, set()).symmetric_difference_update({number})
    active: set[int] = set()
    for edge in sorted(changes):
        if edge == math.inf:
            return
        active ^= changes[edge]
        yield int(edge), frozenset(active)


def _op_set(ops: tuple[ProgramOp, ...], limit: float) -> OpSet:
    return OpSet(effect_digest(ops, limit), ops, limit)


def count_sets(program: Program, prompt_len: int) -> int:
    """Return how many different sets of operations act somewhere, without making them."""
    lists = [p.intervals(s, prompt_len) for s, p in program.places]
    return len({active for _, active in _stretches(lists)} - {frozenset()})
