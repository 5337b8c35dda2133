"""The engine role: admission, the stamp on each step, and the keys of the prefix cache."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class CacheIdentity:
    """What tells a request's key-value blocks from those of other requests.

    Attributes:
        prompt_len: the prompt's tokens.
        prompt_key: what goes into the hash of every block within the prompt; None if those hold
            what an unsteered request would have written, and are shared with everybody.
        generated_key: what goes into the hash of every block that reaches past the prompt.
    """

    prompt_len: int
    prompt_key: str | None
    generated_key: str

    @classmethod
    def of(cls, program: Program, prompt_len: int) -> CacheIdentity:
        """Return the identity of a request's blocks."""
        digest = program.digest
        if program.active("prompt") == program.active("generated"):
            return cls(prompt_len, digest, digest)
        # What was generated here is prompt to a follow-up, which steers it in another way: where
        # the prompt ends is part of what such blocks hold.
        prompt_key = digest if program.steers_prompt else None
        return cls(prompt_len, prompt_key, f"{digest}@{prompt_len}")

    def key(self, block_end: int) -> str | None:
        """Return what a block that ends before ``block_end`` adds to its hash, if anything."""
        return self.prompt_key if block_end <= self.prompt_len else self.generated_key

    def of_its_own(self, request_id: str) -> CacheIdentity:
        """Return the identity of blocks that only this request can ask for."""
        prompt_key = self.prompt_key and f"{self.prompt_key}/{request_id}"
        return replace(
            self, prompt_key=prompt_key, generated_key=f"{self.generated_key}/{request_id}"
        )


class EngineRole:
    """What the engine process keeps for its requests. Safe to use from several threads."""

    def __init__(self, admission: Admission, holder: SnapshotHolder) -> None:
        self.admission = admission
        self._holder = holder
        self._identities: dict[str, CacheIdentity] = {}
        self._secluded: set[str] = set()
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
            identity = CacheIdentity.of(Program.decode(raw), prompt_len)
            with self._lock:
                self._identities[request_id] = identity
        return admitted

    def finish(self, request_id: str) -> None:
        """Forget a request that ended; unknown ones are ignored."""
        self.admission.finish(request_id)
        with self._lock:
            self._identities.pop(request_id, None)
            self._secluded.discard(request_id)

    def block_key(self, request_id: str, block_end: int) -> str | None:
        """Return what a block that ends before ``block_end`` adds to its hash, if anything."""
        identity = self._identities.get(request_id)
        return identity.key(block_end) if identity else None

    def seclude(self, request_id: str) -> bool:
        """Give a request's steered blocks a key of their own, so that nobody else reads them.

        For requests whose steering is switched while they run: their blocks hold neither what the
        program's digest says nor what an unsteered request would have written. Returns whether
        the request has a program and was not secluded before.
        """
        with self._lock:
            identity = self._identities.get(request_id)
            if identity is None or request_id in self._secluded:
                return False
            self._identities[request_id] = identity.of_its_own(request_id)
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
        )

    def stamp(self) -> tuple[Stamp, bool]:
        """Return the next step's stamp, and whether steering was switched off just now."""
        snapshot = self._holder.current
        was, self._enabled = self._enabled, not snapshot.policy.kill_switch
        return Stamp(snapshot.generation, self._enabled), was and not self._enabled
