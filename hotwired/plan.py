"""What an instance of vLLM should hold and use, and how far each of its nodes is from that."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from hotwired.fleet import Group, Instance
from hotwired.node.v1 import node_pb2
from hotwired.node_link import NodeLink
from hotwired.snapshot import Desired, Entry, Fitting
from hotwired.v1 import node_pb2 as public_pb2

RETRY_REFUSED_SECONDS = 30.0
"""A refused vector is offered again after that long: memory may have become free."""

State: TypeAlias = public_pb2.NodeState

_SETTLED: frozenset[State] = frozenset(
    {
        public_pb2.NODE_STATE_CONVERGED,
        public_pb2.NODE_STATE_DISARMED,
        public_pb2.NODE_STATE_STANDALONE,
    }
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a node is, and one sentence if it isn't there."""

    state: State
    detail: str = ""


class Plan:
    """The desired state as one instance can have it.

    A vector that a worker refuses, or whose blob is unreadable while a worker lacks it, is left
    out for the whole instance: it must not hold up the others, nor the policy. Of one whose canary
    alone is so, the canary is left out. If a worker can't steer, all vectors are: ranks would part.

    key: tells two snapshots apart. steerable: whether all workers can steer.
    """

    def __init__(self, instance: Instance, desired: Desired, unreadable: set[str]) -> None:
        self.instance = instance
        self.desired = desired
        self._facts = instance.facts
        self._fitting = desired.fitting(self._facts) if self._facts else Fitting({})
        self.steerable = all(worker.is_armed for worker in instance.workers)
        self.left_out = self._left_out(unreadable)
        self.key = (desired.generation, self.left_out, self.steerable)
        self._revisions = self._fitting.revisions - self.left_out

    def _left_out(self, unreadable: set[str]) -> frozenset[str]:
        workers = self.instance.workers
        refused = {revision for worker in workers for revision in worker.rejected}
        lost = {
            revision
            for revision in unreadable
            if not all(revision in worker.held for worker in workers)
        }
        return self._fitting.revisions & (refused | lost)

    def snapshot(self) -> node_pb2.Snapshot:
        """Returns what to put in force."""
        key = (self._facts, self.left_out, self.steerable)
        return self.desired.snapshot(key, self._entries, self._facts)

    def _entries(self) -> Iterable[Entry]:
        if not self.steerable:
            return []
        if not self.left_out:
            return self._fitting.entries.values()
        left = (entry.without(self.left_out) for entry in self._fitting.entries.values())
        return [entry for entry in left if entry is not None]

    def lacks(self, worker: NodeLink) -> frozenset[str]:
        """Returns the revisions that a worker needs before the snapshot may be used."""
        return self._revisions - worker.held if self.steerable else frozenset()

    def to_stage(self, worker: NodeLink, unreadable: set[str]) -> list[str]:
        """Returns the revisions to offer a worker now, also those it may take by now."""
        if not self.steerable:
            return []
        fresh = time.monotonic() - RETRY_REFUSED_SECONDS
        refused = {rev for rev, refusal in worker.rejected.items() if refusal.at > fresh}
        return sorted(self._fitting.revisions - worker.held - refused - unreadable)

    def forget_refusals(self, worker: NodeLink) -> None:
        """Drops the refusals of revisions that nobody wants any more."""
        for revision in worker.rejected.keys() - self._fitting.revisions:
            del worker.rejected[revision]

    def to_discard(self, worker: NodeLink) -> set[str]:
        """Returns the revisions that no name points to any more."""
        return worker.held - self._fitting.revisions

    def is_ready(self, group: Group) -> bool:
        """Whether a group's engine may use the snapshot: all its workers hold all of it.

        With the kill switch on no vector is used, so nothing is waited for.
        """
        if self.desired.policy.kill_switch or not self.steerable:
            return True
        return group.is_complete and not any(self.lacks(worker) for worker in group.workers)

    def may_commit(self, link: NodeLink) -> bool:
        """Whether it is a node's turn: first engines whose workers are ready, then frontends."""
        group = self.instance.group_of(link)
        if link.is_engine and group is not None:
            return self.is_ready(group)
        engines = self.instance.engines
        return bool(engines) and all(engine.committed == self.key for engine in engines)

    def outcome(self, link: NodeLink) -> Outcome:
        """Returns how far a described node is from the plan."""
        if not link.is_armed and link.described is not None:
            return Outcome(public_pb2.NODE_STATE_DISARMED, link.described.disarmed_reason)
        if link.commit_refusal is not None:
            return Outcome(public_pb2.NODE_STATE_REJECTED, link.commit_refusal.message)
        if link.is_worker and (lacking := self.lacks(link)):
            return Outcome(public_pb2.NODE_STATE_RECONCILING, f"{len(lacking)} vectors to go")
        if link.is_admitting and link.committed != self.key:
            return Outcome(public_pb2.NODE_STATE_RECONCILING, self._why_not(link))
        if link.rejected:
            refusal = next(iter(link.rejected.values()))
            return Outcome(public_pb2.NODE_STATE_REJECTED, refusal.message)
        return Outcome(public_pb2.NODE_STATE_CONVERGED)

    def _why_not(self, link: NodeLink) -> str:
        group = self.instance.group_of(link)
        if group is not None and not group.is_complete:
            return f"{len(group.workers)} of its workers are known"
        return "its turn is to come" if not self.may_commit(link) else "is being committed"


def is_settled(link: NodeLink, outcome: Outcome, revision: str = "") -> bool:
    """Whether a node does what it can, and has not refused this revision.

    A worker that refused another one does: that one is left out of its engine's snapshot.
    """
    if outcome.state == public_pb2.NODE_STATE_REJECTED:
        return link.commit_refusal is None and revision not in link.rejected
    return outcome.state in _SETTLED


def outcomes(links: list[NodeLink], plans: dict[str, Plan]) -> list[tuple[NodeLink, Outcome]]:
    """Returns how far each node is. plans: by instance id."""
    return [(link, _outcome(link, plans)) for link in links]


def _outcome(link: NodeLink, plans: dict[str, Plan]) -> Outcome:
    if link.failures:
        return Outcome(public_pb2.NODE_STATE_UNREACHABLE, link.failure[:300])
    if link.described is None:
        return Outcome(public_pb2.NODE_STATE_RECONCILING, "was not described yet")
    if link.described.standalone:
        return Outcome(public_pb2.NODE_STATE_STANDALONE, "takes its vectors from its environment")
    return plans[link.described.instance_id].outcome(link)
