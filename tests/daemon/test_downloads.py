"""What DownloadVector sends: the canonical bytes, or a typed refusal and no bytes."""

import hashlib
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import Daemon, Fleet, a_file, refused

CHUNK = 1 << 20


@pytest.fixture(scope="module")
def daemon(shared: Fleet) -> Daemon:
    """One daemon, without nodes."""
    return shared.daemon()


def download(daemon: Daemon, name: str, revision: str = "") -> list[pb.DownloadVectorResponse]:
    """Returns all messages."""
    request = pb.DownloadVectorRequest(name=name, revision=revision)
    return list(daemon.stub.DownloadVector(request, timeout=10))


def body(messages: list[Any]) -> bytes:
    """Returns the bytes of all chunks."""
    return b"".join(message.chunk for message in messages[1:])


def test_what_was_registered_comes_back(daemon: Daemon) -> None:
    """Header first; the rows to the bit; the sha256 is the revision; one line in the log."""
    rows = np.random.default_rng(3).standard_normal((6, 16)).astype(np.float32)
    made = daemon.register("joy", safetensors.numpy.save({"v": rows}, {"mood": "glad"})).vector
    header, *chunks = download(daemon, "joy")
    assert header.header.vector == made
    assert (header.header.sha256, header.header.size_bytes) == (made.revision, made.size_bytes)
    data = body([header, *chunks])
    assert hashlib.sha256(data).hexdigest() == made.revision
    assert np.array_equal(safetensors.numpy.load(data)["vector"], rows)
    assert daemon.log("rpc", method="DownloadVector", code="OK", vector="joy")


def test_a_large_one_comes_in_chunks(daemon: Daemon) -> None:
    """Each of 1 MiB but for the last, and it goes on though the name is deleted meanwhile."""
    made = daemon.register("large", a_file(layers=100, width=8192)).vector
    stream = daemon.stub.DownloadVector(pb.DownloadVectorRequest(name="large"), timeout=20)
    messages = [next(stream), next(stream)]
    daemon.delete("large")
    messages += list(stream)
    sizes = [len(message.chunk) for message in messages[1:]]
    assert set(sizes[:-1]) == {CHUNK}
    assert 0 < sizes[-1] <= CHUNK
    assert hashlib.sha256(body(messages)).hexdigest() == made.revision


def test_a_canary_is_had_by_its_revision(daemon: Daemon) -> None:
    """A revision is the name's own or its canary; no other."""
    daemon.register("two", a_file(1.0))
    vector = daemon.register("two", a_file(2.0), canary_percent=5).vector
    own, canary = vector.revision, vector.canary.revision
    for revision in (own, canary):
        (first, *rest) = download(daemon, "two", revision)
        assert first.header.sha256 == revision == hashlib.sha256(body([first, *rest])).hexdigest()
    found = refused(lambda: download(daemon, "two", "0" * 64))
    assert (found.code, found.reason) == ("ABORTED", "REVISION_MISMATCH")


def test_an_unknown_name_is_refused(daemon: Daemon) -> None:
    """With the nearest name."""
    daemon.register("near", a_file())
    found = refused(lambda: download(daemon, "neat"))
    assert (found.code, found.reason) == ("NOT_FOUND", "VECTOR_NOT_FOUND")
    assert found.metadata["near"] == "near"


def test_damaged_bytes_are_never_sent(daemon: Daemon) -> None:
    """Not even their header: the blob is set aside, and the next call says the same."""
    revision = daemon.register("hurt", a_file(7.0)).vector.revision
    blob = daemon.state_dir / "blobs" / revision
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    for _ in range(2):
        found = refused(lambda: download(daemon, "hurt"))
        assert (found.code, found.reason) == ("DATA_LOSS", "BLOB_CORRUPT")
    assert not blob.exists()
    assert daemon.register("hurt", a_file(7.0)).vector.revision == revision
    assert body(download(daemon, "hurt"))
