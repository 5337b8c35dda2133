"""The engine role: admission, the stamp on each step, and the keys of the prefix cache."""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

from hotwire_plugin.admission import Admission, Prompt
from hotwire_plugin.availability import Arm
from hotwire_plugin.placement import Placement
from hotwire_plugin.program import limit_in_fp32
from hotwire_plugin.receipts import messages
from hotwire_plugin.snapshot import SnapshotHolder
from hotwired.node.v1 import node_pb2
from hotwired.v1 import stats_pb2

_ARMS = {
    Arm.STABLE: stats_pb2.CANARY_ARM_STABLE,
    Arm.CANARY: stats_pb2.CANARY_ARM_CANARY,
    Arm.FALLBACK: stats_pb2.CANARY_ARM_FALLBACK,
}


class Stamp(NamedTuple):
    """What every rank applies to one step; it travels with the step's schedule.

    Attributes:
        generation: the snapshot in force when the step was scheduled.
        enabled: false while the kill switch is on.
        limit: what the live relative dose of every request is held to, whatever its program says.
    """

    generation: int
    enabled: bool
    limit: float = math.inf


class EngineRole:
    """What the engine process keeps for its requests. Safe to use from several threads."""

    def __init__(self, admission: Admission, holder: SnapshotHolder) -> None:
        self.admission = admission
        self._holder = holder
        self._placements: dict[str, Placement] = {}
        self._secluded: set[str] = set()
        self._lock = threading.Lock()
        self._stamp = Stamp(0, enabled=True)

    def admit(
        self,
        extra_args: dict[str, object] | None,
        request_id: str,
        prompt: Prompt,
        drawn_by: str | None = None,
    ) -> dict[str, object] | None:
        """Return the request's extra_args with its specification turned into a program.

        drawn_by: the id that decides on canaries, if it is not the request's; empty for none.
        """
        granted = self.admission.admit(extra_args, request_id, prompt, drawn_by)
        with self._lock:
            self._placements.pop(request_id, None)
            if granted.placement is not None:
                self._placements[request_id] = granted.placement
        return granted.extra_args

    def finish(self, request_id: str, computed: int | None = None) -> None:
        """Forget a request that ended; unknown ones are ignored.

        computed: how many of its positions were computed, for its receipt; None for unknown.
        """
        with self._lock:
            placement = self._placements.pop(request_id, None)
            held_back = request_id in self._secluded
            self._secluded.discard(request_id)
        tokens = None if computed is None else _steered(placement, computed)
        self.admission.finish(request_id, tokens, held_back=held_back)

    def receipts(self, request_id: str) -> node_pb2.GetReceiptsResponse:
        """Return what came of a request, by an id that its client or the engine has for it."""
        found, truncated = messages(self.admission.receipts.find(request_id))
        return node_pb2.GetReceiptsResponse(receipts=found, truncated=truncated)

    def block_key(self, request_id: str, start: int, stop: int) -> str | None:
        """Return what the block of these positions adds to its hash, if anything.

        A block's hash goes on from the block's before it: only what acts within it counts.
        """
        placement = self._placements.get(request_id)
        key = placement.key(start, stop) if placement else None
        return f"{key}/{request_id}" if key and request_id in self._secluded else key

    def seclude(self, request_id: str) -> bool:
        """Give a request's steered blocks a key of their own, if a stamp changes its steering.

        Its blocks hold neither what the program says nor what an unsteered request would have
        written, so nobody else may read them. Returns whether the request has a program that the
        last stamp holds back, and was not secluded before.
        """
        with self._lock:
            placement = self._placements.get(request_id)
            if placement is None or request_id in self._secluded:
                return False
            if self._stamp.enabled and placement.limit <= self._stamp.limit:
                return False
            self._secluded.add(request_id)
            return True

    def report(self) -> node_pb2.EngineReport:
        """Return the counters since the start."""
        counters = self.admission.report()
        return node_pb2.EngineReport(
            generation=counters.generation,
            revisions_in_use=counters.revisions_in_use,
            requests_total=counters.requests_total,
            requests_steered_total=counters.requests_steered_total,
            requests_unsteered_total=counters.requests_unsteered_total,
            dose_decisions_total=counters.dose_decisions_total,
            requests_live=counters.requests_live,
            canary_requests_total=[
                stats_pb2.CanaryCount(
                    vector=use.vector,
                    revision=use.revision,
                    arm=_ARMS[use.arm],
                    requests_total=count,
                )
                for use, count in counters.canary_requests_total.items()
            ],
        )

    def stamp(self) -> tuple[Stamp, bool]:
        """Return the next step's stamp, and whether it holds back what the last one did not."""
        snapshot, before = self._holder.current, self._stamp
        policy = snapshot.policy
        # As in the programs that are made now: what they hold is not held back any further.
        limit = limit_in_fp32(policy.live_limit) if policy.apply_to_running else math.inf
        now = self._stamp = Stamp(snapshot.generation, not policy.kill_switch, limit)
        return now, (before.enabled and not now.enabled) or now.limit < before.limit


def _steered(placement: Placement | None, computed: int) -> int:
    return placement.steered(computed) if placement is not None else 0
