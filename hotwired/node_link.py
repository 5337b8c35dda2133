"""The daemon's link to one node: its calls, and what is known of it. Decides nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from hotwired import tracing
from hotwired.errors import HotwireError, NodeUnreachable, RemoteError
from hotwired.node.v1 import node_pb2, node_pb2_grpc
from hotwired.rpc_errors import from_rpc_error
from hotwired.run_dir import target_of
from hotwired.v1 import node_pb2 as public_pb2

if TYPE_CHECKING:
    from hotwired.node.v1.node_pb2_grpc import NodeServiceAsyncStub

CHUNK = 1 << 20
CALL_SECONDS = 2.0
"""The time a node has for a call that moves no vector."""

_SERVICE = node_pb2.DESCRIPTOR.services_by_name["NodeService"].full_name
_STAGE, _COMMIT = f"{_SERVICE}/Stage", f"{_SERVICE}/Commit"
_LONGEST_BACKOFF = 2.0
_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", -1),
    # The address of a restarted node is the same: what is known of the old one must not matter.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)

_Response = TypeVar("_Response")


def stage_seconds(size: int) -> float:
    """Returns the time that a worker has to take and check so many bytes."""
    return 10.0 + size / (10 << 20)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node refused something, and when (monotonic seconds)."""

    reason: str
    message: str
    at: float


class NodeLink:
    """The link to the process behind one socket, from its first sight to its end.

    name: "<instance_id>/<role>-<dp>-<pp>-<tp>". described: its last answer, None before the
    first; is_worker, is_engine, is_frontend: the roles it stated. held: the revisions it holds, if
    a worker. committed: the key of the snapshot that this daemon put in force there. rejected: the
    revisions it refused. commit_refusal: why it refused the last snapshot. failure: why the last
    call failed, empty if it didn't. retry_at, collect_at: the monotonic times before which it is
    not called again, and not asked to discard. tasks: what is under way with it, by kind.
    """

    def __init__(self, path: Path, inode: int) -> None:
        self.path = path
        self.inode = inode
        self.name = f"{path.parent.name}/{path.stem}"
        self.described: node_pb2.DescribeResponse | None = None
        self.is_worker = self.is_engine = self.is_frontend = False
        self.described_at = 0.0
        self.held: set[str] = set()
        self.committed: object = None
        self.rejected: dict[str, Refusal] = {}
        self.commit_refusal: Refusal | None = None
        self.failure = ""
        self.failures = 0
        self.failing_since = 0.0
        self.retry_at = 0.0
        self.collect_at = 0.0
        self.last_seen = 0.0
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.report = node_pb2.ReportResponse()
        # One call at a time changes or reads what the node holds, so that an answer is never
        # older than what we already know. A commit does neither: no stage may hold up the switch.
        self._lock = asyncio.Lock()
        self._channel = grpc.aio.insecure_channel(target_of(path), options=_OPTIONS)
        self._stub: NodeServiceAsyncStub = node_pb2_grpc.NodeServiceStub(self._channel)

    @property
    def boot_id(self) -> str:
        """Its process's, as it said last; empty as long as it was not described."""
        return self.described.boot_id if self.described is not None else ""

    @property
    def is_admitting(self) -> bool:
        """Whether it uses snapshots."""
        return self.is_engine or self.is_frontend

    @property
    def takes_orders(self) -> bool:
        """Whether it was described, and is not standalone."""
        return self.described is not None and not self.described.standalone

    @property
    def is_armed(self) -> bool:
        """Whether it says that it can steer."""
        return self.described is not None and self.described.armed

    async def describe(self) -> None:
        """Asks who it is and what it holds. Raises HotwireError."""
        async with self._lock:
            call = self._stub.Describe(node_pb2.DescribeRequest(), timeout=CALL_SECONDS)
            found = await self._spoken(call)
            if self.described is None or self.boot_id != found.boot_id:
                self._forget()
            else:
                # A commit meanwhile may know better: within a boot, generations only grow.
                found.generation = max(found.generation, self.described.generation)
            self.held = set(found.revisions)
            del found.revisions[:]
            self.described = found
            self.is_worker = public_pb2.NODE_ROLE_WORKER in found.roles
            self.is_engine = public_pb2.NODE_ROLE_ENGINE in found.roles
            self.is_frontend = public_pb2.NODE_ROLE_FRONTEND in found.roles
            self.described_at = time.monotonic()

    async def stage(
        self, revision: str, data: bytes, seconds: float, *, validate_only: bool = False
    ) -> bool:
        """Gives a worker a revision; returns whether it held it. Raises HotwireError."""
        end = time.monotonic() + seconds
        async with self._locked(seconds):
            messages = _stage_messages(revision, data, validate_only=validate_only)
            left = max(0.001, end - time.monotonic())
            with tracing.call(_STAGE, self.name) as metadata:
                call = self._stub.Stage(messages, timeout=left, metadata=metadata)
                held = (await self._answer(call)).already_held
            if not validate_only:
                self.held.add(revision)
                self.rejected.pop(revision, None)
            return held

    async def commit(self, snapshot: node_pb2.Snapshot, key: object) -> None:
        """Puts a snapshot in force. key: what `committed` is then. Raises HotwireError."""
        if self.described is None:
            raise NodeUnreachable(f"{self.name} was not described yet")
        boot_id = self.boot_id
        request = node_pb2.CommitRequest(snapshot=snapshot, boot_id=boot_id)
        cause = tracing.cause_of(snapshot.generation)
        with tracing.call(_COMMIT, self.name, cause) as metadata:
            call = self._stub.Commit(request, timeout=CALL_SECONDS, metadata=metadata)
            answer = await self._answer(call)
        if self.boot_id == boot_id:
            self.described.generation = answer.generation
            self.committed = key
            self.commit_refusal = None

    async def discard(self, doomed: Callable[[], Iterable[str]]) -> None:
        """Lets a worker forget revisions. Raises HotwireError.

        doomed: names them at the moment of the call, when no stage can be under way.
        """
        async with self._lock:
            revisions = list(doomed())
            if revisions:
                request = node_pb2.DiscardRequest(revisions=revisions)
                # First, so that no snapshot counts on what is about to go.
                self.held.difference_update(revisions)
                await self._answer(self._stub.Discard(request, timeout=CALL_SECONDS))

    async def fetch_report(self, seconds: float = CALL_SECONDS) -> node_pb2.ReportResponse:
        """Asks for the counters and returns them. Raises HotwireError."""
        call = self._stub.Report(node_pb2.ReportRequest(), timeout=seconds)
        self.report = await self._answer(call)
        return self.report

    async def fetch_receipts(
        self, request_id: str, seconds: float = CALL_SECONDS
    ) -> node_pb2.GetReceiptsResponse:
        """Asks an engine what came of a request. Raises HotwireError."""
        request = node_pb2.GetReceiptsRequest(request_id=request_id)
        return await self._answer(self._stub.GetReceipts(request, timeout=seconds))

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()

    @asynccontextmanager
    async def _locked(self, seconds: float) -> AsyncIterator[None]:
        try:
            await asyncio.wait_for(self._lock.acquire(), seconds)
        except TimeoutError:
            raise NodeUnreachable(f"{self.name} is busy with another call") from None
        try:
            yield
        finally:
            self._lock.release()

    async def _spoken(self, call: Awaitable[_Response]) -> _Response:
        """Answers as _answer, but what a node can't refuse is no refusal: it isn't one of ours."""
        try:
            return await self._answer(call)
        except NodeUnreachable:
            raise
        except HotwireError as exc:
            error = NodeUnreachable(f"{self.name} does not answer as a node: {exc.message}")
            self._failed(error)
            raise error from exc

    async def _answer(self, call: Awaitable[_Response]) -> _Response:
        try:
            answer = await call
        except grpc.RpcError as exc:
            error = from_rpc_error(exc)
            if isinstance(error, NodeUnreachable):
                self._failed(error)
            raise error from exc
        if answer is None:  # so gRPC hands on what it can't decode
            raise RemoteError("its answer is no message", grpc.StatusCode.INTERNAL, "INTERNAL", {})
        self.failure, self.failures = "", 0
        self.last_seen = time.time()
        return answer

    def _failed(self, error: HotwireError) -> None:
        if not self.failures:
            self.failing_since = time.monotonic()
        self.failures += 1
        self.failure = error.message
        self.retry_at = time.monotonic() + min(_LONGEST_BACKOFF, 0.1 * 2.0**self.failures)

    def _forget(self) -> None:
        self.committed = None
        self.commit_refusal = None
        self.rejected.clear()
        self.report = node_pb2.ReportResponse()


async def _stage_messages(
    revision: str, data: bytes, *, validate_only: bool
) -> AsyncIterator[node_pb2.StageRequest]:
    header = node_pb2.StageHeader(
        revision=revision, size_bytes=len(data), validate_only=validate_only
    )
    yield node_pb2.StageRequest(header=header)
    for at in range(0, len(data), CHUNK):
        yield node_pb2.StageRequest(chunk=data[at : at + CHUNK])
