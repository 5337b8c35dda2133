"""The vectors that a worker holds, by revision: host memory, checked before they are kept."""

import threading
from collections.abc import Iterable

from hotwired.errors import VectorTooLarge
from hotwired.vector_file import (
    VectorData,
    canonical_bytes,
    check_fits,
    check_revision,
    parse_canonical,
    revision_of,
)


class BlobStore:
    """Vectors of one model by revision. Safe to use from several threads.

    hidden_size, num_layers, dtype: of the model, as check_fits takes them. max_bytes: the memory
    that the float32 rows of all vectors may take together.
    """

    def __init__(self, hidden_size: int, num_layers: int, dtype: str, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._hidden_size = hidden_size
        self._num_layers = num_layers
        self._dtype = dtype
        self._lock = threading.Lock()
        self._vectors: dict[str, VectorData] = {}
        self._bytes = 0

    @property
    def bytes_held(self) -> int:
        """The bytes of all rows held."""
        return self._bytes

    def stage(self, revision: str, data: bytes, validate_only: bool = False) -> bool:  # noqa: FBT001, FBT002
        """Checks canonical bytes and keeps the vector; returns whether it was held already.

        Raises DigestMismatch, VectorFormatInvalid, VectorNotFinite, VectorShapeMismatch or
        VectorTooLarge; nothing is kept then, nor if validate_only.
        """
        check_revision(revision, data)
        vector = parse_canonical(data)
        self._check_fits(vector)
        return self._keep(revision, vector, validate_only=validate_only)

    def add(self, vector: VectorData) -> str:
        """Keeps a vector that came from no daemon and returns its revision. Raises as stage."""
        self._check_fits(vector)
        revision = revision_of(canonical_bytes(vector))
        self._keep(revision, vector, validate_only=False)
        return revision

    def get(self, revision: str) -> VectorData:
        """Returns a vector. Raises KeyError if it isn't held."""
        return self._vectors[revision]

    def discard(self, revisions: Iterable[str]) -> list[str]:
        """Forgets vectors and returns the revisions of those that had been held."""
        with self._lock:
            held = [revision for revision in revisions if revision in self._vectors]
            for revision in held:
                # A revision named twice is gone the second time.
                if (vector := self._vectors.pop(revision, None)) is not None:
                    self._bytes -= vector.rows.nbytes
        return sorted(set(held))

    def revisions(self) -> list[str]:
        """Returns the revisions held, in no particular order."""
        with self._lock:
            return list(self._vectors)

    def holds(self, revision: str) -> bool:
        """Whether a revision is held."""
        return revision in self._vectors

    def _check_fits(self, vector: VectorData) -> None:
        check_fits(
            vector,
            hidden_size=self._hidden_size,
            num_layers=self._num_layers,
            dtype=self._dtype,
        )

    def _keep(self, revision: str, vector: VectorData, *, validate_only: bool) -> bool:
        with self._lock:
            if revision in self._vectors:
                return True
            size = vector.rows.nbytes
            if self._bytes + size > self.max_bytes:
                raise VectorTooLarge(
                    f"{size} bytes more are over the worker's {self.max_bytes} bytes for vectors, "
                    f"of which {self._bytes} are taken",
                    metadata={"bytes": str(size), "limit": str(self.max_bytes)},
                )
            if not validate_only:
                self._vectors[revision] = vector
                self._bytes += size
            return False
