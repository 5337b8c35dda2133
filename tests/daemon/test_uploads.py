"""What bad input gets: a typed refusal that names the field, and nothing left anywhere."""

import struct
import time
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import safetensors.numpy

from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import (
    HIDDEN,
    LAYERS,
    Daemon,
    Fleet,
    Instance,
    a_file,
    eventually,
    refused,
    upload,
)

MIB = 1 << 20


@pytest.fixture(scope="module")
def daemon(shared: Fleet) -> Daemon:
    """One daemon, whose uploads stall after half a second and end at 1 MiB."""
    daemon = shared.daemon("--upload-stall-seconds", "0.5", "--max-vector-mib", "3")
    daemon.register("kept", a_file(9.0))
    return daemon


@pytest.fixture(scope="module")
def instance(shared: Fleet, daemon: Daemon) -> Instance:
    """One fp16 model with two workers."""
    instance = shared.instance(tp_size=2, dtype="float16")
    daemon.wait_for(4)
    return instance


@pytest.fixture
def untouched(daemon: Daemon, instance: Instance) -> Iterator[None]:
    """Fails if the test changed anything: names, blobs, generation, workers, snapshot."""

    def state() -> tuple[object, ...]:
        return (
            daemon.names(),
            daemon.blobs(),
            daemon.generation(),
            instance.held(0),
            instance.held(1),
            instance.snapshot(),
        )

    before = state()
    yield
    assert state() == before
    assert set(daemon.states().values()) == {"CONVERGED"}


pytestmark = pytest.mark.usefixtures("untouched")


def saved(rows: Any, **metadata: str) -> bytes:
    """Returns a file with one tensor."""
    return safetensors.numpy.save({"v": np.asarray(rows)}, metadata or None)


def spoilt(value: float, dtype: type = np.float32) -> bytes:
    """Returns a file with one odd value, at layer 2, index 3."""
    rows = np.ones((LAYERS, HIDDEN), dtype)
    rows[2, 3] = value
    return saved(rows)


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "no safetensors": (b"hello world, this is no vector", "VECTOR_FORMAT_INVALID"),
    "a lying header length": (struct.pack("<Q", 2**64 - 1) + b"{}", "VECTOR_FORMAT_INVALID"),
    "lying offsets": (a_file()[:-4], "VECTOR_FORMAT_INVALID"),
    "a pickle": (b"\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00", "VECTOR_FORMAT_INVALID"),
    "an integer dtype": (saved(np.ones((2, HIDDEN), np.int32)), "VECTOR_FORMAT_INVALID"),
    "three dimensions": (saved(np.ones((1, 2, HIDDEN), np.float32)), "VECTOR_FORMAT_INVALID"),
    "NaN": (spoilt(np.nan), "VECTOR_NOT_FINITE"),
    "Inf": (spoilt(np.inf), "VECTOR_NOT_FINITE"),
    "-Inf": (spoilt(-np.inf), "VECTOR_NOT_FINITE"),
    "float64 over float32": (spoilt(1e300, np.float64), "VECTOR_NOT_FINITE"),
    "over the model's fp16": (spoilt(70_000.0), "VECTOR_NOT_FINITE"),
    "too narrow": (a_file(width=HIDDEN - 1), "VECTOR_SHAPE_MISMATCH"),
    "too wide": (a_file(width=HIDDEN * 2), "VECTOR_SHAPE_MISMATCH"),
    "a layer too many": (a_file(layers=LAYERS + 1), "VECTOR_SHAPE_MISMATCH"),
    "a layer out of range": (saved(np.ones(HIDDEN, "f4"), layers="6"), "VECTOR_SHAPE_MISMATCH"),
    "a layer twice": (saved(np.ones((2, HIDDEN), "f4"), layers="1,1"), "VECTOR_SHAPE_MISMATCH"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused(daemon: Daemon, case: str) -> None:
    """Each has its reason and blames the file."""
    data, reason = BAD_FILES[case]
    found = refused(lambda: daemon.register("bad", data))
    assert (found.code, found.reason, found.fields) == ("INVALID_ARGUMENT", reason, ["chunk"])


def test_not_finite_is_located(daemon: Daemon) -> None:
    """Layer and index are in the message and in the metadata."""
    for data in (spoilt(np.nan), spoilt(70_000.0)):
        found = refused(lambda data=data: daemon.register("bad", data))
        assert found.metadata == {"where": "layer 2", "index": "3"}
        assert "layer 2, index 3" in found.message


def test_a_file_cut_at_every_twentieth(daemon: Daemon) -> None:
    """A half-written file is refused, whether or not its size was declared truly."""
    whole = a_file()
    for twentieth in range(1, 20):
        half = whole[: len(whole) * twentieth // 20]
        assert refused(lambda half=half: daemon.register("cut", half)).reason == (
            "VECTOR_FORMAT_INVALID"
        )
        found = refused(
            lambda half=half: daemon.stub.RegisterVector(
                iter([*upload("cut", whole)[:1], *upload("cut", half)[1:]]), timeout=10
            )
        )
        assert (found.code, found.reason) == ("INVALID_ARGUMENT", "SIZE_MISMATCH")


HOSTILE_NAMES = [
    "",
    "Joy",
    "../joy",
    "joy/x",
    "/etc/passwd",
    ".joy",
    "-joy",
    "_joy",
    "joy joy",
    "joy\n",
    "joy\x00",
    "\x1b[31mjoy",
    "jоy",
    "joy\u202e",
    "j" * 64,
    "j" * 300,
    "j" * 100_000,
    "😀",
    "'; DROP TABLE vectors; --",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_hostile_names_are_refused(daemon: Daemon, name: str) -> None:
    """The refusal names the rule, and repeats the name only escaped and cut."""
    found = refused(lambda: daemon.register(name))
    assert (found.code, found.reason) == ("INVALID_ARGUMENT", "NAME_INVALID")
    assert found.fields == ["header.name"]
    assert found.message.isascii()
    assert found.message.isprintable()
    assert len(found.message) < 400


def test_names_at_the_edge_of_the_rule_are_good(daemon: Daemon) -> None:
    """One character, 63 characters, and all the characters there are."""
    for name in ("a", "0", "a" * 63, "a-b_c.d", "9..--__"):
        assert daemon.register(name, validate_only=True).vector.name == name


BAD_HEADERS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "another digest": (
        {"sha256": "0" * 64},
        "INVALID_ARGUMENT",
        "DIGEST_MISMATCH",
        "header.sha256",
    ),
    "no digest": ({"sha256": ""}, "INVALID_ARGUMENT", "UPLOAD_INVALID", "header.sha256"),
    "digest in upper case": (
        {"sha256": "A" * 64},
        "INVALID_ARGUMENT",
        "UPLOAD_INVALID",
        "header.sha256",
    ),
    "no size": ({"size_bytes": 0}, "INVALID_ARGUMENT", "UPLOAD_INVALID", "header.size_bytes"),
    "a size too small": (
        {"size_bytes": 10},
        "INVALID_ARGUMENT",
        "SIZE_MISMATCH",
        "header.size_bytes",
    ),
    "a size too large": (
        {"size_bytes": 10_000},
        "INVALID_ARGUMENT",
        "SIZE_MISMATCH",
        "header.size_bytes",
    ),
    "a size over the limit": (
        {"size_bytes": 3 * MIB + 1},
        "RESOURCE_EXHAUSTED",
        "VECTOR_TOO_LARGE",
        "header.size_bytes",
    ),
    "a size of 2**64-1": (
        {"size_bytes": 2**64 - 1},
        "RESOURCE_EXHAUSTED",
        "VECTOR_TOO_LARGE",
        "header.size_bytes",
    ),
    "a model's name too long": (
        {"model": "m" * 1000},
        "INVALID_ARGUMENT",
        "UPLOAD_INVALID",
        "header.model",
    ),
    "another model": (
        {"model": "org/other"},
        "INVALID_ARGUMENT",
        "VECTOR_SHAPE_MISMATCH",
        "header.model",
    ),
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_bad_headers_are_refused(daemon: Daemon, case: str) -> None:
    """Each names the field of the header that is wrong."""
    header, code, reason, field = BAD_HEADERS[case]
    found = refused(lambda: daemon.register("bad", **header))
    assert (found.code, found.reason, found.fields) == (code, reason, [field])


def chunk(data: bytes = b"1234") -> pb.RegisterVectorRequest:
    """Returns a chunk."""
    return pb.RegisterVectorRequest(chunk=data)


HEADER = upload("bad", a_file())[0]
BAD_STREAMS: dict[str, tuple[list[pb.RegisterVectorRequest], str]] = {
    "nothing": ([], "header"),
    "a chunk first": ([chunk()], "header"),
    "an empty message first": ([pb.RegisterVectorRequest()], "header"),
    "two headers": ([HEADER, HEADER], "chunk"),
    "an empty message": ([HEADER, pb.RegisterVectorRequest()], "chunk"),
    "an empty chunk": ([HEADER, chunk(b"")], "chunk"),
    "a chunk over 1 MiB": ([HEADER, chunk(b"x" * (MIB + 1))], "chunk"),
}


@pytest.mark.parametrize("case", BAD_STREAMS)
def test_bad_streams_are_refused(daemon: Daemon, case: str) -> None:
    """One header, then chunks of 1 byte to 1 MiB."""
    messages, field = BAD_STREAMS[case]
    found = refused(lambda: daemon.stub.RegisterVector(iter(messages), timeout=5))
    assert (found.code, found.reason) == ("INVALID_ARGUMENT", "UPLOAD_INVALID")
    assert found.fields == [field]


def test_a_message_over_the_transports_limit(daemon: Daemon) -> None:
    """It is refused before it is read."""
    with pytest.raises(grpc.RpcError) as caught:
        daemon.stub.RegisterVector(iter([HEADER, chunk(b"x" * (5 * MIB))]), timeout=5)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("sent", [0, 1, 2])
def test_a_stalled_upload_times_out(daemon: Daemon, sent: int) -> None:
    """A client that stops sending is not waited for, wherever it stops."""

    def stalling() -> Iterator[pb.RegisterVectorRequest]:
        yield from upload("bad", a_file(), chunk=64)[:sent]
        time.sleep(3)

    started = time.monotonic()
    found = refused(lambda: daemon.stub.RegisterVector(stalling(), timeout=10))
    assert (found.code, found.reason) == ("DEADLINE_EXCEEDED", "UPLOAD_STALLED")
    assert time.monotonic() - started < 2.5


def test_a_client_that_goes_away_leaves_nothing(daemon: Daemon) -> None:
    """A cancelled upload is logged as such."""

    def endless() -> Iterator[pb.RegisterVectorRequest]:
        yield from upload("gone", a_file(), chunk=64)[:3]
        time.sleep(0.3)

    before = len(daemon.log("rpc", method="RegisterVector", code="CANCELLED"))
    call = daemon.stub.RegisterVector.future(endless(), timeout=5)
    time.sleep(0.1)
    call.cancel()
    eventually(lambda: len(daemon.log("rpc", method="RegisterVector", code="CANCELLED")) > before)


def test_uploads_under_way_are_limited_together(daemon: Daemon) -> None:
    """What clients declare counts: a crowd cannot take all the memory."""

    def slow(name: str) -> Iterator[pb.RegisterVectorRequest]:
        yield from upload(name, a_file(), size_bytes=3 * MIB)[:1]
        time.sleep(0.4)

    calls = [daemon.stub.RegisterVector.future(slow(f"v{i}"), timeout=5) for i in range(3)]
    reasons = sorted(refused(call.result).reason for call in calls)
    assert reasons == ["SIZE_MISMATCH", "SIZE_MISMATCH", "UPLOADS_BUSY"]


@pytest.mark.parametrize(
    ("kind", "method", "raw"),
    [
        ("unary_unary", "GetVector", b"\xff\xff\xff\xff"),
        ("unary_unary", "GetVector", b"\x0a\x02\xff\xfe"),
        ("unary_unary", "SetPolicy", b"\x0a\x04\x42\x02\xff\xfe"),
        ("stream_unary", "RegisterVector", b"\xff\xff\xff\xff"),
        ("stream_unary", "RegisterVector", b"\x0a\x04\x0a\x02\xff\xfe"),
        ("unary_stream", "WatchStats", b"\xff\xff\xff\xff"),
        ("unary_stream", "DownloadVector", b"\xff\xff\xff\xff"),
        ("unary_unary", "grpc.health.v1.Health/Check", b"\xff\xff\xff\xff"),
        ("unary_stream", "grpc.health.v1.Health/Watch", b"\xff\xff\xff\xff"),
        (
            "stream_stream",
            "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            b"\xff\xff\xff\xff",
        ),
    ],
)
def test_bytes_that_are_no_message_are_never_unknown(
    daemon: Daemon, kind: str, method: str, raw: bytes
) -> None:
    """Not protobuf, or not UTF-8 where text is due: a refusal with a reason of ours."""
    path = method if "/" in method else f"hotwired.v1.SteeringService/{method}"
    call = getattr(daemon.channel, kind)(f"/{path}")
    request = iter([raw]) if kind.startswith("stream") else raw
    found = refused(
        lambda: (
            list(call(request, timeout=5)) if kind.endswith("stream") else call(request, timeout=5)
        )
    )
    assert (found.code, found.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID")
