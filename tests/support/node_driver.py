"""Does by hand what the daemon does: stages, commits and asks, over the nodes' own sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from hotwired.node.v1 import node_pb2, node_pb2_grpc
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.v1.policy_pb2 import Policy
from hotwired.vector_file import VectorData, canonical_bytes, revision_of

CHUNK = 1 << 20
TIMEOUT_S = 60.0


class NodeDriver:
    """Holds the desired state of one vLLM instance and puts it in force when told to."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._channels: dict[Path, grpc.Channel] = {}
        self._staged: set[str] = set()
        self.vectors: dict[str, VectorData] = {}
        self.canaries: dict[str, tuple[VectorData, float]] = {}
        self.disabled: set[str] = set()
        self.policy = Policy()
        self.generation = 0

    def put(self, vectors: Mapping[str, VectorData]) -> None:
        """Register vectors, or replace those of the same names, in one generation."""
        self.vectors.update(vectors)
        self.commit()

    def delete(self, *names: str) -> None:
        """Delete vectors; the workers keep the bytes."""
        for name in names:
            del self.vectors[name]
        self.commit()

    def set_policy(self, **fields: Any) -> None:
        """Replace the policy."""
        self.policy = Policy(**fields)
        self.commit()

    def commit(self) -> None:
        """Stage what the workers lack, then commit to the engine, then to the frontends."""
        for vector in (*self.vectors.values(), *(canary for canary, _ in self.canaries.values())):
            self.stage(vector)
        self.commit_unstaged()

    def commit_unstaged(self) -> None:
        """Commit without staging, which the daemon never does."""
        self.generation += 1
        snapshot = node_pb2.Snapshot(generation=self.generation, policy=self.policy)
        for name, vector in self.vectors.items():
            snapshot.vectors.add(
                name=name,
                revision=revision_of(canonical_bytes(vector)),
                layers=vector.layers,
                norms=vector.norms,
                any_layer=vector.any_layer,
                disabled=name in self.disabled,
                canary=_canary(*self.canaries[name]) if name in self.canaries else None,
            )
        for role in (public_pb2.NODE_ROLE_ENGINE, public_pb2.NODE_ROLE_FRONTEND):
            for stub in self.stubs(role):
                stub.Commit(node_pb2.CommitRequest(snapshot=snapshot), timeout=TIMEOUT_S)

    def stage(self, vector: VectorData, only_rank: int | None = None) -> str:
        """Give a vector to the workers (or to one TP rank alone); return its revision."""
        data = canonical_bytes(vector)
        revision = revision_of(data)
        if revision not in self._staged:
            for stub in self.stubs(public_pb2.NODE_ROLE_WORKER, only_rank):
                stub.Stage(_messages(revision, data), timeout=TIMEOUT_S)
            if only_rank is None:
                self._staged.add(revision)
        return revision

    def describe(self) -> dict[Path, node_pb2.DescribeResponse]:
        """Return who the nodes are, by socket; those that do not answer are left out."""
        found = {}
        for path in sorted(self._run_dir.glob("nodes/*/*.sock")):
            try:
                found[path] = self._stub(path).Describe(
                    node_pb2.DescribeRequest(), timeout=TIMEOUT_S
                )
            except grpc.RpcError:
                continue
        return found

    def stubs(self, role: int, tp_rank: int | None = None) -> list[node_pb2_grpc.NodeServiceStub]:
        """Return the stubs of the nodes with a role."""
        return [
            self._stub(path)
            for path, node in self.describe().items()
            if role in node.roles and tp_rank in (None, node.tp_rank)
        ]

    def engine(self) -> node_pb2.EngineReport:
        """Return the engine's counters."""
        return self._reports(public_pb2.NODE_ROLE_ENGINE)[0].engine

    def workers(self) -> list[node_pb2.WorkerReport]:
        """Return the workers' counters."""
        return [report.worker for report in self._reports(public_pb2.NODE_ROLE_WORKER)]

    def worker(self) -> node_pb2.WorkerReport:
        """Return the only worker's counters."""
        (report,) = self.workers()
        return report

    def close(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            channel.close()

    def _reports(self, role: int) -> list[node_pb2.ReportResponse]:
        return [s.Report(node_pb2.ReportRequest(), timeout=TIMEOUT_S) for s in self.stubs(role)]

    def _stub(self, path: Path) -> node_pb2_grpc.NodeServiceStub:
        if path not in self._channels:
            self._channels[path] = grpc.insecure_channel(f"unix:{path}")
        return node_pb2_grpc.NodeServiceStub(self._channels[path])


def wait_until(condition: Any, timeout_s: float, what: str) -> float:
    """Wait until condition() is true; return how long that took, in seconds."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s} s")
        time.sleep(0.02)
    return time.monotonic() - start


def _canary(vector: VectorData, percent: float) -> node_pb2.SnapshotCanary:
    revision = revision_of(canonical_bytes(vector))
    return node_pb2.SnapshotCanary(revision=revision, norms=vector.norms, percent=percent)


def _messages(revision: str, data: bytes) -> Iterator[node_pb2.StageRequest]:
    header = node_pb2.StageHeader(revision=revision, size_bytes=len(data))
    yield node_pb2.StageRequest(header=header)
    for at in range(0, len(data), CHUNK):
        yield node_pb2.StageRequest(chunk=data[at : at + CHUNK])
