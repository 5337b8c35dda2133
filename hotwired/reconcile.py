"""Brings every node to the desired state: reads what is, does the next thing, looks again.

Each link has at most one commit and one other task under way, so a node that hangs holds up only
itself, and a worker that is slow to take a vector not the kill switch. Nothing here remembers what
has happened: a step follows from what nodes hold and from what is desired.
"""

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Coroutine

from hotwired.errors import (
    BlobCorrupt,
    BootIdMismatch,
    HotwireError,
    NodeUnreachable,
    StoreUnavailable,
)
from hotwired.fleet import Fleet
from hotwired.log import get
from hotwired.metrics.counted import refused
from hotwired.node.v1 import node_pb2
from hotwired.node_link import NodeLink, Refusal, stage_seconds
from hotwired.plan import Outcome, Plan, outcomes
from hotwired.store import Store

SCAN_SECONDS = 0.25
DESCRIBE_SECONDS = 0.5
SLICE_SECONDS = 0.25
"""How long a node takes vectors before it is looked at again: a snapshot may be more urgent."""

COLLECT_SECONDS = 1.0
RETRY_COMMIT_SECONDS = 1.0

# The kinds of a link's tasks.
_COMMIT, _OTHER = "commit", "other"

_BOOT_SECONDS = 0.05
"""How long a node is left alone that was restarted since it was described."""

_Action = Coroutine[None, None, None]


class Reconciler:
    """The loop that carries what the store desires to the nodes of the fleet.

    overtake: called with a node's generation that is newer than ours, to make ours newer still.
    last_round: when a round last ended without failing, by time.monotonic().
    """

    def __init__(
        self, fleet: Fleet, store: Store, overtake: Callable[[str, int], Awaitable[None]]
    ) -> None:
        self._fleet = fleet
        self._store = store
        self._overtake = overtake
        self.last_round = time.monotonic()

    async def run(self, alive: Callable[[], None] = lambda: None) -> None:
        """Runs until cancelled. alive: called after each round that didn't fail."""
        scanned = 0.0
        while True:
            try:
                if time.monotonic() - scanned >= SCAN_SECONDS:
                    scanned = time.monotonic()
                    self._fleet.scan()
                self.step()
                self.last_round = time.monotonic()
                alive()
            except Exception:  # noqa: BLE001 -- without this loop, nothing would reach any node
                get().exception("reconciling failed")
            await self._fleet.changed.wait(SCAN_SECONDS)

    def plans(self) -> dict[str, Plan]:
        """Returns the plan of each instance, by its id, as of now."""
        return {
            instance.instance_id: Plan(instance, self._store.desired, self._store.unreadable)
            for instance in self._fleet.instances()
        }

    def outcomes(self) -> list[tuple[NodeLink, Outcome]]:
        """Returns how far each node is, in the order of their names."""
        return outcomes(self._fleet.ordered(), self.plans())

    def step(self) -> None:
        """Starts the next actions of each node that has none of their kind under way."""
        plans = self.plans()
        for link in self._fleet.links.values():
            if time.monotonic() >= link.retry_at:
                plan = plans.get(link.described.instance_id) if link.described else None
                self._step(link, plan)

    def _step(self, link: NodeLink, plan: Plan | None) -> None:
        orders = plan if link.takes_orders and not link.failures else None
        if _COMMIT not in link.tasks and orders is not None and self._needs_commit(link, orders):
            self._start(link, _COMMIT, self._commit(link, orders))
        if _OTHER not in link.tasks and (action := self._next(link, orders)) is not None:
            self._start(link, _OTHER, action)

    def _next(self, link: NodeLink, plan: Plan | None) -> _Action | None:
        if link.failures or link.described is None:
            return self._describe(link)
        if plan is not None:
            plan.forget_refusals(link)
            if link.is_worker and (revisions := plan.to_stage(link, self._store.unreadable)):
                return self._stage(link, revisions)
            if link.is_worker and self._may_collect(link, plan):
                return self._collect(link, plan)
        if time.monotonic() - link.described_at >= DESCRIBE_SECONDS:
            return self._describe(link)
        return None

    def _start(self, link: NodeLink, kind: str, action: _Action) -> None:
        # In a context of its own: what it logs is not part of the RPC that woke us.
        link.tasks[kind] = asyncio.get_running_loop().create_task(
            self._guarded(link, kind, action), context=contextvars.Context()
        )

    async def _guarded(self, link: NodeLink, kind: str, action: _Action) -> None:
        try:
            await action
        except NodeUnreachable as exc:
            get().debug("node call failed", node=link.name, reason=exc.reason, error=exc.message)
        except Exception:  # noqa: BLE001 -- one node's trouble must not stop the loop
            get().exception("reconciling failed", node=link.name)
            link.retry_at = time.monotonic() + 1.0
        finally:
            link.tasks.pop(kind, None)
            self._fleet.changed.fire()

    async def _describe(self, link: NodeLink) -> None:
        was = (link.failures > 0, link.boot_id)
        try:
            await link.describe()
        except NodeUnreachable as exc:
            if not was[0]:
                get().warning("node unreachable", node=link.name, error=exc.message[:300])
            raise
        if link.described is None:
            return
        if was != (False, link.boot_id):
            get().info("node described", node=link.name, **_summary(link.described, link.held))
        # So it is if our state was lost or is an older copy.
        if link.takes_orders and link.described.generation > self._store.desired.generation:
            await self._overtake(link.name, link.described.generation)

    def _needs_commit(self, link: NodeLink, plan: Plan) -> bool:
        if not link.is_admitting or link.committed == plan.key or not plan.may_commit(link):
            return False
        refusal = link.commit_refusal
        return refusal is None or time.monotonic() - refusal.at >= RETRY_COMMIT_SECONDS

    async def _commit(self, link: NodeLink, plan: Plan) -> None:
        try:
            await link.commit(plan.snapshot(), plan.key)
        except BootIdMismatch:
            link.described = None
            link.retry_at = time.monotonic() + _BOOT_SECONDS
        except NodeUnreachable:
            raise
        except HotwireError as exc:
            link.commit_refusal = Refusal(exc.reason, exc.message, time.monotonic())
            link.described_at = 0.0
            refused("snapshot", exc)
            get().warning(
                "node refused a snapshot", node=link.name, reason=exc.reason, error=exc.message
            )

    async def _stage(self, link: NodeLink, revisions: list[str]) -> None:
        end = time.monotonic() + SLICE_SECONDS
        for revision in revisions:
            if time.monotonic() > end:
                return
            await self._stage_one(link, revision)

    async def _stage_one(self, link: NodeLink, revision: str) -> None:
        try:
            data = await self._store.read_blob(revision)
            await link.stage(revision, data, stage_seconds(len(data)))
        except BlobCorrupt:
            pass  # unreadable from now on, which the next plan knows
        except (NodeUnreachable, StoreUnavailable):
            raise
        except HotwireError as exc:
            link.rejected[revision] = Refusal(exc.reason, exc.message, time.monotonic())
            refused("vector", exc)
            get().warning(
                "node refused a vector",
                node=link.name,
                blob=revision,
                reason=exc.reason,
                error=exc.message,
            )

    def _may_collect(self, link: NodeLink, plan: Plan) -> bool:
        """Whether the engine uses the newest snapshot, so that none admits what it has not."""
        group = plan.instance.group_of(link)
        engine = group.engine if group is not None else None
        return (
            engine is not None
            and not engine.failures
            and engine.committed == plan.key
            and time.monotonic() >= link.collect_at
            and bool(plan.to_discard(link) - self._store.pending.keys())
        )

    async def _collect(self, link: NodeLink, plan: Plan) -> None:
        link.collect_at = time.monotonic() + COLLECT_SECONDS
        group = plan.instance.group_of(link)
        if group is None or group.engine is None:
            return
        report = (await group.engine.fetch_report()).engine
        if report.generation < plan.desired.generation:
            return
        used = set(report.revisions_in_use)

        def doomed() -> set[str]:
            if self._store.desired is not plan.desired:
                return set()
            return plan.to_discard(link) - self._store.pending.keys() - used

        await link.discard(doomed)


def _summary(found: node_pb2.DescribeResponse, held: set[str]) -> dict[str, object]:
    return {
        "boot_id": found.boot_id,
        "model": found.model,
        "armed": found.armed,
        "disarmed_reason": found.disarmed_reason,
        "revisions": len(held),
        "node_generation": found.generation,
    }
