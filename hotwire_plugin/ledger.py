"""What an engine counts about admission, and which requests run with a program."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hotwire_plugin.availability import ArmUse
from hotwire_plugin.op_forms import Direction

MAX_ARMS = 256
"""The most arms of canaries that are counted."""


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Counters since the process started, at one moment.

    generation: the one in force. revisions_in_use: those of live requests, sorted.
    requests_total, requests_steered_total: requests admitted, and those with a program.
    requests_unsteered_total: those that asked for steering and run without, by reason.
    dose_decisions_total: dose decisions by outcome. requests_live: with a program, not ended.
    canary_requests_total: those steered by a vector with a canary, those counted last at the end.
    """

    generation: int
    revisions_in_use: tuple[str, ...]
    requests_total: int
    requests_steered_total: int
    requests_unsteered_total: Mapping[str, int]
    dose_decisions_total: Mapping[str, int]
    requests_live: int
    canary_requests_total: Mapping[ArmUse, int] = field(default_factory=dict)


class Uses(NamedTuple):
    """What a live request needs its workers to hold."""

    revisions: frozenset[str]
    directions: frozenset[Direction]


class Ledger:
    """Thread-safe counters and live requests; holds nothing of a request that has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = 0
        self._steered = 0
        self._unsteered: Counter[str] = Counter()
        self._doses: Counter[str] = Counter()
        self._arms: OrderedDict[ArmUse, int] = OrderedDict()
        self._live: dict[str, Uses] = {}
        self._directions: Counter[Direction] = Counter()

    def record(
        self,
        request_id: str,
        uses: Uses | None,
        reason: str | None,
        dose_outcome: str | None,
        arms: Sequence[ArmUse] = (),
    ) -> None:
        """Counts a request and, if it uses anything, keeps it as live until finish().

        arms: which revisions it has of vectors with a canary. An id that is live already is
        replaced: it was admitted again.
        """
        with self._lock:
            self._requests += 1
            if reason is not None:
                self._unsteered[reason] += 1
            if dose_outcome is not None:
                self._doses[dose_outcome] += 1
            self._drop(request_id)
            if uses is not None:
                self._steered += 1
                self._live[request_id] = uses
                self._directions.update(uses.directions)
                self._count_arms(arms)

    def finish(self, request_id: str) -> None:
        """Forgets a request; one that is not live is none of its business."""
        with self._lock:
            self._drop(request_id)

    def directions_with(self, more: frozenset[Direction]) -> int:
        """Returns how many directions live requests would use with one that needs more."""
        with self._lock:
            new = sum(1 for direction in more if direction not in self._directions)
            return len(self._directions) + new

    def revisions_in_use(self) -> set[str]:
        """Returns the revisions that live requests use."""
        with self._lock:
            return self._revisions()

    def counters(self, generation: int) -> EngineCounters:
        """Returns the counters of this moment."""
        with self._lock:
            return EngineCounters(
                generation=generation,
                revisions_in_use=tuple(sorted(self._revisions())),
                requests_total=self._requests,
                requests_steered_total=self._steered,
                requests_unsteered_total=dict(self._unsteered),
                dose_decisions_total=dict(self._doses),
                requests_live=len(self._live),
                canary_requests_total=dict(self._arms),
            )

    def _count_arms(self, arms: Sequence[ArmUse]) -> None:
        """Counts by arm; of canaries there may be ever new ones, so the oldest are forgotten."""
        for use in arms:
            self._arms[use] = self._arms.pop(use, 0) + 1
        while len(self._arms) > MAX_ARMS:
            self._arms.popitem(last=False)

    def _revisions(self) -> set[str]:
        return set().union(*{uses.revisions for uses in self._live.values()})

    def _drop(self, request_id: str) -> None:
        uses = self._live.pop(request_id, None)
        for direction in uses.directions if uses else ():
            self._directions[direction] -= 1
            if not self._directions[direction]:
                del self._directions[direction]
