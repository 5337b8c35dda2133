"""Serves hotwired.node.v1 on this process's own socket: who we are, stage, commit, report.

Synchronous gRPC, since vLLM's processes have event loops of their own. Nothing here touches a
device: vectors are kept in host memory, snapshots are handed to the holder.
"""

# ruff: noqa: ARG002, N802 -- the methods are called and named as gRPC has it

import functools
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc

from hotwire_plugin.blobs import BlobStore
from hotwire_plugin.log import named
from hotwire_plugin.snapshot import SnapshotHolder, snapshot_from_proto
from hotwire_plugin.tracing import continued
from hotwired.decoding import TRANSPORT_FACTOR, checked, undecoded
from hotwired.errors import (
    DETAILS_KEY,
    BootIdMismatch,
    NodeDisarmed,
    NodeStandalone,
    RequestInvalid,
    RoleMissing,
    SizeMismatch,
    UploadInvalid,
    VectorTooLarge,
    known,
    shown,
    to_status,
)
from hotwired.node.v1 import node_pb2, node_pb2_grpc
from hotwired.run_dir import (
    check_socket,
    check_socket_path,
    clear_stale,
    make_socket_folders,
    socket_umask,
    target_of,
)
from hotwired.v1 import node_pb2 as public_pb2

MAX_MESSAGE = 64 << 20
"""The bytes of a message: a snapshot of many vectors is one message."""

MAX_CHUNK = 1 << 20

_SERVICE = node_pb2.DESCRIPTOR.services_by_name["NodeService"].full_name
_ROLES = {
    "frontend": public_pb2.NODE_ROLE_FRONTEND,
    "engine": public_pb2.NODE_ROLE_ENGINE,
    "worker": public_pb2.NODE_ROLE_WORKER,
}
_OPTIONS = (
    ("grpc.max_receive_message_length", TRANSPORT_FACTOR * MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Node:
    """What this process offers. Roles and their parts are added as the process takes them up.

    roles: any of "frontend", "engine", "worker". blobs: what a worker keeps. holder: the snapshot
    of an engine or a frontend. engine_report, worker_report: the counters of a role. receipts: what
    an engine keeps of a request, by its id. sites: where in a block it steers. disarmed_reason: why
    it can't; empty if it can. standalone: whether it takes nothing from a daemon. The ranks, sizes
    and names are those of DescribeResponse.
    """

    instance_id: str
    dp_rank: int = 0
    pp_rank: int = 0
    tp_rank: int = 0
    pp_size: int = 1
    tp_size: int = 1
    model: str = ""
    hidden_size: int = 0
    num_layers: int = 0
    dtype: str = ""
    vllm_version: str = ""
    plugin_version: str = ""
    boot_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    roles: set[str] = field(default_factory=set)
    blobs: BlobStore | None = None
    holder: SnapshotHolder | None = None
    engine_report: Callable[[], node_pb2.EngineReport] | None = None
    worker_report: Callable[[], node_pb2.WorkerReport] | None = None
    receipts: Callable[[str], node_pb2.GetReceiptsResponse] | None = None
    sites: tuple[str, ...] = ()
    disarmed_reason: str = ""
    standalone: bool = False

    @property
    def admitting(self) -> SnapshotHolder | None:
        """The holder, if the process has a role that uses a snapshot."""
        return self.holder if self.roles & {"engine", "frontend"} else None


_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Method = Callable[["NodeService", _Request, grpc.ServicerContext], _Response]


def _rpc(method: _Method[_Request, _Response]) -> _Method[_Request, _Response]:
    """Makes every failure of a method a status with an ErrorInfo."""

    @functools.wraps(method)
    def wrapped(self: "NodeService", request: _Request, context: grpc.ServicerContext) -> _Response:
        try:
            with continued(f"{_SERVICE}/{method.__name__}", context.invocation_metadata()):
                return method(self, checked(request), context)
        except grpc.RpcError:
            raise  # the caller went away in the middle of its messages
        except Exception as exc:
            error = known(exc)
            if error is not exc:
                failed = named("call failed", method=method.__name__)
                logger.exception("%s failed", method.__name__, extra=failed)
            context.set_trailing_metadata(((DETAILS_KEY, to_status(error).SerializeToString()),))
            context.abort(error.code, error.message[:1000])
            raise

    return wrapped


class NodeService(node_pb2_grpc.NodeServiceServicer):
    """The service of one node; see node.proto for what each method promises."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @_rpc
    def Describe(
        self, request: node_pb2.DescribeRequest, context: grpc.ServicerContext
    ) -> node_pb2.DescribeResponse:
        node = self._node
        return node_pb2.DescribeResponse(
            boot_id=node.boot_id,
            instance_id=node.instance_id,
            roles=[_ROLES[role] for role in sorted(node.roles)],
            dp_rank=node.dp_rank,
            pp_rank=node.pp_rank,
            tp_rank=node.tp_rank,
            pp_size=node.pp_size,
            tp_size=node.tp_size,
            pid=os.getpid(),
            model=node.model,
            hidden_size=node.hidden_size,
            num_layers=node.num_layers,
            dtype=node.dtype,
            vllm_version=node.vllm_version,
            plugin_version=node.plugin_version,
            armed=not node.disarmed_reason,
            disarmed_reason=node.disarmed_reason,
            sites=() if node.disarmed_reason else node.sites,
            standalone=node.standalone,
            generation=node.admitting.generation if node.admitting else 0,
            revisions=node.blobs.revisions() if node.blobs else (),
        )

    @_rpc
    def Stage(
        self, request_iterator: Iterator[node_pb2.StageRequest], context: grpc.ServicerContext
    ) -> node_pb2.StageResponse:
        blobs = self._writable_blobs()
        if self._node.disarmed_reason:
            raise NodeDisarmed(self._node.disarmed_reason)
        messages = map(checked, request_iterator)
        header = _header(messages, blobs.max_bytes)
        held = blobs.holds(header.revision) or blobs.stage(
            header.revision,
            _body(messages, header.size_bytes),
            validate_only=header.validate_only,
        )
        return node_pb2.StageResponse(revision=header.revision, already_held=held)

    @_rpc
    def Commit(
        self, request: node_pb2.CommitRequest, context: grpc.ServicerContext
    ) -> node_pb2.CommitResponse:
        node = self._node
        self._check_takes_orders()
        if request.boot_id and request.boot_id != node.boot_id:
            raise BootIdMismatch(
                "the process was restarted since it was described",
                metadata={"expected": request.boot_id, "actual": node.boot_id},
            )
        if node.admitting is None:
            raise RoleMissing("the process is neither an engine nor a frontend")
        try:
            snapshot = snapshot_from_proto(request.snapshot, node.admitting.current.vectors)
        except ValueError as exc:
            raise RequestInvalid(f"the snapshot is malformed: {shown(str(exc))}") from exc
        node.admitting.commit(snapshot)
        return node_pb2.CommitResponse(generation=snapshot.generation)

    @_rpc
    def Discard(
        self, request: node_pb2.DiscardRequest, context: grpc.ServicerContext
    ) -> node_pb2.DiscardResponse:
        gone = self._writable_blobs().discard(request.revisions)
        return node_pb2.DiscardResponse(revisions=gone)

    @_rpc
    def Report(
        self, request: node_pb2.ReportRequest, context: grpc.ServicerContext
    ) -> node_pb2.ReportResponse:
        node = self._node
        return node_pb2.ReportResponse(
            engine=node.engine_report() if node.engine_report else None,
            worker=node.worker_report() if node.worker_report else None,
        )

    @_rpc
    def GetReceipts(
        self, request: node_pb2.GetReceiptsRequest, context: grpc.ServicerContext
    ) -> node_pb2.GetReceiptsResponse:
        if self._node.receipts is None:
            raise RoleMissing("the process is no engine")
        return self._node.receipts(request.request_id)

    def _check_takes_orders(self) -> None:
        if self._node.standalone:
            raise NodeStandalone("the process took its vectors from its environment")

    def _writable_blobs(self) -> BlobStore:
        self._check_takes_orders()
        if self._node.blobs is None:
            raise RoleMissing("the process is no worker")
        return self._node.blobs


def _header(messages: Iterator[node_pb2.StageRequest], limit: int) -> node_pb2.StageHeader:
    first = next(messages, None)
    if first is None or first.WhichOneof("payload") != "header":
        raise UploadInvalid("the first message is not a header")
    if first.header.size_bytes > limit:
        raise VectorTooLarge(
            f"{first.header.size_bytes} bytes are over the limit of {limit}",
            metadata={"bytes": str(first.header.size_bytes), "limit": str(limit)},
        )
    return first.header


def _body(messages: Iterator[node_pb2.StageRequest], size: int) -> bytes:
    body = bytearray()
    for message in messages:
        if message.WhichOneof("payload") != "chunk" or len(message.chunk) > MAX_CHUNK:
            raise UploadInvalid(f"a message after the first is no chunk of up to {MAX_CHUNK} bytes")
        body += message.chunk
        if len(body) > size:
            break
    if len(body) != size:
        raise SizeMismatch(
            f"{len(body)} bytes came of {size}",
            metadata={"expected": str(size), "actual": str(len(body))},
        )
    return bytes(body)


class _Decoding(grpc.ServerInterceptor):
    """Lets methods refuse what is no message, or too large a one, with a reason."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        decode = undecoded(handler.request_deserializer, MAX_MESSAGE)
        return handler._replace(request_deserializer=decode)


class NodeServer:
    """The server of one node on one Unix socket, mode 0660 in a directory of mode 0750."""

    def __init__(self, node: Node, socket_path: Path) -> None:
        self._path = socket_path
        self._inode = 0
        pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="hotwire-node")
        self._server = grpc.server(pool, interceptors=[_Decoding()], options=_OPTIONS)
        node_pb2_grpc.add_NodeServiceServicer_to_server(NodeService(node), self._server)

    def start(self) -> None:
        """Listens. Raises SocketInvalid, SocketInUse, DirectoryUnsafe or OSError.

        A socket that nobody listens on is replaced; a live one or anything else is not.
        """
        check_socket_path(self._path)
        make_socket_folders(self._path)
        clear_stale(self._path)
        with socket_umask():
            self._server.add_insecure_port(target_of(self._path))
        check_socket(self._path)
        self._inode = self._path.lstat().st_ino
        self._server.start()

    def stop(self, grace: float = 1.0) -> None:
        """Stops within `grace` seconds and removes the socket, unless it is another's by now."""
        self._server.stop(grace).wait()
        try:
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()
        except FileNotFoundError:
            pass
