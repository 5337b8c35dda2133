"""At which positions of a request an operation acts. Pure: standard library only.

A position is absolute: 0 is the prompt's first token. Those below the prompt's length are prompt,
the others generated; the first generated token is the one that follows from the last prompt
position. What is written negative counts from the prompt's end, -1 being its last position.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

SCOPES = ("all", "prompt", "generated", "last_prompt_token")

Range: TypeAlias = tuple[int, int | None]
"""First and last position, both included; None: no last one."""

Interval: TypeAlias = tuple[float, float]
"""First position and the one after the last; ascending and disjoint in a list."""


@dataclass(frozen=True)
class Positions:
    """Which positions of a scope are meant; exclusion wins.

    include: only these; empty for all. exclude: not these. skip_special: not the prompt's special
    tokens. generated: of what is generated only tokens from .. to, counted from 0, the last one
    excluded; None: no end.
    """

    include: tuple[Range, ...] = ()
    exclude: tuple[Range, ...] = ()
    skip_special: bool = False
    generated: tuple[int, int | None] = (0, None)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Each of a request's operations is looked up by it, and there may be hundreds of ranges.
        return hash((self.include, self.exclude, self.skip_special, self.generated))

    def without(self, special: Sequence[int]) -> Positions:
        """Return these with special tokens' positions, if they are to be skipped, excluded."""
        if not self.skip_special:
            return self
        return replace(self, exclude=self.exclude + tuple(runs(special)), skip_special=False)

    def encode(self) -> list[object]:
        """Return them as JSON has it."""
        lists = [[list(each) for each in ranges] for ranges in (self.include, self.exclude)]
        return [*lists, self.skip_special, list(self.generated)]

    @classmethod
    def decode(cls, raw: Any) -> Positions:
        """Read what encode() wrote. Raises TypeError or ValueError for anything else."""
        include, exclude, skip_special, generated = raw
        if type(skip_special) is not bool:
            raise TypeError("skip_special is a boolean")
        return cls(_ranges(include), _ranges(exclude), skip_special, _range(generated))

    def intervals(self, scope: str, prompt_len: int) -> list[Interval]:
        """Return the positions of a scope that are meant, in a request with this prompt."""
        found = _of_scope(scope, prompt_len)
        if self.generated != (0, None):
            start, stop = self.generated
            window = (prompt_len + start, math.inf if stop is None else prompt_len + stop)
            found = intersection(found, [(0, prompt_len), window])
        if self.include:
            found = intersection(found, _absolute(self.include, prompt_len))
        if self.exclude:
            found = intersection(found, _complement(_absolute(self.exclude, prompt_len)))
        return found


EVERYWHERE = Positions()


def runs(positions: Iterable[int]) -> list[Range]:
    """Return ascending positions as ranges."""
    found: list[tuple[int, int]] = []
    for position in positions:
        if found and found[-1][1] == position - 1:
            found[-1] = (found[-1][0], position)
        else:
            found.append((position, position))
    return list(found)


def intersection(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """Return what two lists of intervals share."""
    found: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        start, stop = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < stop:
            found.append((start, stop))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def _of_scope(scope: str, prompt_len: int) -> list[Interval]:
    found: dict[str, list[Interval]] = {
        "all": [(0, math.inf)],
        "prompt": [(0, prompt_len)],
        "generated": [(prompt_len, math.inf)],
        "last_prompt_token": [(max(prompt_len - 1, 0), prompt_len)],
    }
    return found[scope]


def _absolute(ranges: Iterable[Range], prompt_len: int) -> list[Interval]:
    """Return ranges as intervals; those that end before position 0 are nowhere."""
    found: list[Interval] = []
    for first, last in sorted(_counted(each, prompt_len) for each in ranges):
        start, stop = max(first, 0), last + 1
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        elif start < stop:
            found.append((start, stop))
    return found


def _counted(each: Range, prompt_len: int) -> Interval:
    first, last = each
    start = first + prompt_len if first < 0 else first
    if last is None:
        return start, math.inf
    return start, last + prompt_len if last < 0 else last


def _complement(intervals: list[Interval]) -> list[Interval]:
    edges = [0.0, *(edge for interval in intervals for edge in interval), math.inf]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [(start, stop) for start, stop in pairs if start < stop]


def _ranges(raw: Any) -> tuple[Range, ...]:
    return tuple(_range(each) for each in raw)


def _range(raw: Any) -> Range:
    first, last = raw
    if type(first) is not int or not (last is None or type(last) is int):
        raise TypeError("a range is [first, last]")
    return first, last
