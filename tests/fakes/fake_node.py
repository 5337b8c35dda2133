"""A node without vLLM behind it, for fleets and faults that cannot be had for real.

It keeps the contract of hotwired.node.v1 (tests/contract runs against it), and can be told to
misbehave: to refuse, to be slow, to hang, to claim another generation.
"""

# ruff: noqa: N802, ANN001, ANN201 -- the methods are what gRPC calls

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from hotwired import errors
from hotwired.node.v1 import node_pb2, node_pb2_grpc
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.v1 import receipt_pb2
from hotwired.vector_file import check_fits, parse_canonical

ROLES = {
    "frontend": public_pb2.NODE_ROLE_FRONTEND,
    "engine": public_pb2.NODE_ROLE_ENGINE,
    "worker": public_pb2.NODE_ROLE_WORKER,
}


@dataclass
class FakeNode(node_pb2_grpc.NodeServiceServicer):
    """A scripted node. Set its fields at any time; `calls` records what was asked of it."""

    instance_id: str = "fake"
    roles: tuple[str, ...] = ("worker",)
    dp_rank: int = 0
    pp_rank: int = 0
    tp_rank: int = 0
    pp_size: int = 1
    tp_size: int = 1
    model: str = "fake/model"
    hidden_size: int = 8
    num_layers: int = 4
    dtype: str = "float32"
    boot_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    disarmed_reason: str = ""
    standalone: bool = False
    max_bytes: int = 1 << 30
    generation: int = 0
    snapshot: node_pb2.Snapshot | None = None
    in_use: set[str] = field(default_factory=set)
    held: dict[str, bytes] = field(default_factory=dict)
    refuse: dict[str, Callable[[], Exception]] = field(default_factory=dict)
    delay: dict[str, float] = field(default_factory=dict)
    receipts: list[receipt_pb2.Receipt] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    hung: threading.Event = field(default_factory=threading.Event)

    def _enter(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls.append(method)
        time.sleep(self.delay.get(method, 0.0))
        while self.hung.is_set() and context.is_active():
            time.sleep(0.02)
        if method in self.refuse:
            self._abort(context, self.refuse[method]())

    def _abort(self, context: grpc.ServicerContext, exc: Exception) -> None:
        status = errors.to_status(exc)
        context.set_trailing_metadata(((errors.DETAILS_KEY, status.SerializeToString()),))
        context.abort(errors.known(exc).code, status.message)

    def Describe(self, request, context):
        """As in node.proto."""
        self._enter("Describe", context)
        return node_pb2.DescribeResponse(
            boot_id=self.boot_id,
            instance_id=self.instance_id,
            roles=[ROLES[role] for role in self.roles],
            dp_rank=self.dp_rank,
            pp_rank=self.pp_rank,
            tp_rank=self.tp_rank,
            pp_size=self.pp_size,
            tp_size=self.tp_size,
            pid=os.getpid(),
            model=self.model,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            dtype=self.dtype,
            armed=not self.disarmed_reason,
            disarmed_reason=self.disarmed_reason,
            standalone=self.standalone,
            generation=self.generation,
            revisions=list(self.held),
        )

    def Stage(self, request_iterator: Iterator[node_pb2.StageRequest], context):
        """As in node.proto."""
        self._enter("Stage", context)
        try:
            return self._stage(request_iterator)
        except errors.HotwireError as exc:
            self._abort(context, exc)

    def _stage(self, messages: Iterator[node_pb2.StageRequest]) -> node_pb2.StageResponse:
        self._takes_orders("worker")
        if self.disarmed_reason:
            raise errors.NodeDisarmed(self.disarmed_reason)
        first = next(messages, None)
        if first is None or not first.HasField("header"):
            raise errors.UploadInvalid("no header")
        header = first.header
        if header.size_bytes > self.max_bytes:
            raise errors.VectorTooLarge("too large")
        if header.revision in self.held:
            return node_pb2.StageResponse(revision=header.revision, already_held=True)
        chunks = list(messages)
        if any(not m.HasField("chunk") or len(m.chunk) > 1 << 20 for m in chunks):
            raise errors.UploadInvalid("no chunk")
        body = b"".join(message.chunk for message in chunks)
        self._check(header, body)
        if not header.validate_only:
            self.held[header.revision] = body
        return node_pb2.StageResponse(revision=header.revision)

    def _check(self, header: node_pb2.StageHeader, body: bytes) -> None:
        if len(body) != header.size_bytes:
            raise errors.SizeMismatch("size")
        if hashlib.sha256(body).hexdigest() != header.revision:
            raise errors.DigestMismatch("digest")
        check_fits(
            parse_canonical(body),
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            dtype=self.dtype,
        )

    def Commit(self, request, context):
        """As in node.proto."""
        self._enter("Commit", context)
        try:
            self._takes_orders("engine", "frontend")
            if request.boot_id and request.boot_id != self.boot_id:
                raise errors.BootIdMismatch("boot id")
            if request.snapshot.generation < self.generation:
                raise errors.GenerationStale("stale")
        except errors.HotwireError as exc:
            self._abort(context, exc)
        self.snapshot = request.snapshot
        self.generation = request.snapshot.generation
        return node_pb2.CommitResponse(generation=self.generation)

    def Discard(self, request, context):
        """As in node.proto."""
        self._enter("Discard", context)
        try:
            self._takes_orders("worker")
        except errors.HotwireError as exc:
            self._abort(context, exc)
        gone = [revision for revision in set(request.revisions) if self.held.pop(revision, None)]
        return node_pb2.DiscardResponse(revisions=sorted(gone))

    def Report(self, request, context):
        """As in node.proto."""
        self._enter("Report", context)
        engine = node_pb2.EngineReport(
            generation=self.generation, revisions_in_use=sorted(self.in_use)
        )
        worker = node_pb2.WorkerReport(blob_bytes=sum(map(len, self.held.values())))
        return node_pb2.ReportResponse(
            engine=engine if "engine" in self.roles else None,
            worker=worker if "worker" in self.roles else None,
        )

    def GetReceipts(self, request, context):
        """As in node.proto."""
        self._enter("GetReceipts", context)
        if "engine" not in self.roles:
            self._abort(context, errors.RoleMissing("role"))
        mine = [r for r in self.receipts if r.request_id == request.request_id]
        return node_pb2.GetReceiptsResponse(receipts=mine)

    def _takes_orders(self, *roles: str) -> None:
        if self.standalone:
            raise errors.NodeStandalone("standalone")
        if not set(roles) & set(self.roles):
            raise errors.RoleMissing("role")


class FakeServer:
    """Serves a fake node on a socket, in this process."""

    def __init__(self, node: FakeNode, path: Path) -> None:
        self.node = node
        self.path = path
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=8),
            options=(("grpc.max_receive_message_length", 64 << 20),),
        )
        node_pb2_grpc.add_NodeServiceServicer_to_server(node, self._server)

    def start(self) -> None:
        """Binds the socket, making its folders."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()

    def stop(self) -> None:
        """Stops at once; the socket goes with the server."""
        self.node.hung.clear()
        self._server.stop(0).wait()
        self.path.unlink(missing_ok=True)
