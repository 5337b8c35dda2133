"""A download that is not what it says is never handed out."""

import hashlib

import pytest

from hotwire_client import DataLossError
from hotwire_client.downloads import Assembly
from hotwired.v1.steering_service_pb2 import DownloadVectorHeader, DownloadVectorResponse

DATA = b"0123456789"


def messages(*chunks: bytes, **header: object) -> list[DownloadVectorResponse]:
    """Returns a header for DATA, with changes, and chunks."""
    fields = {"sha256": hashlib.sha256(DATA).hexdigest(), "size_bytes": len(DATA), **header}
    first = DownloadVectorResponse(header=DownloadVectorHeader(**fields))  # type: ignore[arg-type]
    return [first, *(DownloadVectorResponse(chunk=chunk) for chunk in chunks)]


def assembled(sent: list[DownloadVectorResponse]) -> bytes:
    """Returns the bytes of a download."""
    assembly = Assembly()
    for message in sent:
        assembly.take(message)
    return assembly.whole().data


def test_chunks_become_the_file() -> None:
    """However they are cut."""
    assert assembled(messages(DATA)) == DATA
    assert assembled(messages(*(DATA[i : i + 1] for i in range(10)))) == DATA


@pytest.mark.parametrize(
    "sent",
    [
        [],
        messages(DATA)[1:],
        messages(DATA[:-1]),
        messages(DATA, b"more"),
        messages(DATA[::-1]),
        messages(DATA, sha256="0" * 64),
        messages(DATA, size_bytes=11),
        messages(DATA, size_bytes=1 << 62),
    ],
    ids=["nothing", "no header", "short", "long", "other", "digest", "size", "huge"],
)
def test_what_does_not_fit_is_refused(sent: list[DownloadVectorResponse]) -> None:
    """DATA_LOSS with one reason."""
    with pytest.raises(DataLossError) as caught:
        assembled(sent)
    assert caught.value.reason == "DOWNLOAD_DAMAGED"
