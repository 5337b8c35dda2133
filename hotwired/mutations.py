"""Everything that changes the desired state, one change at a time, in two phases.

Stage: every worker that must have a new vector gets it and checks it; one refusal and nothing is
changed anywhere. Store: blob, row, generation. Then the reconciler commits, and the caller waits.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from hotwired import audits, expiry, names, policy, tracing, vectors
from hotwired.errors import MutationTimeout, QuotaExceeded
from hotwired.fleet import Fleet
from hotwired.log import get
from hotwired.metrics.counted import changes
from hotwired.node_link import NodeLink
from hotwired.plan import Outcome, is_settled
from hotwired.reconcile import Reconciler
from hotwired.registry import Audit, Change
from hotwired.snapshot import norms_misfit
from hotwired.staging import Caller, answers, stage_everywhere, targets
from hotwired.store import Store
from hotwired.upload import Upload
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.v1 import policy_pb2, vector_pb2
from hotwired.v1 import steering_service_pb2 as pb

# A node's generation beyond this is no generation but a fault; the database ends at 2**63.
_MAX_OVERTAKE = 2**62
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Result:
    """What a change came to: how far each node is, and whether all are there."""

    generation: int
    converged: bool
    nodes: list[tuple[NodeLink, Outcome]]


@dataclass(frozen=True, slots=True)
class Registered:
    """A vector as it is registered now; whether that changed nothing; what it came to."""

    vector: vector_pb2.Vector
    unchanged: bool
    result: Result


class Mutations:
    """The one writer of the store."""

    def __init__(self, fleet: Fleet, store: Store) -> None:
        self._fleet = fleet
        self._store = store
        self._lock = asyncio.Lock()
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.reconciler = Reconciler(fleet, store, self.overtake)

    def stop(self) -> None:
        """Answers all who wait for nodes: their changes are stored, and will be carried out."""
        self._stopping = True
        self._fleet.changed.fire()

    async def register(self, upload: Upload, caller: Caller) -> Registered:
        """Registers a vector.

        Raises VectorShapeMismatch, VectorNotFinite, VectorNotFound, CanaryInvalid,
        ExpireTimeInvalid, QuotaExceeded, NodeRejected, MutationTimeout, StoreFull or
        StoreUnavailable; nothing is changed then.
        """
        upload = self._for_name(upload, caller)
        links = targets(upload, self._fleet)
        revision = upload.vector.revision
        with self._store.pended(revision):
            try:
                # Not under the lock: a worker that hangs must not keep others from the kill switch.
                if not self._is_known(upload):
                    await self._prepare(upload, links, caller)
                vector, unchanged = await self._finish(
                    lambda: self._register(upload, caller), caller
                )
            except asyncio.CancelledError:
                self._background(self._drop_blob(revision))
                raise
            except Exception:
                await self._drop_blob(revision)
                raise
        if upload.validate_only:
            return Registered(vector, unchanged, self._result())
        return Registered(vector, unchanged, await self._converge(caller, revision))

    async def update(self, request: pb.UpdateVectorRequest, caller: Caller) -> Registered:
        """Changes a vector's flags or its canary.

        Raises VectorNotFound, RevisionMismatch, FieldMaskInvalid, ExpireTimeInvalid, CanaryInvalid,
        CanaryNotFound, MutationTimeout or StoreUnavailable.
        """
        vector, unchanged = await self._finish(lambda: self._update(request, caller), caller)
        if request.validate_only:
            return Registered(vector, unchanged, self._result())
        return Registered(vector, unchanged, await self._converge(caller))

    async def delete(
        self, request: pb.DeleteVectorRequest, caller: Caller
    ) -> tuple[vector_pb2.Vector, Result]:
        """Deletes a name and returns the vector as it was.

        Raises VectorNotFound, RevisionMismatch, MutationTimeout or StoreUnavailable.
        """
        vector = await self._finish(lambda: self._delete(request, caller), caller)
        return vector, await self._converge(caller)

    async def set_policy(
        self, request: pb.SetPolicyRequest, caller: Caller
    ) -> tuple[policy_pb2.Policy, Result]:
        """Changes the policy and returns it.

        Raises PolicyInvalid, FieldMaskInvalid, EtagMismatch, ReferenceNormsMismatch,
        MutationTimeout or StoreUnavailable.
        """
        found = await self._finish(lambda: self._set_policy(request, caller), caller)
        if request.validate_only:
            return found, self._result()
        return found, await self._converge(caller)

    async def overtake(self, node: str, generation: int) -> None:
        """Makes our generation newer than a node's, so that it takes our snapshots again."""
        # To its end, should the node go meanwhile: what is stored must be what is desired.
        await asyncio.shield(self._background(self._overtake(node, generation)))

    async def _overtake(self, node: str, generation: int) -> None:
        async with self._lock:
            desired = self._store.desired
            if not desired.generation < generation < _MAX_OVERTAKE:
                return
            get().warning("a node was ahead of us", node=node, node_generation=generation)
            audit = Audit("overtake", node, old=str(desired.generation), new=str(generation + 1))
            await self._apply(Change(generation + 1, audit))

    async def _finish(self, work: Callable[[], Coroutine[Any, Any, _T]], caller: Caller) -> _T:
        """Does a change under the lock, to its end if it was begun while the caller was there.

        Raises MutationTimeout if the lock can't be had in time.
        """
        gone = False

        async def locked() -> _T:
            async with self._locked(caller):
                if gone:
                    raise MutationTimeout("the caller went away before anything was changed")
                return await work()

        task = asyncio.create_task(locked())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            gone = True
            # Nobody is left to hear of an error.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    @asynccontextmanager
    async def _locked(self, caller: Caller) -> AsyncIterator[None]:
        try:
            await asyncio.wait_for(self._lock.acquire(), caller.seconds_left)
        except TimeoutError:
            raise MutationTimeout("other changes took all of the call's time") from None
        try:
            yield
        finally:
            self._lock.release()

    def _is_known(self, upload: Upload) -> bool:
        """Whether the name has this revision, with the same model, metadata and dtype, already."""
        return vectors.says(self._current(upload.vector.name), upload)

    def _current(self, name: str) -> vector_pb2.Vector | None:
        entry = self._store.desired.entries.get(name)
        return entry.vector if entry is not None else None

    def _for_name(self, upload: Upload, caller: Caller) -> Upload:
        """Returns an upload as its name can have it, as of now.

        Raises VectorNotFound, CanaryInvalid, VectorShapeMismatch, ExpireTimeInvalid or
        QuotaExceeded.
        """
        if upload.canary_percent is not None:
            upload = vectors.for_name(upload, self._existing(upload.vector.name))
        current = self._current(upload.vector.name)
        if current is not None and upload.expire_time is None:
            expiry.check_ahead(current, time.time())
        if current is None:
            self._check_quota(caller)
        return upload

    def _check_quota(self, caller: Caller) -> None:
        """Raises QuotaExceeded if a caller owns as many names as it may."""
        owned = sum(e.vector.owner == caller.name for e in self._store.desired.entries.values())
        if caller.max_vectors and owned >= caller.max_vectors:
            raise QuotaExceeded(
                f"{caller.name} has {owned} vectors, as many as it may",
                metadata={
                    "caller": caller.name,
                    "quota": "vectors",
                    "limit": str(caller.max_vectors),
                },
            )

    def _existing(self, name: str) -> vector_pb2.Vector:
        if (vector := self._current(name)) is None:
            raise names.not_found(name, self._store.desired.entries)
        return vector

    async def _prepare(self, upload: Upload, links: list[NodeLink], caller: Caller) -> None:
        """Stages a vector and, meanwhile, writes its blob. Raises what failed, a refusal first."""
        steps = [stage_everywhere(upload, links, caller, self._store)]
        if not upload.validate_only:
            steps.append(self._store.write_blob(upload.vector.revision, upload.canonical))
        for outcome in await asyncio.gather(*steps, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _drop_blob(self, revision: str) -> None:
        """Removes a blob that was written for a registration that failed, unless it is wanted."""
        async with self._lock:
            await self._store.drop_blob(revision)

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _register(self, upload: Upload, caller: Caller) -> tuple[vector_pb2.Vector, bool]:
        # The name may be another than it was when the upload was checked.
        upload, generation = self._for_name(upload, caller), self._store.desired.generation + 1
        current, revision = self._current(upload.vector.name), upload.vector.revision
        vector = vectors.registered(upload, current, generation, time.time(), caller.name)
        unchanged = vector == current
        if upload.validate_only:
            return vector, unchanged
        if unchanged:
            # It may have been found damaged: this puts it back.
            await self._store.write_blob(revision, upload.canonical)
        else:
            audit = audits.registration(upload, vector, current, caller)
            change = Change(generation, audit, put=vector)
            await self._apply(change, (revision, upload.canonical))
        return vector, unchanged

    async def _update(
        self, request: pb.UpdateVectorRequest, caller: Caller
    ) -> tuple[vector_pb2.Vector, bool]:
        current, generation = self._existing(request.name), self._store.desired.generation + 1
        vector = vectors.updated(current, request, generation, time.time())
        unchanged = vector == current
        if not (unchanged or request.validate_only):
            audit = audits.update(vector, current, caller)
            await self._apply(Change(generation, audit, put=vector))
        return vector, unchanged

    async def _delete(self, request: pb.DeleteVectorRequest, caller: Caller) -> vector_pb2.Vector:
        desired = self._store.desired
        vector = self._existing(request.name)
        if request.revision and request.revision != vector.revision:
            raise vectors.mismatch(vector.name, request.revision, vector.revision)
        audit = audits.deletion(vector, caller)
        await self._apply(Change(desired.generation + 1, audit, delete=vector.name))
        return vector

    async def _set_policy(self, request: pb.SetPolicyRequest, caller: Caller) -> policy_pb2.Policy:
        desired = self._store.desired
        wanted = policy.updated(desired.policy, request)
        if wanted.default_spec != desired.policy.default_spec:
            # It was judged when it came: a name deleted since must not keep the kill switch back.
            policy.check_default(wanted, desired.entries)
        if policy.same(wanted, desired.policy):
            return desired.policy
        self._check_norms(wanted, desired.policy)
        wanted = policy.stamped(wanted, desired.generation + 1, time.time())
        if not request.validate_only:
            audit = audits.policy_change(desired.policy, wanted, caller)
            await self._apply(Change(desired.generation + 1, audit, policy=wanted))
        return wanted

    def _check_norms(self, wanted: policy_pb2.Policy, current: policy_pb2.Policy) -> None:
        """Raises ReferenceNormsMismatch if new reference norms are of no model that is served."""
        if policy.same_norms(wanted, current):
            # They were judged when they came: now they must not keep anyone from the kill switch.
            return
        for instance in self._fleet.instances():
            facts = instance.facts if answers(instance) else None
            if facts is not None and (error := norms_misfit(wanted, facts)) is not None:
                raise error

    async def _apply(self, change: Change, blob: tuple[str, bytes] | None = None) -> None:
        tracing.remember(change.generation)
        await self._store.apply(change, blob)
        audit = change.audit
        changes.labels(audit.action).inc()
        get().info(
            "audit",
            action=audit.action,
            peer=audit.peer,
            caller=audit.caller,
            vector=audit.vector,
            old=audit.old,
            new=audit.new,
            generation=change.generation,
            **audit.detail,
        )
        self.reconciler.step()

    async def _converge(self, caller: Caller, revision: str = "") -> Result:
        """Waits until every node is where it can be, or the caller's time is up.

        revision: the one registered, which a node must not have refused meanwhile.
        """
        while True:
            result = self._result(revision)
            waiting = any(
                not is_settled(link, outcome) and outcome.state != public_pb2.NODE_STATE_REJECTED
                for link, outcome in result.nodes
            )
            if not waiting or not caller.seconds_left or self._stopping:
                return result
            await self._fleet.changed.wait(caller.seconds_left)

    def _result(self, revision: str = "") -> Result:
        nodes = self.reconciler.outcomes()
        converged = all(is_settled(link, outcome, revision) for link, outcome in nodes)
        return Result(self._store.desired.generation, converged, nodes)
