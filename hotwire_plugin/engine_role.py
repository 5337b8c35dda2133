"""The engine role: admission, the stamp on each step, and the keys of the prefix cache."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import NamedTuple

from hotwire_plugin.admission import Admission
from hotwire_plugin.program import PROGRAM_KEY, Program
from hotwire_plugin.snapshot import SnapshotHolder
from hotwired.node.v1 import node_pb2


class Stamp(NamedTuple):
    """What every rank applies to one step; it travels with the step's schedule.

    Attributes:
        generation: the snapshot in force when the step was scheduled.
        enabled: false while the kill switch is on.
    """

    generation: int
    enabled: bool


@dataclass(slots=True)
class CacheIdentity:
    """What tells a request's key-value blocks from those of other requests.

    Attributes:
        first_steered: the first position whose residual stream is changed; earlier blocks are
            shared with everybody.
        key: what goes into the hash of every block that reaches past it.
    """

    first_steered: int
    key: str


class EngineRole:
    """What the engine process keeps for its requests. Safe to use from several threads."""

    def __init__(self, admission: Admission, holder: SnapshotHolder) -> None:
        self.admission = admission
        self._holder = holder
        self._identities: dict[str, CacheIdentity] = {}
        self._lock = threading.Lock()
        self._enabled = True

    @property
    def enabled(self) -> bool:
        """Whether the last stamp let requests be steered."""
        return self._enabled

    def admit(
        self, extra_args: dict[str, object] | None, request_id: str, prompt_len: int
    ) -> dict[str, object] | None:
        """Return the request's extra_args with its specification turned into a program."""
        admitted = self.admission.admit(extra_args, request_id)
        raw = (admitted or {}).get(PROGRAM_KEY)
        if raw is not None:
            program = Program.decode(raw)
            identity = CacheIdentity(program.first_steered(prompt_len), program.digest)
            with self._lock:
                self._identities[request_id] = identity
        return admitted

    def finish(self, request_id: str) -> None:
        """Forget a request that ended; unknown ones are ignored."""
        self.admission.finish(request_id)
        with self._lock:
            self._identities.pop(request_id, None)

    def block_key(self, request_id: str, block_end: int) -> str | None:
        """Return what a block that ends before ``block_end`` adds to its hash, if anything."""
        identity = self._identities.get(request_id)
        if identity is None or block_end <= identity.first_steered:
            return None
        return identity.key

    def seclude(self, request_id: str) -> bool:
        """Give a request's steered blocks a key of their own, so that nobody else reads them.

        For requests whose steering is switched while they run: their blocks hold neither what the
        program's digest says nor what an unsteered request would have written. Returns whether
        the request has a program and was not secluded before.
        """
        with self._lock:
            identity = self._identities.get(request_id)
            if identity is None or identity.key.endswith(request_id):
                return False
            identity.key = f"{identity.key}/{request_id}"
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
        )

    def stamp(self) -> tuple[Stamp, bool]:
        """Return the next step's stamp, and whether steering was switched off just now."""
        snapshot = self._holder.current
        was, self._enabled = self._enabled, not snapshot.policy.kill_switch
        return Stamp(snapshot.generation, self._enabled), was and not self._enabled
