"""TCP: who gets in, and what whoever is in may do."""

import contextlib
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import Fleet, a_file, eventually, refusal_of, refused, upload
from tests.daemon.remote import ROLES, Remote, bearer, made, token_of
from tests.support.certificates import Authority

METHODS = list(pb.DESCRIPTOR.services_by_name["SteeringService"].methods)
# What the issue promises, said here a second time.
LEAST = {
    "RegisterVector": "operator",
    "UpdateVector": "operator",
    "DeleteVector": "operator",
    "SetPolicy": "admin",
}


@pytest.fixture(scope="module")
def remote(shared: Fleet) -> Iterator[Remote]:
    """The daemon that the tests here share."""
    yield from made(shared, shared.root)


@pytest.fixture(scope="module")
def channels(remote: Remote) -> Iterator[dict[str, grpc.Channel]]:
    """A channel for each role, and one of a stranger with a good certificate."""
    opened = {name: remote.channel(name) for name in (*ROLES, "stranger")}
    yield opened
    for channel in opened.values():
        channel.close()


def call(channel: grpc.Channel, method: Any, metadata: Any = None) -> Any:
    """Calls a method with an empty message, and returns the error; None if there is none."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kinds = ("unary", "stream")
    kind = f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}"
    request = iter([b""]) if method.client_streaming else b""
    invoke = getattr(channel, kind)(path)
    try:
        answer = invoke(request, timeout=10, metadata=metadata)
        if method.server_streaming:
            next(answer)
            answer.cancel()
    except grpc.RpcError as error:
        return refusal_of(error)
    return None


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_call_what_it_may(
    channels: dict[str, grpc.Channel], role: str, method: Any
) -> None:
    """Each method: below its role PERMISSION_DENIED, from it on anything but that."""
    refusal = call(channels[role], method)
    least = LEAST.get(method.name, "viewer")
    if ROLES.index(role) < ROLES.index(least):
        assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED", "ROLE_TOO_LOW")
        assert refusal.metadata["caller"] == f"{role}-caller"
        assert refusal.metadata["asked"] == least
    else:
        assert refusal is None or refusal.reason != "ROLE_TOO_LOW"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_stranger_may_call_nothing(channels: dict[str, grpc.Channel], method: Any) -> None:
    """A certificate that our authority signed, of nobody whom the configuration names."""
    refusal = call(channels["stranger"], method)
    assert (refusal.code, refusal.reason) == ("UNAUTHENTICATED", "CALLER_UNKNOWN")
    assert "stranger.example.org" in refusal.message


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_token_decides_who_calls(channels: dict[str, grpc.Channel], method: Any) -> None:
    """An admin with a viewer's token is a viewer, and a stranger may be one."""
    metadata = bearer(token_of("viewer"))
    for name in ("admin", "stranger"):
        refusal = call(channels[name], method, metadata)
        if method.name in LEAST:
            assert refusal.reason == "ROLE_TOO_LOW"
            assert refusal.metadata["caller"] == "viewer-caller"
        else:
            assert refusal is None or refusal.code not in ("UNAUTHENTICATED", "PERMISSION_DENIED")


@pytest.mark.parametrize(
    "metadata",
    [
        bearer("wrong"),
        bearer(""),
        (("authorization", token_of("admin")),),
        (("authorization", f"Basic {token_of('admin')}"),),
        (*bearer(token_of("admin")), *bearer(token_of("admin"))),
        bearer(token_of("admin") + "x"),
    ],
)
def test_a_wrong_token_is_refused_whoever_sends_it(
    channels: dict[str, grpc.Channel], metadata: Any
) -> None:
    """It does not fall back to the certificate."""
    for name in ("admin", "stranger"):
        refusal = call(channels[name], METHODS[1], metadata)
        assert (refusal.code, refusal.reason) == ("UNAUTHENTICATED", "TOKEN_INVALID")


def test_an_operator_may_throw_the_kill_switch_and_nothing_else_of_the_policy(
    remote: Remote, channels: dict[str, grpc.Channel]
) -> None:
    """By the mask; a mask that is wider, or none, is an admin's."""
    stub = remote.stub(channels["operator"])
    for engaged in (True, False):
        request = pb.SetPolicyRequest(policy={"kill_switch": engaged})
        request.update_mask.paths.append("kill_switch")
        assert stub.SetPolicy(request, timeout=5).policy.kill_switch is engaged
    for paths in ((), ("kill_switch", "strict"), ("max_relative_dose",)):
        request = pb.SetPolicyRequest(policy={"kill_switch": True})
        request.update_mask.paths.extend(paths)
        assert refused(lambda r=request: stub.SetPolicy(r, timeout=5)).reason == "ROLE_TOO_LOW"
    viewer = remote.stub(channels["viewer"])
    assert refused(lambda: viewer.SetPolicy(request, timeout=5)).reason == "ROLE_TOO_LOW"


def test_who_did_it_is_in_audit_log_and_vector(
    remote: Remote, channels: dict[str, grpc.Channel]
) -> None:
    """By the caller's name; of the Unix socket it is "local"."""
    stub = remote.stub(channels["operator"])
    vector = stub.RegisterVector(iter(upload("joy", a_file(), chunk=64)), timeout=10).vector
    assert vector.owner == "operator-caller"
    again = remote.daemon.register("joy", a_file(2.0)).vector
    assert again.owner == "operator-caller"
    remote.daemon.delete("joy")
    callers = [line["caller"] for line in remote.daemon.log("audit", vector="joy")]
    assert callers == ["operator-caller", "local", "local"]
    assert remote.daemon.log("rpc", method="RegisterVector", caller="operator-caller")
    assert remote.daemon.log("refused", reason="ROLE_TOO_LOW", caller="viewer-caller")
    assert not any(token_of("admin") in str(line) for line in remote.daemon.log("refused"))


def test_health_is_told_to_callers_only(channels: dict[str, grpc.Channel]) -> None:
    """As by any other method."""
    request = health_pb2.HealthCheckRequest()
    stub = health_pb2_grpc.HealthStub(channels["viewer"])
    assert stub.Check(request, timeout=5).status == health_pb2.HealthCheckResponse.SERVING
    stranger = health_pb2_grpc.HealthStub(channels["stranger"])
    assert refused(lambda: stranger.Check(request, timeout=5)).reason == "CALLER_UNKNOWN"
    watch = health_pb2_grpc.HealthStub(channels["viewer"]).Watch(request, timeout=5)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


def reflected(channel: grpc.Channel) -> list[str]:
    """Returns the services that reflection names."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    answer = next(stub.ServerReflectionInfo(iter([request]), timeout=5))
    return [service.name for service in answer.list_services_response.service]


def test_tcp_tells_nobody_which_methods_there_are(
    remote: Remote, channels: dict[str, grpc.Channel]
) -> None:
    """Not even an admin; the Unix socket does."""
    with pytest.raises(grpc.RpcError) as caught:
        reflected(channels["admin"])
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "hotwired.v1.SteeringService" in reflected(remote.daemon.channel)


@pytest.mark.parametrize("which", ["none", "expired", "not yet", "another authority", "server"])
def test_a_connection_without_a_good_certificate_is_refused(
    remote: Remote, tmp_path: Path, which: str
) -> None:
    """In the handshake, before any method; a client in turn refuses a server it does not know."""
    other = Authority(tmp_path, "other")
    san = "spiffe://example.org/admin"
    pairs = {
        "none": None,
        "expired": remote.ca.issue("expired", san, days=-1),
        "not yet": remote.ca.issue("early", san, days=30),
        "another authority": other.issue("admin", san),
        "server": remote.pairs["admin"],
    }
    ca = other.file if which == "server" else None
    with remote.channel(pairs[which], ca) as channel, pytest.raises(grpc.RpcError) as caught:
        remote.stub(channel).GetPolicy(pb.GetPolicyRequest(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def handshake(remote: Remote, highest: ssl.TLSVersion | None = None) -> tuple[str | None, int]:
    """Shakes hands as an admin; returns the version of TLS and the server's serial number."""
    context = ssl.create_default_context(cafile=str(remote.ca.file))
    pair = remote.pairs["admin"]
    context.load_cert_chain(pair.certificate, pair.key)
    context.set_alpn_protocols(["h2"])
    if highest is not None:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, highest
    host, _, port = remote.address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        certificate = secured.getpeercert()
        assert certificate is not None
        return secured.version(), int(str(certificate["serialNumber"]), 16)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(remote: Remote) -> None:
    """1.2 is the least."""
    assert handshake(remote, ssl.TLSVersion.TLSv1_2)[0] == "TLSv1.2"
    assert handshake(remote)[0] == "TLSv1.3"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(remote, ssl.TLSVersion.TLSv1_1)


def test_plain_text_is_refused(remote: Remote) -> None:
    """Neither gRPC nor a bare HTTP/2 preface gets an answer."""
    with grpc.insecure_channel(remote.address) as channel, pytest.raises(grpc.RpcError) as caught:
        remote.stub(channel).GetPolicy(
            pb.GetPolicyRequest(), timeout=5, metadata=bearer(token_of("admin"))
        )
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    host, _, port = remote.address.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        plain.settimeout(5)
        with contextlib.suppress(ConnectionError):
            answer = plain.recv(64)
            assert answer[:1] in {b"", b"\x15"}, "the end, or an alert of TLS"


def test_certificates_are_reloaded_without_a_restart(remote: Remote) -> None:
    """By the next handshake after a change; broken files are told of and change nothing."""
    daemon, first = remote.daemon, remote.server.serial
    assert handshake(remote)[1] == first
    with remote.channel("viewer") as old:
        stub = remote.stub(old)
        stub.GetPolicy(pb.GetPolicyRequest(), timeout=5)
        good = remote.server.certificate.read_bytes()
        remote.server.certificate.write_bytes(good[:200])
        assert handshake(remote)[1] == first
        assert handshake(remote)[1] == first
        (told,) = daemon.log("certificates not reloaded")
        assert told["reason"] == "CERTIFICATE_INVALID"
        assert str(remote.server.certificate) in told["error"]
        second = remote.ca.issue("server", "localhost", "127.0.0.1").serial
        assert second != first
        assert handshake(remote)[1] == second
        stub.GetPolicy(pb.GetPolicyRequest(), timeout=5)
    reloads = len(daemon.log("certificates reloaded"))
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)

    def reloaded_again() -> bool:
        return handshake(remote)[1] == second and len(daemon.log("certificates reloaded")) > reloads

    eventually(reloaded_again)


def test_a_new_authority_counts_from_the_next_handshake_on(remote: Remote, tmp_path: Path) -> None:
    """Its clients get in, those of the old one don't."""
    before = remote.ca.file.read_bytes()
    other = Authority(tmp_path, "other")
    newcomer = other.issue("admin", "spiffe://example.org/admin")
    old_ca = tmp_path / "old.pem"
    old_ca.write_bytes(before)
    remote.ca.file.write_bytes(other.file.read_bytes())
    try:
        with remote.channel(newcomer, old_ca) as channel:
            remote.stub(channel).GetPolicy(pb.GetPolicyRequest(), timeout=5)
        with remote.channel("admin", old_ca) as channel, pytest.raises(grpc.RpcError):
            remote.stub(channel).GetPolicy(pb.GetPolicyRequest(), timeout=5)
    finally:
        remote.ca.file.write_bytes(before)
    with remote.channel("admin") as channel:
        remote.stub(channel).GetPolicy(pb.GetPolicyRequest(), timeout=5)
