"""What a caller may take: calls, bytes, names; and messages that are too large for anybody."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hotwire_client import Client, ResourceExhaustedError
from hotwire_plugin.node_service import MAX_MESSAGE
from hotwired.accounts import MAX_STREAMS
from hotwired.node.v1 import node_pb2, node_pb2_grpc
from hotwired.run_dir import socket_path, target_of
from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import Fleet, a_file, eventually, failed_start, refused, upload
from tests.daemon.remote import Remote, made
from tests.daemon.test_remote import reflected

MIB = 1 << 20
LIMITS = """
[rates]
writes_per_second = 0.01
write_burst = 4
reads_per_second = 0.01
read_burst = 3
[quotas]
vectors = 1
upload_bytes_per_hour = "2 KiB"
"""


@pytest.fixture
def remote(fleet: Fleet, short_dir: Path) -> Iterator[Remote]:
    """A daemon with small limits, and reflection on TCP."""
    yield from made(fleet, short_dir, LIMITS, "reflection = true")


def register(
    stub: Any, name: str, value: float = 1.0, layers: int = 1
) -> pb.RegisterVectorResponse:
    """Registers a file of so many layers."""
    return stub.RegisterVector(iter(upload(name, a_file(value, layers))), timeout=5)


def test_a_caller_reads_so_many_streams_at_once(fleet: Fleet, short_dir: Path) -> None:
    """However slowly; who ends one may begin another, and the kill switch is no stream."""
    (remote,) = made(fleet, short_dir)
    with remote.channel("viewer") as channel:
        stub, watch = remote.stub(channel), pb.WatchStatsRequest(interval_seconds=60)
        streams = [stub.WatchStats(watch, timeout=30) for _ in range(MAX_STREAMS)]
        for stream in streams:
            next(stream)
        found = refused(lambda: next(stub.WatchStats(watch, timeout=5)))
        assert (found.reason, found.metadata["kind"]) == ("RATE_LIMITED", "stream")
        streams.pop().cancel()
        eventually(lambda: remote.daemon.log("rpc", method="WatchStats", code="CANCELLED"))
        next(stub.WatchStats(watch, timeout=5))


def test_rates_quotas_and_what_is_exempt(remote: Remote) -> None:
    """Each caller has its own; the kill switch and the Unix socket have none."""
    with remote.channel("admin") as channel, remote.channel("viewer") as other:
        stub, viewer, get = remote.stub(channel), remote.stub(other), pb.GetPolicyRequest()
        for _ in range(3):
            stub.GetPolicy(get, timeout=5)
        limited = refused(lambda: stub.GetPolicy(get, timeout=5))
        assert (limited.code, limited.reason) == ("RESOURCE_EXHAUSTED", "RATE_LIMITED")
        assert limited.metadata["kind"] == "read"
        assert 0 < limited.retry_seconds <= 100
        viewer.GetPolicy(get, timeout=5)

        assert register(stub, "joy").vector.owner == "admin-caller"
        more = refused(lambda: register(stub, "awe"))
        assert (more.reason, more.metadata["quota"]) == ("QUOTA_EXCEEDED", "vectors")
        assert register(stub, "joy", 2.0).vector.name == "joy", "its own name, anew"
        large = refused(lambda: register(stub, "joy", layers=60))
        assert (large.reason, large.metadata["quota"]) == (
            "QUOTA_EXCEEDED",
            "upload_bytes_per_hour",
        )
        assert large.fields == ["header.size_bytes"]
        assert (
            refused(
                lambda: stub.DeleteVector(pb.DeleteVectorRequest(name="joy"), timeout=5)
            ).metadata["kind"]
            == "write"
        )

        switch = pb.SetPolicyRequest(policy={"kill_switch": True})
        switch.update_mask.paths.append("kill_switch")
        for _ in range(9):
            assert stub.SetPolicy(switch, timeout=5).policy.kill_switch
    for number in range(9):
        remote.daemon.register(f"v{number}", a_file(layers=9))
    with remote.channel("operator") as channel:
        assert "hotwired.v1.SteeringService" in reflected(channel)


def test_a_message_that_is_too_large_gets_a_reason(shared: Fleet) -> None:
    """Up to the transport's limit from the daemon, above that from the client; then all goes on."""
    daemon = shared.daemon()
    for size in (4 * MIB + 1, 15 * MIB):
        request = pb.GetVectorRequest(name="x" * size)
        refusal = refused(lambda r=request: daemon.stub.GetVector(r, timeout=10))
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE")
        assert refusal.metadata == {"bytes": str(request.ByteSize()), "limit": str(4 * MIB)}
    header, *_ = upload("joy", a_file())
    chunk = pb.RegisterVectorRequest(chunk=bytes(5 * MIB))
    refusal = refused(lambda: daemon.stub.RegisterVector(iter([header, chunk]), timeout=10))
    assert refusal.reason == "MESSAGE_TOO_LARGE"
    with Client(f"unix:{daemon.socket}") as client:
        for size, limit in ((5 * MIB, 4 * MIB), (17 * MIB, 16 * MIB)):
            with pytest.raises(ResourceExhaustedError) as caught:
                client.get_vector("x" * size)
            assert caught.value.reason == "MESSAGE_TOO_LARGE"
            assert caught.value.metadata["limit"] == str(limit)
            assert int(caught.value.metadata["bytes"]) > size
    assert daemon.register("joy").vector.name == "joy"
    daemon.delete("joy")


def test_a_node_refuses_such_a_message_too(shared: Fleet) -> None:
    """64 MiB is the limit there; bytes that are no message get a reason as well."""
    shared.instance("big")
    path = socket_path(shared.root / "run", "big", "worker", 0, 0, 0)
    options = (("grpc.max_send_message_length", -1),)
    with grpc.insecure_channel(target_of(path), options) as channel:
        stub = node_pb2_grpc.NodeServiceStub(channel)
        request = node_pb2.DiscardRequest(revisions=["x" * (MAX_MESSAGE + 1)])
        refusal = refused(lambda: stub.Discard(request, timeout=20))
        assert refusal.reason == "MESSAGE_TOO_LARGE"
        assert refusal.metadata["limit"] == str(MAX_MESSAGE)
        raw = channel.unary_unary("/hotwired.node.v1.NodeService/Describe")
        assert refused(lambda: raw(b"\xff", timeout=5)).reason == "REQUEST_INVALID"
        raw_stage = channel.stream_unary("/hotwired.node.v1.NodeService/Stage")
        assert refused(lambda: raw_stage(iter([b"\xff"]), timeout=5)).reason == "REQUEST_INVALID"


@pytest.mark.parametrize("what", ["missing", "no pair", "encrypted", "no authority", "taken"])
def test_a_daemon_whose_tls_is_not_in_order_does_not_start(
    fleet: Fleet, short_dir: Path, what: str
) -> None:
    """It says which setting and which file."""
    (remote,) = made(fleet, short_dir)
    fleet.close()
    text = remote.config.read_text()
    expected = "tcp.certificate"
    if what == "missing":
        remote.server.certificate.unlink()
    elif what == "no pair":
        remote.server.key.write_bytes(remote.pairs["admin"].key.read_bytes())
    elif what == "encrypted":
        remote.server.key.write_text(
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
        )
    elif what == "no authority":
        remote.ca.file.write_text("nothing")
        expected = "tcp.client_ca"
    else:
        text = text.replace("127.0.0.1:0", "203.0.113.1:1")
        expected = "tcp.listen"
    remote.config.write_text(text)
    assert expected in failed_start(remote.daemon, "--config", str(remote.config))
