"""Daemons for the clients' tests: a small stand-in, and the true one as a process.

The stand-in serves the same API over a real socket, with its state in a dict. It keeps what the
proto promises of names, revisions, pages, masks and etags, and can be told to do what a real
daemon does rarely: stay unconverged, fail a call, or be late.
"""

# ruff: noqa: N802 - the methods are called as the proto calls them

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self
from urllib.parse import quote

import grpc
import numpy as np
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from safetensors.numpy import save_file

from hotwire_client import Client
from hotwired import errors, expiry, names, vector_file, vectors
from hotwired.upload import Upload, check_percent
from hotwired.v1 import steering_service_pb2 as api
from hotwired.v1 import steering_service_pb2_grpc as api_grpc
from hotwired.v1.node_pb2 import NODE_STATE_CONVERGED, Node, NodeOutcome
from hotwired.v1.policy_pb2 import Policy
from hotwired.v1.receipt_pb2 import Receipt
from hotwired.v1.stats_pb2 import EngineStats, Stats
from hotwired.v1.vector_pb2 import Vector


@dataclass
class Fault:
    """What the next call of a method comes to: a refusal, a delay, or one after the other."""

    code: grpc.StatusCode | None = None
    reason: str = ""
    message: str = ""
    violations: tuple[tuple[str, str], ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass
class State:
    """What the daemon has and what it is told to do."""

    vectors: dict[str, Vector] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    policy: Policy = field(default_factory=lambda: Policy(etag="1"))
    generation: int = 1
    nodes: list[Node] = field(default_factory=list)
    engines: list[EngineStats] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    converged: bool = True
    faults: dict[str, Fault] = field(default_factory=dict)
    calls: list[tuple[str, Any, float]] = field(default_factory=list)

    def outcomes(self) -> list[NodeOutcome]:
        """Every node's state as an outcome."""
        return [NodeOutcome(node=n.name, state=n.state, detail=n.detail) for n in self.nodes]


class FakeDaemon(api_grpc.SteeringServiceServicer):
    """A server on a Unix socket; `state` may be looked at and changed at any time."""

    def __init__(self, socket: Path) -> None:
        self.state = State()
        self.socket = socket
        self.address = f"unix:{socket}"
        self.health = health.HealthServicer()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        api_grpc.add_SteeringServiceServicer_to_server(self, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self._server.add_insecure_port("unix:" + quote(str(socket)))

    def start(self) -> Self:
        """Starts serving."""
        self.health.set("", health_pb2.HealthCheckResponse.SERVING)
        self._server.start()
        return self

    def stop(self) -> None:
        """Stops at once."""
        self._server.stop(None).wait()

    def RegisterVector(self, request_iterator: Any, context: Any) -> api.RegisterVectorResponse:
        first = next(request_iterator)
        self._arrived("RegisterVector", first, context)
        header, data = first.header, b"".join(r.chunk for r in request_iterator)
        if not names.is_valid(header.name):
            _refuse(context, "INVALID_ARGUMENT", "NAME_INVALID", "the name is not valid", "name")
        if hashlib.sha256(data).hexdigest() != header.sha256:
            _refuse(context, "INVALID_ARGUMENT", "DIGEST_MISMATCH", "the bytes differ", "sha256")
        old = self.state.vectors.get(header.name)
        with _refusing(context):
            upload = _parse(header, data)
            if upload.canary_percent is not None:
                upload = vectors.for_name(upload, self._held(header.name, context))
            vector = vectors.registered(upload, old, self.state.generation + 1, time.time())
        self.state.blobs[upload.vector.revision] = upload.canonical
        unchanged = self._put(vector, validate_only=header.validate_only)
        return api.RegisterVectorResponse(vector=vector, unchanged=unchanged, **self._outcome())

    def UpdateVector(
        self, request: api.UpdateVectorRequest, context: Any
    ) -> api.UpdateVectorResponse:
        self._arrived("UpdateVector", request, context)
        held, generation = self._held(request.name, context), self.state.generation + 1
        with _refusing(context):
            vector = vectors.updated(held, request, generation, time.time())
        unchanged = self._put(vector, validate_only=request.validate_only)
        return api.UpdateVectorResponse(vector=vector, unchanged=unchanged, **self._outcome())

    def GetVector(self, request: api.GetVectorRequest, context: Any) -> api.GetVectorResponse:
        self._arrived("GetVector", request, context)
        return api.GetVectorResponse(vector=self._held(request.name, context))

    def DownloadVector(
        self, request: api.DownloadVectorRequest, context: Any
    ) -> Iterator[api.DownloadVectorResponse]:
        self._arrived("DownloadVector", request, context)
        vector = self._held(request.name, context)
        revision = request.revision or vector.revision
        if revision not in {vector.revision, vector.canary.revision}:
            _refuse(context, "ABORTED", "REVISION_MISMATCH", "the name points elsewhere")
        data = self.state.blobs[revision]
        header = api.DownloadVectorHeader(vector=vector, sha256=revision, size_bytes=len(data))
        yield api.DownloadVectorResponse(header=header)
        for start in range(0, len(data), 1000):
            yield api.DownloadVectorResponse(chunk=data[start : start + 1000])

    def ListVectors(self, request: api.ListVectorsRequest, context: Any) -> api.ListVectorsResponse:
        self._arrived("ListVectors", request, context)
        held = sorted(self.state.vectors)
        size = min(request.page_size or 100, 1000)
        start = int(request.page_token or 0)
        page = [self.state.vectors[name] for name in held[start : start + size]]
        more = str(start + size) if start + size < len(held) else ""
        return api.ListVectorsResponse(vectors=page, next_page_token=more, total_size=len(held))

    def DeleteVector(
        self, request: api.DeleteVectorRequest, context: Any
    ) -> api.DeleteVectorResponse:
        self._arrived("DeleteVector", request, context)
        vector = self._held(request.name, context)
        if request.revision and request.revision != vector.revision:
            _refuse(context, "ABORTED", "REVISION_MISMATCH", "the name points elsewhere")
        del self.state.vectors[request.name]
        self.state.generation += 1
        return api.DeleteVectorResponse(vector=vector, **self._outcome())

    def GetPolicy(self, request: api.GetPolicyRequest, context: Any) -> api.GetPolicyResponse:
        self._arrived("GetPolicy", request, context)
        return api.GetPolicyResponse(policy=self.state.policy, generation=self.state.generation)

    def SetPolicy(self, request: api.SetPolicyRequest, context: Any) -> api.SetPolicyResponse:
        self._arrived("SetPolicy", request, context)
        if request.policy.etag and request.policy.etag != self.state.policy.etag:
            _refuse(context, "ABORTED", "ETAG_MISMATCH", "the policy has changed")
        policy = Policy()
        policy.CopyFrom(self.state.policy)
        paths = list(request.update_mask.paths) or _settable()
        for path in paths:
            if path not in _settable():
                _refuse(context, "INVALID_ARGUMENT", "FIELD_MASK_INVALID", path, "update_mask")
            policy.ClearField(path)  # type: ignore[arg-type]
        request.policy.ClearField("etag")
        kept = Policy()
        for name in paths:
            _copy(request.policy, kept, name)
        policy.MergeFrom(kept)
        if policy.max_relative_dose < 0:
            field_name = "policy.max_relative_dose"
            _refuse(context, "INVALID_ARGUMENT", "POLICY_INVALID", "it is below 0", field_name)
        if not request.validate_only:
            self.state.generation += 1
            policy.etag = str(self.state.generation)
            policy.update_time.GetCurrentTime()
            self.state.policy = policy
        return api.SetPolicyResponse(policy=policy, **self._outcome())

    def Stats(self, request: api.StatsRequest, context: Any) -> api.StatsResponse:
        self._arrived("Stats", request, context)
        return api.StatsResponse(stats=self._stats())

    def WatchStats(
        self, request: api.WatchStatsRequest, context: Any
    ) -> Iterator[api.WatchStatsResponse]:
        self._arrived("WatchStats", request, context)
        if request.interval_seconds and not 0.1 <= request.interval_seconds <= 3600:
            _refuse(
                context, "INVALID_ARGUMENT", "INTERVAL_INVALID", "out of range", "interval_seconds"
            )
        while context.is_active():
            yield api.WatchStatsResponse(stats=self._stats())
            time.sleep(request.interval_seconds or 1)
            self._arrived("WatchStats.sample", request, context)

    def ListNodes(self, request: api.ListNodesRequest, context: Any) -> api.ListNodesResponse:
        self._arrived("ListNodes", request, context)
        return api.ListNodesResponse(nodes=self.state.nodes, generation=self.state.generation)

    def GetReceipts(self, request: api.GetReceiptsRequest, context: Any) -> api.GetReceiptsResponse:
        self._arrived("GetReceipts", request, context)
        found = [r for r in self.state.receipts if r.request_id.startswith(request.request_id)]
        if not found:
            _refuse(context, "NOT_FOUND", "RECEIPT_NOT_FOUND", "no engine has a receipt of it")
        return api.GetReceiptsResponse(receipts=found)

    def _arrived(self, method: str, request: Any, context: Any) -> None:
        self.state.calls.append((method, request, context.time_remaining()))
        fault = self.state.faults.pop(method, None)
        if fault is None:
            return
        time.sleep(fault.delay_s)
        if fault.code is not None:
            _abort(context, fault)

    def _put(self, vector: Vector, *, validate_only: bool) -> bool:
        unchanged = vector == self.state.vectors.get(vector.name)
        if not validate_only and not unchanged:
            self.state.generation += 1
            self.state.vectors[vector.name] = vector
        return unchanged

    def _held(self, name: str, context: Any) -> Vector:
        if name not in self.state.vectors:
            _abort(context, _fault(names.not_found(name, self.state.vectors)))
        return self.state.vectors[name]

    def _outcome(self) -> dict[str, Any]:
        return {
            "generation": self.state.generation,
            "converged": self.state.converged,
            "nodes": self.state.outcomes(),
        }

    def _stats(self) -> Stats:
        stats = Stats(
            generation=self.state.generation,
            vectors=len(self.state.vectors),
            store_bytes=sum(v.size_bytes for v in self.state.vectors.values()),
            kill_switch=self.state.policy.kill_switch,
            converged=self.state.converged,
            engines=self.state.engines,
            uptime_seconds=1.5,
            daemon_rss_bytes=50_000_000,
        )
        stats.sample_time.GetCurrentTime()
        return stats


@dataclass(frozen=True)
class RealDaemon:
    """A `hotwired` process that serves."""

    address: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def fake_daemon(directory: Path) -> Iterator[FakeDaemon]:
    """Runs a stand-in on a socket in the directory."""
    daemon = FakeDaemon(directory / "hotwired.sock").start()
    try:
        yield daemon
    finally:
        daemon.stop()


@contextlib.contextmanager
def real_daemon(directory: Path) -> Iterator[RealDaemon]:
    """Runs `hotwired serve` with its run and state folders in the directory."""
    run_dir, state_dir = directory / "run", directory / "state"
    command = [sys.executable, "-m", "hotwired.main", "serve"]
    command += ["--run-dir", str(run_dir), "--state-dir", str(state_dir)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (directory / "daemon.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    address = f"unix:{run_dir / 'hotwired.sock'}"
    try:
        with Client(address, connect_timeout=10, timeout=10) as client:
            client.health()
        yield RealDaemon(address, process)
    finally:
        process.terminate()
        process.wait(10)


def reset(address: str) -> None:
    """Deletes all vectors and sets the default policy."""
    with Client(address) as client:
        for vector in client.list_vectors():
            client.delete_vector(vector.name)
        client.set_policy(Policy())


def write_vector(path: Path, rows: Any = ((1.0, 2.0), (3.0, 4.0)), **metadata: str) -> Path:
    """Writes rows [layers, hidden] as a float32 safetensors file."""
    save_file({"vector": np.array(rows, np.float32)}, path, metadata)
    return path


def node(name: str, state: int = NODE_STATE_CONVERGED, **fields: Any) -> Node:
    """Makes a node as the daemon reports it."""
    known = {"instance_id": name.partition("/")[0], "hidden_size": 8, "num_layers": 4}
    made = Node(name=name, state=state, **{**known, **fields})  # type: ignore[arg-type]
    made.last_seen_time.GetCurrentTime()
    return made


@contextlib.contextmanager
def _refusing(context: Any) -> Iterator[None]:
    try:
        yield
    except errors.HotwireError as bad:
        _abort(context, _fault(bad))


def _parse(header: api.RegisterVectorHeader, data: bytes) -> Upload:
    parsed = vector_file.parse_upload(data)
    canonical = vector_file.canonical_bytes(parsed)
    vector = Vector(
        name=header.name,
        revision=vector_file.revision_of(canonical),
        model=header.model or parsed.metadata.get("model", ""),
        hidden_size=parsed.hidden_size,
        layers=parsed.layers,
        any_layer=parsed.any_layer,
        norms=parsed.norms,
        size_bytes=len(canonical),
        source_dtype=parsed.source_dtype,
        metadata=parsed.metadata,
    )
    percent = header.canary_percent if header.HasField("canary_percent") else None
    if percent is not None:
        check_percent(percent, "header.canary_percent")
    moment = expiry.asked(header, time.time(), "header.")
    return Upload(vector, parsed, canonical, header.validate_only, moment, percent)


def _settable() -> list[str]:
    return [f.name for f in Policy.DESCRIPTOR.fields if f.name not in {"etag", "update_time"}]


def _copy(source: Policy, target: Policy, name: str) -> None:
    for descriptor, value in source.ListFields():
        if descriptor.name != name:
            continue
        if name == "reference_norms":
            target.reference_norms.update(value)
        else:
            setattr(target, name, value)


def _fault(error: errors.HotwireError) -> Fault:
    return Fault(error.code, error.reason, error.message, error.violations, error.metadata)


def _refuse(context: Any, code: str, reason: str, message: str, at: str = "") -> NoReturn:
    violations = ((at, message),) if at else ()
    _abort(context, Fault(grpc.StatusCode[code], reason, message, violations))


def _abort(context: Any, fault: Fault) -> NoReturn:
    assert fault.code is not None
    details = []
    if fault.reason:
        info = error_details_pb2.ErrorInfo(
            domain="hotwired", reason=fault.reason, metadata=fault.metadata
        )
        details.append(_packed(info))
    if fault.violations:
        bad = error_details_pb2.BadRequest()
        for at, description in fault.violations:
            bad.field_violations.add(field=at, description=description)
        details.append(_packed(bad))
    status = status_pb2.Status(code=fault.code.value[0], message=fault.message, details=details)
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError


def _packed(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
