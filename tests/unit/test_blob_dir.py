"""Blobs on disk: whole or absent, checked when read, swept at the start."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hotwired.blobs import BlobDir
from hotwired.errors import BlobCorrupt
from hotwired.vector_file import revision_of

DATA = b"canonical bytes"
REVISION = revision_of(DATA)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., BlobDir]:
    """Opens the blobs of one state directory."""

    def run(**referenced: int) -> BlobDir:
        blobs = BlobDir(tmp_path / "blobs", tmp_path / "quarantine")
        blobs.open(referenced)
        return blobs

    return run


def names(blobs: BlobDir) -> list[str]:
    """Returns the files there are."""
    return sorted(path.name for path in blobs.directory.iterdir())


def test_what_is_put_is_read(make: Callable[..., BlobDir]) -> None:
    """Also by the next process; putting it again writes nothing."""
    blobs = make()
    assert blobs.put(REVISION, DATA)
    assert not blobs.put(REVISION, DATA)
    assert blobs.read(REVISION) == DATA
    assert blobs.total_bytes == len(DATA)
    again = make(**{REVISION: len(DATA)})
    assert again.read(REVISION) == DATA
    assert names(again) == [REVISION]
    again.remove(REVISION)
    assert names(again) == []
    assert again.total_bytes == 0


def test_orphans_and_partial_files_are_swept(make: Callable[..., BlobDir]) -> None:
    """What a crash left between blob and row, or within a blob, is gone after the start."""
    blobs = make()
    blobs.put(REVISION, DATA)
    blobs.put(revision_of(b"orphan"), b"orphan")
    (blobs.directory / ".partial-1234").write_bytes(b"half")
    assert names(make(**{REVISION: len(DATA)})) == [REVISION]


@pytest.mark.parametrize("content", [b"canonical bytez", b"canonical", b"", None])
def test_a_damaged_blob_is_set_aside(
    make: Callable[..., BlobDir], tmp_path: Path, content: bytes | None
) -> None:
    """Flipped, cut, empty or missing: the reader hears of it, once and from then on."""
    blobs = make()
    blobs.put(REVISION, DATA)
    file = blobs.directory / REVISION
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    for _ in range(2):
        with pytest.raises(BlobCorrupt):
            blobs.read(REVISION)
    assert blobs.unreadable == {REVISION}
    assert (tmp_path / "quarantine" / REVISION).exists() == (content is not None)
    assert names(blobs) == []
    assert blobs.put(REVISION, DATA)
    assert blobs.read(REVISION) == DATA
    assert not blobs.unreadable


def test_missing_and_cut_blobs_are_known_from_the_start(make: Callable[..., BlobDir]) -> None:
    """Sizes are compared without reading all of them; the others are served."""
    blobs = make()
    blobs.put(REVISION, DATA)
    other = revision_of(b"other")
    assert make(**{REVISION: len(DATA) + 1, other: 5}).unreadable == {REVISION, other}


def test_a_failed_write_leaves_nothing(
    make: Callable[..., BlobDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a partial file nor the belief that the blob is there."""
    blobs = make()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hotwired.blobs.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        blobs.put(REVISION, DATA)
    assert names(blobs) == []
    assert not blobs.has(REVISION)
