"""One live request of a worker: the rows of its program, laid out over the tokens of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotwire_plugin.placement import NOTHING, OpSet, Placement
from hotwire_plugin.positions import EVERYWHERE
from hotwire_plugin.program import Program
from hotwire_plugin.rows import NO_OPS, ProgramRows, RowEntry


class Span(NamedTuple):
    """The positions of one request that one step computes, and its prompt's length."""

    start: int
    stop: int
    prompt_len: int


class Spans(NamedTuple):
    """The spans of a batch of n requests.

    Attributes:
        query_start: (n + 1,) the first token of each span, and the end of the last.
        computed: (n,) the tokens of each request computed before this step.
        prompt_len: (n,) the prompt tokens of each request.
    """

    query_start: npt.NDArray[np.integer]
    computed: npt.NDArray[np.integer]
    prompt_len: npt.NDArray[np.integer]

    def of(self, at: int) -> Span:
        """Return the span of one request."""
        start, tokens = int(self.computed[at]), self.tokens(at)
        return Span(start, start + tokens.stop - tokens.start, int(self.prompt_len[at]))

    def tokens(self, at: int) -> slice:
        """Return where the tokens of one request are in the batch."""
        return slice(int(self.query_start[at]), int(self.query_start[at + 1]))

    def phases(self, n: int) -> npt.NDArray[np.int64]:
        """Return how many tokens of each request are prompt, and how many generated, (2 n,)."""
        lengths = self.query_start[1 : n + 1] - self.query_start[:n]
        counts = np.empty((n, 2), dtype=np.int64)
        counts[:, 0] = np.minimum(np.maximum(self.prompt_len[:n] - self.computed[:n], 0), lengths)
        counts[:, 1] = lengths - counts[:, 0]
        return counts.ravel()


@dataclass(slots=True, eq=False)
class Steered:
    """A live request's program and its rows.

    Most programs do one thing in the prompt and one in what is generated, and then ``prompt`` and
    ``generated`` are all there is to know, for every prompt length. Any other is laid out for each
    step, until the request has come to where nothing changes any more: from position
    ``settled_from`` on, both are the same again. A prompt's length stays what it first was.
    """

    program: Program
    table: ProgramRows
    settled_from: float = math.inf
    prompt: RowEntry = NO_OPS
    generated: RowEntry = NO_OPS
    _placement: Placement | None = None
    _acquired: dict[str, RowEntry] = field(default_factory=dict)
    _stretches: list[tuple[int, RowEntry]] = field(default_factory=list)

    def lay_out(self, span: Span) -> None:
        """Find which operations act on the tokens of this step."""
        if self._placement is None:
            self._placement = Placement.of(self.program, span.prompt_len)
            self.settled_from = self._placement.starts[-1]
            self.prompt = self.generated = self.acquire(self._placement.sets[-1])
        between = self._placement.between(span.start, span.stop)
        self._stretches = [(length, self.acquire(each)) for length, each in between]

    def touch(self, step: int) -> list[int]:
        """Mark the rows of this step as used; return them."""
        for _, entry in self._stretches:
            entry.last_step = step
        return [entry.row for _, entry in self._stretches]

    def rows(self) -> npt.NDArray[np.int32]:
        """Return the row of each token of this step."""
        rows = np.array([entry.row for _, entry in self._stretches], dtype=np.int32)
        return rows.repeat([length for length, _ in self._stretches])

    def entries(self) -> list[RowEntry]:
        """Return the entries that this step needs, or the next one may."""
        return [self.prompt, self.generated, *(entry for _, entry in self._stretches)]

    def acquire(self, each: OpSet) -> RowEntry:
        """Return the entry of a set of operations, which is held until the request ends."""
        if each is NOTHING:
            return NO_OPS
        entry = self._acquired.get(each.key)
        if entry is None:
            entry = self._acquired[each.key] = self.table.acquire(each.key, each.ops, each.limit)
        return entry

    def release(self) -> None:
        """Give up every row."""
        for entry in self._acquired.values():
            self.table.release(entry)
        self._acquired.clear()


def take_up(table: ProgramRows, raw_program: object) -> Steered:
    """Return a new request's rows. Raises program.ProgramError if it is no encoded program."""
    program = Program.decode(raw_program)
    by_phase = all(
        op.positions == EVERYWHERE and op.scope != "last_prompt_token" for op in program.ops
    )
    steered = Steered(program, table)
    if by_phase:
        steered.settled_from = 0
        # In a request of two tokens, the first its prompt.
        (_, first), *rest = Placement.of(program, 1).between(0, 2)
        steered.prompt = steered.acquire(first)
        steered.generated = steered.acquire(rest[0][1]) if rest else steered.prompt
    return steered
