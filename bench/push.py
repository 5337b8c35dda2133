"""How long RegisterVector takes until every node has committed: python -m bench.push [--json PATH].

Without --address it starts a daemon and the nodes of one engine (engine, frontend, two workers),
each a process of its own with nothing else to do. With --address it measures a running daemon,
with vectors of the width and the layers of its first node, and deletes them in the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import safetensors.numpy

from bench.machine import machine
from hotwire_plugin.blobs import BlobStore
from hotwire_plugin.node_service import Node, NodeServer
from hotwire_plugin.snapshot import SnapshotHolder
from hotwired.node.v1 import node_pb2
from hotwired.run_dir import socket_path
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1 import steering_service_pb2_grpc

LAYERS, HIDDEN, NAMES, WARM_UP = 30, 576, 50, 20
NODES = (("engine", 0), ("frontend", 0), ("worker", 0), ("worker", 1))
P50_MS, P99_MS = 20.0, 100.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="a running daemon, unix:PATH")
    parser.add_argument("--count", type=int, default=300, help="registrations, at least 200")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--node", nargs=3, metavar=("ROLE", "RANK", "RUN_DIR"), help="be a node")
    args = parser.parse_args()
    if args.node:
        role, rank, run_dir = args.node
        _serve_node(role, int(rank), Path(run_dir))
        return
    with ExitStack() as stack:
        address = args.address or stack.enter_context(_own_fleet())
        stub = stub_of(stack, address)
        shape, nodes = _shape(stub)
        times = _measure(stub, shape, max(200, args.count))
    _report(times, shape, nodes, args.json)


def _report(
    times: list[float], shape: tuple[int, int], nodes: list[str], path: Path | None
) -> None:
    p50, p90, p99 = (float(np.percentile(times, q)) for q in (50, 90, 99))
    print(f"RegisterVector, {shape[0]} x {shape[1]}, until {len(nodes)} nodes have committed")
    print(f"{'count':>8} {'p50 ms':>8} {'p90 ms':>8} {'p99 ms':>8} {'max ms':>8}")
    print(f"{len(times):8} {p50:8.1f} {p90:8.1f} {p99:8.1f} {max(times):8.1f}")
    met = p50 <= P50_MS and p99 <= P99_MS
    print(f"promised: p50 <= {P50_MS:g}, p99 <= {P99_MS:g}: {'met' if met else 'MISSED'}")
    facts = {**machine(), "grpc": grpc.__version__, "load": f"{os.getloadavg()[0]:.1f}"}
    print("  ".join(f"{key}={value}" for key, value in facts.items()))
    figures = {"p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": max(times), "met": met}
    if path:
        result = {**facts, "shape": shape, "nodes": nodes, "count": len(times), **figures}
        path.write_text(json.dumps(result, indent=1) + "\n")


def _measure(stub: Any, shape: tuple[int, int], count: int) -> list[float]:
    """Returns the milliseconds of each registration: of new names and of known ones, in turns."""
    rng = np.random.default_rng(0)
    times = []
    for number in range(WARM_UP + count):
        messages = upload(f"bench-push-{number % NAMES}", rng.normal(size=shape))
        start = time.perf_counter()
        answer = stub.RegisterVector(iter(messages), timeout=10)
        times.append((time.perf_counter() - start) * 1e3)
        if not answer.converged:
            raise SystemExit(f"not converged: {answer.nodes}")
    for number in range(NAMES):
        stub.DeleteVector(pb.DeleteVectorRequest(name=f"bench-push-{number}"), timeout=10)
    return times[WARM_UP:]


def upload(name: str, rows: np.ndarray[Any, Any]) -> list[pb.RegisterVectorRequest]:
    """Return the messages that register rows, of a width and layers, in float32."""
    data = safetensors.numpy.save({"vector": rows.astype(np.float32)})
    header = pb.RegisterVectorHeader(
        name=name, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
    return [pb.RegisterVectorRequest(header=header), pb.RegisterVectorRequest(chunk=data)]


def stub_of(stack: ExitStack, address: str) -> Any:
    """Return a stub for a daemon that is up within 20 seconds."""
    channel = stack.enter_context(grpc.insecure_channel(address))
    grpc.channel_ready_future(channel).result(20)
    return steering_service_pb2_grpc.SteeringServiceStub(channel)


def _shape(stub: Any) -> tuple[tuple[int, int], list[str]]:
    nodes = stub.ListNodes(pb.ListNodesRequest(), timeout=5).nodes
    known = [(node.num_layers, node.hidden_size) for node in nodes if node.hidden_size]
    return next(iter(known), (LAYERS, HIDDEN)), [node.name for node in nodes]


@contextmanager
def running_daemon(run_dir: Path, state_dir: Path) -> Iterator[tuple[str, int]]:
    """Run `hotwired serve` and yield its address and its process id."""
    places = ("--run-dir", str(run_dir), "--state-dir", str(state_dir))
    with _process("hotwired.main", "serve", *places, "--log-level", "warning") as process:
        yield f"unix:{run_dir / 'hotwired.sock'}", process.pid


@contextmanager
def _own_fleet() -> Iterator[str]:
    """Run a daemon and its nodes, and yield its address once all are converged."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp")))
        run_dir = root / "run"
        for role, rank in NODES:
            stack.enter_context(_process("bench.push", "--node", role, str(rank), str(run_dir)))
        address, _ = stack.enter_context(running_daemon(run_dir, root / "state"))
        _wait_converged(stub_of(stack, address))
        yield address


def _wait_converged(stub: Any) -> None:
    for _ in range(200):
        nodes = stub.ListNodes(pb.ListNodesRequest(), timeout=5).nodes
        if len(nodes) == len(NODES) and {n.state for n in nodes} == {
            public_pb2.NODE_STATE_CONVERGED
        }:
            return
        time.sleep(0.1)
    raise SystemExit("the nodes do not converge")


@contextmanager
def _process(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", module, *arguments])
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def _serve_node(role: str, rank: int, run_dir: Path) -> None:
    holder = SnapshotHolder()
    node = Node(
        instance_id="bench",
        tp_rank=rank,
        tp_size=2,
        hidden_size=HIDDEN,
        num_layers=LAYERS,
        dtype="bfloat16",
        roles={role},
        holder=holder if role != "worker" else None,
        blobs=BlobStore(HIDDEN, LAYERS, "bfloat16", 1 << 30) if role == "worker" else None,
        engine_report=lambda: node_pb2.EngineReport(generation=holder.generation),
    )
    server = NodeServer(node, socket_path(run_dir, "bench", role, 0, 0, rank))
    server.start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
