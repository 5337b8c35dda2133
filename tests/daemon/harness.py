"""The real daemon as a process of its own, and real node servers without an engine behind them."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import safetensors.numpy
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hotwire_plugin.blobs import BlobStore
from hotwire_plugin.node_service import Node, NodeServer
from hotwire_plugin.snapshot import Snapshot, SnapshotHolder
from hotwired.errors import DETAILS_KEY
from hotwired.node.v1 import node_pb2
from hotwired.run_dir import socket_path, target_of
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1 import steering_service_pb2_grpc
from hotwired.v1.node_pb2 import NodeState
from tests.fakes.fake_node import FakeNode, FakeServer

HIDDEN, LAYERS = 16, 6
CONVERGE_SECONDS = 5.0
"""The promise: whatever restarts, everything is as desired that soon."""


def eventually(check: Callable[[], Any], seconds: float = CONVERGE_SECONDS) -> Any:
    """Returns the first true value of check. Fails if there is none in time."""
    end = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < end, f"not within {seconds} s: {check}"
        time.sleep(0.02)
    return value


@dataclass
class Refusal:
    """A status as a client sees it."""

    code: str
    reason: str
    message: str
    metadata: dict[str, str]
    fields: list[str]
    retry_seconds: float = 0.0


def refused(call: Callable[[], Any]) -> Refusal:
    """Returns the refusal of a call that must fail, which must carry an ErrorInfo of ours."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return refusal_of(caught.value)


def refusal_of(error: Any) -> Refusal:
    """Returns what an RpcError says."""
    trailers = dict(error.trailing_metadata())
    assert DETAILS_KEY in trailers, f"{error.code()} without details: {error.details()}"
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in status_pb2.Status.FromString(trailers[DETAILS_KEY]).details:
        assert detail.Unpack(info) or detail.Unpack(bad) or detail.Unpack(retry)
    assert info.domain == "hotwired"
    fields = [violation.field for violation in bad.field_violations]
    return Refusal(
        error.code().name,
        info.reason,
        error.details(),
        dict(info.metadata),
        fields,
        retry.retry_delay.ToMilliseconds() / 1000,
    )


class Daemon:
    """`hotwired serve` under a directory, started, stopped and started again.

    entry: how Python is told to run the command; a test may put something before it.
    """

    entry: tuple[str, ...] = ("-m", "hotwired.main")

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        self.run_dir, self.state_dir = root / "run", root / "state"
        self.socket = self.run_dir / "hotwired.sock"
        self._options = options
        self._log = root / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._channel: grpc.Channel | None = None

    def spawn(self, *options: str) -> subprocess.Popen[bytes]:
        """Starts a process; its log goes to the end of the log file."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HOTWIRE")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        places = ("--run-dir", self.run_dir, "--state-dir", self.state_dir)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *self.entry, "serve", *map(str, places), *options],
                env=environment,
                stdout=log,
                stderr=subprocess.PIPE,
            )

    def start(self) -> "Daemon":
        """Starts it and waits until it is healthy."""
        self.process = self.spawn(*self._options)
        eventually(self._is_up, 20)
        return self

    def _is_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None and self.process.stderr is not None:
            raise AssertionError(self.process.stderr.read().decode())
        try:
            return self.health() == "SERVING"
        except grpc.RpcError:
            return False

    @property
    def channel(self) -> grpc.Channel:
        """A channel to this daemon's socket, also across restarts."""
        if self._channel is None:
            options = (("grpc.max_reconnect_backoff_ms", 100),)
            self._channel = grpc.insecure_channel(target_of(self.socket), options=options)
        return self._channel

    @property
    def stub(self) -> Any:
        """The service."""
        return steering_service_pb2_grpc.SteeringServiceStub(self.channel)

    def health(self, service: str = "") -> str:
        """Returns a health status by name."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        request = health_pb2.HealthCheckRequest(service=service)
        status = stub.Check(request, timeout=2, wait_for_ready=False).status
        return health_pb2.HealthCheckResponse.ServingStatus.Name(status)

    def kill(self) -> None:
        """Kills it with -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stops it and returns its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(15)

    def close(self) -> None:
        """Ends everything."""
        if self._channel is not None:
            self._channel.close()
        if self.process is not None and self.process.poll() is None:
            self.kill()
        if self.process is not None and self.process.stderr is not None:
            self.process.stderr.close()

    def log(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """Returns the log's records of an event with these fields; all lines must be JSON."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        wanted = {"event": event, **fields}
        return [line for line in lines if all(line.get(k) == v for k, v in wanted.items())]

    def register(
        self,
        name: str = "joy",
        data: bytes | None = None,
        *,
        timeout: float = 10,
        chunk: int = 1 << 20,
        **header: Any,
    ) -> pb.RegisterVectorResponse:
        """Registers a file, as declared truly unless the header's fields say otherwise."""
        data = a_file() if data is None else data
        messages = upload(name, data, chunk=chunk, **header)
        return self.stub.RegisterVector(iter(messages), timeout=timeout)

    def delete(self, name: str, revision: str = "") -> pb.DeleteVectorResponse:
        """Deletes a name."""
        request = pb.DeleteVectorRequest(name=name, revision=revision)
        return self.stub.DeleteVector(request, timeout=10)

    def get(self, name: str) -> Any:
        """Returns a vector."""
        return self.stub.GetVector(pb.GetVectorRequest(name=name), timeout=5).vector

    def names(self) -> list[str]:
        """Returns the registered names, of the first page."""
        answer = self.stub.ListVectors(pb.ListVectorsRequest(page_size=1000), timeout=5)
        return [vector.name for vector in answer.vectors]

    def states(self) -> dict[str, str]:
        """Returns each node's state by its name."""
        answer = self.stub.ListNodes(pb.ListNodesRequest(), timeout=5)
        return {n.name: NodeState.Name(n.state).removeprefix("NODE_STATE_") for n in answer.nodes}

    def details(self) -> dict[str, str]:
        """Returns each node's detail by its name."""
        answer = self.stub.ListNodes(pb.ListNodesRequest(), timeout=5)
        return {node.name: node.detail for node in answer.nodes}

    def wait_for(self, count: int, state: str = "CONVERGED") -> None:
        """Waits until there are so many nodes and all are in a state."""

        def check() -> bool:
            states = self.states()
            return len(states) == count and set(states.values()) <= {state}

        eventually(check)

    def generation(self) -> int:
        """Returns the newest generation."""
        return int(self.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5).generation)

    def set_policy(self, *paths: str, **fields: Any) -> pb.SetPolicyResponse:
        """Sets fields of the policy, those of the mask if there is one."""
        request = pb.SetPolicyRequest(policy=fields)
        request.update_mask.paths.extend(paths)
        return self.stub.SetPolicy(request, timeout=10)

    def blobs(self) -> list[str]:
        """Returns the files in the directory of blobs."""
        return sorted(path.name for path in (self.state_dir / "blobs").iterdir())


def failed_start(daemon: Daemon, *options: str) -> str:
    """Returns what a daemon says that must not start."""
    process = daemon.spawn(*options)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    return errors.decode()


def a_file(value: float = 1.0, layers: int = LAYERS, width: int = HIDDEN, **metadata: str) -> bytes:
    """Returns a safetensors file with one matrix of a value."""
    rows = np.full((layers, width), value, np.float32)
    return safetensors.numpy.save({"v": rows}, metadata or None)


def upload(
    name: str, data: bytes, *, chunk: int = 1 << 20, **header: Any
) -> list[pb.RegisterVectorRequest]:
    """Returns the messages of an upload."""
    fields = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **header}
    messages = [pb.RegisterVectorRequest(header=pb.RegisterVectorHeader(name=name, **fields))]
    messages += [
        pb.RegisterVectorRequest(chunk=data[at : at + chunk]) for at in range(0, len(data), chunk)
    ]
    return messages


@dataclass
class Instance:
    """The real node servers of one vLLM instance, hosted here."""

    run_dir: Path
    instance_id: str = "i1"
    tp_size: int = 1
    hidden_size: int = HIDDEN
    num_layers: int = LAYERS
    dtype: str = "float32"
    model: str = "org/model"
    roles: tuple[str, ...] = ("engine", "frontend", "worker")
    in_use: set[str] = field(default_factory=set)
    nodes: dict[str, Node] = field(default_factory=dict)
    servers: dict[str, NodeServer] = field(default_factory=dict)

    def start(self) -> "Instance":
        """Starts an engine, a frontend, and a worker for each rank."""
        for role in self.roles:
            for rank in range(self.tp_size if role == "worker" else 1):
                self.start_node(role, rank)
        return self

    def start_node(self, role: str, rank: int = 0, **fields: Any) -> Node:
        """Starts one node, with a new boot id and nothing held."""
        node = self._node(role, rank, **fields)
        path = socket_path(self.run_dir, self.instance_id, role, node.dp_rank, 0, rank)
        server = NodeServer(node, path)
        server.start()
        key = f"{role}-{rank}"
        self.nodes[key], self.servers[key] = node, server
        return node

    def _node(self, role: str, rank: int, **fields: Any) -> Node:
        node = Node(
            instance_id=self.instance_id,
            tp_rank=rank,
            tp_size=self.tp_size,
            model=self.model,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            dtype=self.dtype,
            roles={role},
            **fields,
        )
        if role == "worker":
            blobs = BlobStore(self.hidden_size, self.num_layers, self.dtype, 1 << 24)
            node.blobs = blobs
            node.worker_report = lambda: node_pb2.WorkerReport(
                blob_bytes=blobs.bytes_held,
                rows_in_use=rank + 1,
                steered_tokens_total=100 + rank,
            )
        else:
            holder = node.holder = SnapshotHolder()
            if role == "engine":
                node.engine_report = lambda: node_pb2.EngineReport(
                    generation=holder.generation, revisions_in_use=sorted(self.in_use)
                )
        return node

    def stop_node(self, key: str) -> None:
        """Stops one node; its socket goes."""
        self.servers.pop(key).stop(0)
        del self.nodes[key]

    def stop(self) -> None:
        """Stops all nodes."""
        for key in list(self.servers):
            self.stop_node(key)

    def snapshot(self, key: str = "engine-0") -> Snapshot:
        """Returns the snapshot in force at a node."""
        holder = self.nodes[key].holder
        assert holder is not None
        return holder.current

    def held(self, rank: int = 0) -> set[str]:
        """Returns what a worker holds."""
        blobs = self.nodes[f"worker-{rank}"].blobs
        assert blobs is not None
        return set(blobs.revisions())


@dataclass
class Fleet:
    """Starts daemons and nodes under one directory, and ends them all.

    lasting: a daemon that runs there already, and is not ended.
    """

    root: Path
    lasting: Daemon | None = None
    _ends: list[Callable[[], None]] = field(default_factory=list)

    def daemon(self, *options: str, start: bool = True) -> Daemon:
        """Starts a daemon, or returns the lasting one."""
        if self.lasting is not None:
            return self.lasting
        daemon = Daemon(self.root, *options)
        self._ends.append(daemon.close)
        return daemon.start() if start else daemon

    def instance(self, instance_id: str = "i1", **fields: Any) -> Instance:
        """Starts the nodes of an instance."""
        instance = Instance(self.root / "run", instance_id, **fields).start()
        self._ends.append(instance.stop)
        return instance

    def fake(self, role: str = "worker", rank: int = 0, **fields: Any) -> FakeNode:
        """Starts a scripted node."""
        fields = {"hidden_size": HIDDEN, "num_layers": LAYERS, "instance_id": "i1", **fields}
        node = FakeNode(roles=(role,), tp_rank=rank, **fields)
        path = socket_path(self.root / "run", node.instance_id, role, node.dp_rank, 0, rank)
        server = FakeServer(node, path)
        server.start()
        self._ends.append(server.stop)
        return node

    def close(self) -> None:
        """Ends everything, the last first."""
        for end in reversed(self._ends):
            end()


def fleet(root: Path) -> Iterator[Fleet]:
    """Yields a fleet and ends it."""
    made = Fleet(root)
    try:
        yield made
    finally:
        made.close()
