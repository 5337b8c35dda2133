"""The contract of hotwired.node.v1, kept by the plugin's service and by the fake one alike."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from hotwire_plugin.blobs import BlobStore
from hotwire_plugin.node_service import Node, NodeServer
from hotwire_plugin.snapshot import SnapshotHolder
from hotwired.node.v1 import node_pb2, node_pb2_grpc
from hotwired.rpc_errors import from_rpc_error
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.v1 import receipt_pb2
from hotwired.vector_file import VectorData, canonical_bytes, revision_of
from tests.fakes.fake_node import FakeNode, FakeServer

HIDDEN, LAYERS = 8, 4
ALL = ("engine", "frontend", "worker")


@dataclass
class Running:
    """A node under test: its stub, and the object whose fields script it."""

    stub: Any
    node: Any


def _real(roles: tuple[str, ...], path: Path, **fields: Any) -> tuple[Any, Any]:
    blobs = BlobStore(HIDDEN, LAYERS, "float16", 1 << 20)
    kept = fields.pop("receipts", [])
    node = Node(
        instance_id="i1",
        hidden_size=HIDDEN,
        num_layers=LAYERS,
        dtype="float16",
        roles=set(roles),
        holder=SnapshotHolder(),
        blobs=blobs if "worker" in roles else None,
        engine_report=lambda: node_pb2.EngineReport(generation=node.holder.generation),
        worker_report=lambda: node_pb2.WorkerReport(blob_bytes=blobs.bytes_held),
        receipts=lambda request_id: _receipts(request_id, kept),
        **fields,
    )
    if "engine" not in roles:
        node.engine_report = node.receipts = None
    if "worker" not in roles:
        node.worker_report = None
    return node, NodeServer(node, path)


def _receipts(request_id: str, kept: list[receipt_pb2.Receipt]) -> node_pb2.GetReceiptsResponse:
    mine = [receipt for receipt in kept if receipt.request_id == request_id]
    return node_pb2.GetReceiptsResponse(receipts=mine)


def _fake(roles: tuple[str, ...], path: Path, **fields: Any) -> tuple[Any, Any]:
    node = FakeNode(
        instance_id="i1",
        roles=roles,
        hidden_size=HIDDEN,
        num_layers=LAYERS,
        dtype="float16",
        max_bytes=1 << 20,
        **fields,
    )
    return node, FakeServer(node, path)


@pytest.fixture(params=[_real, _fake], ids=["real", "fake"])
def start(request: pytest.FixtureRequest, short_dir: Path) -> Iterator[Callable[..., Running]]:
    """Starts a node with roles and fields; stops it at the end."""
    servers: list[Any] = []
    channels: list[grpc.Channel] = []

    def run(roles: tuple[str, ...] = ALL, **fields: Any) -> Running:
        path = short_dir / f"{len(servers)}.sock"
        node, server = request.param(roles, path, **fields)
        server.start()
        servers.append(server)
        channels.append(grpc.insecure_channel(f"unix:{path}"))
        return Running(node_pb2_grpc.NodeServiceStub(channels[-1]), node)

    yield run
    for channel in channels:
        channel.close()
    for server in servers:
        server.stop()


def a_vector(value: float = 1.0, layers: tuple[int, ...] = (1, 2), width: int = HIDDEN) -> bytes:
    """Returns canonical bytes."""
    rows = np.full((len(layers), width), value, np.float32)
    return canonical_bytes(VectorData(layers, False, rows, "F32"))


def stage(
    running: Running,
    data: bytes,
    *,
    revision: str | None = None,
    size: int | None = None,
    chunk: int = 64,
    validate_only: bool = False,
) -> node_pb2.StageResponse:
    """Stages bytes, as declared truly unless told otherwise."""
    header = node_pb2.StageHeader(
        revision=revision_of(data) if revision is None else revision,
        size_bytes=len(data) if size is None else size,
        validate_only=validate_only,
    )
    messages = [node_pb2.StageRequest(header=header)]
    messages += [
        node_pb2.StageRequest(chunk=data[at : at + chunk]) for at in range(0, len(data), chunk)
    ]
    return running.stub.Stage(iter(messages), timeout=5)


def commit(running: Running, generation: int, boot_id: str = "") -> node_pb2.CommitResponse:
    """Commits a snapshot without vectors."""
    snapshot = node_pb2.Snapshot(generation=generation)
    request = node_pb2.CommitRequest(snapshot=snapshot, boot_id=boot_id)
    return running.stub.Commit(request, timeout=5)


def describe(running: Running) -> node_pb2.DescribeResponse:
    """Describes the node."""
    return running.stub.Describe(node_pb2.DescribeRequest(), timeout=5)


def refused(call: Callable[[], Any]) -> tuple[str, str]:
    """Returns (code, reason) of a call that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error = from_rpc_error(caught.value)
    return error.code.name, error.reason


def test_describe_says_who_it_is(start: Callable[..., Running]) -> None:
    """A node names its instance, roles, sizes and boot, and holds nothing at first."""
    running = start()
    found = describe(running)
    assert found.instance_id == "i1"
    assert set(found.roles) == {
        public_pb2.NODE_ROLE_ENGINE,
        public_pb2.NODE_ROLE_FRONTEND,
        public_pb2.NODE_ROLE_WORKER,
    }
    assert (found.hidden_size, found.num_layers, found.dtype) == (HIDDEN, LAYERS, "float16")
    assert found.boot_id == running.node.boot_id
    assert found.armed
    assert not found.revisions
    assert (found.generation, found.pp_size, found.tp_size) == (0, 1, 1)
    assert found.pid > 0


def test_stage_is_idempotent_by_digest(start: Callable[..., Running]) -> None:
    """Staging twice holds the revision once and says so the second time."""
    running, data = start(), a_vector()
    assert not stage(running, data).already_held
    assert stage(running, data).already_held
    assert list(describe(running).revisions) == [revision_of(data)]


def test_stage_in_one_chunk_or_many(start: Callable[..., Running]) -> None:
    """The size of the chunks makes no difference."""
    running = start()
    for value, chunk in ((1.0, 1), (2.0, 7), (3.0, 1 << 20)):
        stage(running, a_vector(value), chunk=chunk)
    assert len(describe(running).revisions) == 3


def test_validate_only_keeps_nothing(start: Callable[..., Running]) -> None:
    """A trial run checks, refuses what is bad, and keeps nothing."""
    running = start()
    assert not stage(running, a_vector(), validate_only=True).already_held
    bad = a_vector(width=HIDDEN + 1)
    code = refused(lambda: stage(running, bad, validate_only=True))
    assert code == ("INVALID_ARGUMENT", "VECTOR_SHAPE_MISMATCH")
    assert not describe(running).revisions


BAD_STAGES = {
    "wrong digest": ({"revision": "0" * 64}, "DIGEST_MISMATCH"),
    "too few bytes": ({"size": 10_000}, "SIZE_MISMATCH"),
    "too many bytes": ({"size": 10}, "SIZE_MISMATCH"),
    "wrong width": ({"data": a_vector(width=HIDDEN * 2)}, "VECTOR_SHAPE_MISMATCH"),
    "layer out of range": ({"data": a_vector(layers=(LAYERS,))}, "VECTOR_SHAPE_MISMATCH"),
    "infinite in the model's dtype": ({"data": a_vector(70_000.0)}, "VECTOR_NOT_FINITE"),
    "not finite": ({"data": a_vector(float("nan"))}, "VECTOR_NOT_FINITE"),
    "no safetensors": ({"data": b"x" * 100}, "VECTOR_FORMAT_INVALID"),
}


@pytest.mark.parametrize("case", BAD_STAGES)
def test_bad_bytes_are_refused_and_not_kept(start: Callable[..., Running], case: str) -> None:
    """Every refusal has its reason, and leaves nothing behind."""
    running = start()
    arguments, reason = BAD_STAGES[case]
    data = arguments.get("data", a_vector())
    rest = {key: value for key, value in arguments.items() if key != "data"}
    assert refused(lambda: stage(running, data, **rest)) == ("INVALID_ARGUMENT", reason)
    assert not describe(running).revisions


def test_malformed_uploads_are_refused(start: Callable[..., Running]) -> None:
    """An upload is one header and then chunks of at most 1 MiB."""
    running = start()
    header = node_pb2.StageRequest(header=node_pb2.StageHeader(revision="a", size_bytes=4))
    big = node_pb2.StageRequest(chunk=b"x" * ((1 << 20) + 1))
    chunk = node_pb2.StageRequest(chunk=b"1234")
    for messages in ([], [chunk], [header, header], [header, node_pb2.StageRequest()]):
        found = refused(lambda m=messages: running.stub.Stage(iter(m), timeout=5))
        assert found[1] == "UPLOAD_INVALID"
    assert refused(lambda: running.stub.Stage(iter([header, big]), timeout=5))[1] in (
        "UPLOAD_INVALID",
        "SIZE_MISMATCH",
    )


def test_declared_size_over_the_limit_is_refused_unread(start: Callable[..., Running]) -> None:
    """A size over the worker's memory for vectors is refused by the header alone."""
    running = start()
    found = refused(lambda: stage(running, a_vector(), size=1 << 40))
    assert found == ("RESOURCE_EXHAUSTED", "VECTOR_TOO_LARGE")


def test_discard_forgets_and_names_what_it_forgot(start: Callable[..., Running]) -> None:
    """Only what was held is named, once; the rest is ignored."""
    running, data = start(), a_vector()
    stage(running, data)
    revision = revision_of(data)
    request = node_pb2.DiscardRequest(revisions=[revision, revision, "f" * 64])
    assert list(running.stub.Discard(request, timeout=5).revisions) == [revision]
    assert not running.stub.Discard(request, timeout=5).revisions
    assert not describe(running).revisions


def test_commit_only_goes_forward(start: Callable[..., Running]) -> None:
    """The same generation again is accepted, an older one is stale and changes nothing."""
    running = start()
    assert commit(running, 3).generation == 3
    assert commit(running, 3).generation == 3
    assert refused(lambda: commit(running, 2)) == ("ABORTED", "GENERATION_STALE")
    assert describe(running).generation == 3


def test_commit_takes_vectors_with_flags_and_a_canary(start: Callable[..., Running]) -> None:
    """An engine has them in its snapshot, whether it holds the vectors or not."""
    vector = node_pb2.SnapshotVector(
        name="joy", revision="a" * 64, layers=[1], norms=[1.0], disabled=True
    )
    vector.expire_time.seconds = 2_000_000_000
    vector.canary.CopyFrom(node_pb2.SnapshotCanary(revision="b" * 64, norms=[2.0], percent=5.0))
    snapshot = node_pb2.Snapshot(generation=1, vectors=[vector])
    running = start(("engine",))
    request = node_pb2.CommitRequest(snapshot=snapshot)
    assert running.stub.Commit(request, timeout=5).generation == 1
    assert describe(running).generation == 1


def test_commit_for_another_boot_is_refused(start: Callable[..., Running]) -> None:
    """A commit meant for a process that was restarted since does nothing."""
    running = start()
    assert refused(lambda: commit(running, 1, "another")) == ("ABORTED", "BOOT_ID_MISMATCH")
    assert describe(running).generation == 0
    assert commit(running, 1, running.node.boot_id).generation == 1


def test_each_role_takes_only_its_calls(start: Callable[..., Running]) -> None:
    """A worker commits nothing; an engine stages and discards nothing."""
    missing = ("FAILED_PRECONDITION", "ROLE_MISSING")
    worker, engine = start(("worker",)), start(("engine",))
    assert refused(lambda: commit(worker, 1)) == missing
    assert refused(lambda: stage(engine, a_vector())) == missing
    request = node_pb2.DiscardRequest(revisions=["a"])
    assert refused(lambda: engine.stub.Discard(request, timeout=5)) == missing
    assert describe(worker).generation == 0


def test_a_standalone_node_takes_no_orders(start: Callable[..., Running]) -> None:
    """It refuses stage and commit, and still says who it is."""
    running = start(standalone=True)
    standalone = ("FAILED_PRECONDITION", "NODE_STANDALONE")
    assert refused(lambda: stage(running, a_vector())) == standalone
    assert refused(lambda: commit(running, 1)) == standalone
    assert describe(running).standalone


def test_a_disarmed_node_keeps_no_vectors_but_takes_the_policy(
    start: Callable[..., Running],
) -> None:
    """A process that cannot steer refuses vectors, and still admits by the newest policy."""
    running = start(disarmed_reason="no such hook")
    assert refused(lambda: stage(running, a_vector())) == ("FAILED_PRECONDITION", "NODE_DISARMED")
    assert commit(running, 1).generation == 1
    found = describe(running)
    assert (found.armed, found.disarmed_reason) == (False, "no such hook")


def test_report_has_the_roles_it_has(start: Callable[..., Running]) -> None:
    """An engine's counters come from an engine, a worker's from a worker."""
    for roles, engine, worker in (
        (("engine",), True, False),
        (("worker",), False, True),
        (("frontend",), False, False),
        (ALL, True, True),
    ):
        report = start(roles).stub.Report(node_pb2.ReportRequest(), timeout=5)
        assert (report.HasField("engine"), report.HasField("worker")) == (engine, worker)


def test_receipts_are_an_engines(start: Callable[..., Running]) -> None:
    """Those of the request, none if there are none; other processes have the role missing."""
    kept = [receipt_pb2.Receipt(request_id="a", outcome="steered")]
    engine, frontend = start(("engine",), receipts=kept), start(("frontend",))
    ask = node_pb2.GetReceiptsRequest
    assert list(engine.stub.GetReceipts(ask(request_id="a"), timeout=5).receipts) == kept
    assert not engine.stub.GetReceipts(ask(request_id="b"), timeout=5).receipts
    missing = refused(lambda: frontend.stub.GetReceipts(ask(request_id="a"), timeout=5))
    assert missing == ("FAILED_PRECONDITION", "ROLE_MISSING")
