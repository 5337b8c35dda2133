"""What a worker keeps: checked vectors, within its memory."""

import threading

import numpy as np
import pytest

from hotwire_plugin.blobs import BlobStore
from hotwired.errors import DigestMismatch, VectorNotFinite, VectorShapeMismatch, VectorTooLarge
from hotwired.vector_file import VectorData, canonical_bytes, revision_of

HIDDEN, LAYERS = 16, 6


def a_store(max_bytes: int = 1 << 20) -> BlobStore:
    """Returns an empty store of a small fp16 model."""
    return BlobStore(HIDDEN, LAYERS, "float16", max_bytes)


def a_vector(value: float = 1.0, rows: int = 2) -> VectorData:
    """Returns a vector of the first layers."""
    return VectorData(tuple(range(rows)), False, np.full((rows, HIDDEN), value, np.float32), "F32")


def test_staged_rows_come_back_as_they_were() -> None:
    """The rows are the same float32 numbers, contiguous, and writable for torch's sake."""
    store, vector = a_store(), a_vector(0.1)
    data = canonical_bytes(vector)
    assert not store.stage(revision_of(data), data)
    rows = store.get(revision_of(data)).rows
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert rows.flags.writeable
    np.testing.assert_array_equal(rows, vector.rows)


def test_memory_is_counted_and_limited() -> None:
    """The limit counts what is held; what is discarded makes room."""
    store = a_store(max_bytes=2 * HIDDEN * 4)
    first = canonical_bytes(a_vector(1.0))
    store.stage(revision_of(first), first)
    assert store.bytes_held == 2 * HIDDEN * 4
    second = canonical_bytes(a_vector(2.0))
    with pytest.raises(VectorTooLarge):
        store.stage(revision_of(second), second)
    with pytest.raises(VectorTooLarge):
        store.stage(revision_of(second), second, validate_only=True)
    assert store.discard([revision_of(first)]) == [revision_of(first)]
    assert store.bytes_held == 0
    store.stage(revision_of(second), second)


def test_bad_vectors_are_refused() -> None:
    """Digest, width, layers and the cast to fp16 are checked, for uploads and for our own."""
    store = a_store()
    data = canonical_bytes(a_vector())
    with pytest.raises(DigestMismatch):
        store.stage("0" * 64, data)
    with pytest.raises(VectorShapeMismatch):
        store.add(a_vector(rows=LAYERS + 1))
    with pytest.raises(VectorNotFinite):
        store.add(a_vector(1e5))
    assert store.revisions() == []


def test_add_and_stage_give_the_same_revision() -> None:
    """A vector is known by its content, whichever way it came."""
    store, vector = a_store(), a_vector()
    data = canonical_bytes(vector)
    assert store.add(vector) == revision_of(data)
    assert store.stage(revision_of(data), data)
    assert store.add(vector) == revision_of(data)


def test_threads_lose_no_byte() -> None:
    """Staging and discarding from several threads leaves the count at what is held."""
    store = a_store()
    blobs = [canonical_bytes(a_vector(float(i))) for i in range(4)]

    def work() -> None:
        for _ in range(50):
            for data in blobs:
                store.stage(revision_of(data), data)
            store.discard([revision_of(data) for data in blobs])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.bytes_held == sum(store.get(r).rows.nbytes for r in store.revisions())
