"""Canonical vectors on disk, one file for each revision, named by it.

A blob is whole or absent: it is written beside its place, synced, and renamed. Its digest is
checked on every read; one that fails is moved aside, and the others are served.
"""

import contextlib
import hashlib
import io
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from hotwired.durable import sync
from hotwired.errors import BlobCorrupt
from hotwired.log import get
from hotwired.vector_file import revision_of

_PARTIAL = ".partial-"


class BlobDir:
    """The blobs in one directory, and those moved aside in another. For one thread at a time.

    unreadable: the revisions found missing or damaged since the start and not put back.
    """

    def __init__(self, directory: Path, quarantine: Path) -> None:
        self.directory = directory
        self.unreadable: set[str] = set()
        self._quarantine = quarantine
        self._sizes: dict[str, int] = {}

    @property
    def total_bytes(self) -> int:
        """The bytes of all blobs."""
        return sum(self._sizes.values())

    def open(self, referenced: Mapping[str, int]) -> None:
        """Makes the directories and removes what no row refers to.

        referenced: revision -> size of the blobs there must be. What is missing or has another
        size is unreadable from the start.
        """
        for directory in (self.directory, self._quarantine):
            directory.mkdir(mode=0o700, exist_ok=True)
        for path in self.directory.iterdir():
            size = path.lstat().st_size
            if path.name not in referenced and path.is_file():
                path.unlink()
                get().info("orphan blob removed", blob=path.name, size=size)
            elif size != referenced.get(path.name, size):
                self._set_aside(path.name, f"has {size} bytes, not {referenced[path.name]}")
            else:
                self._sizes[path.name] = size
        for revision in referenced.keys() - self._sizes.keys() - self.unreadable:
            self._set_aside(revision, "is missing")

    def has(self, revision: str) -> bool:
        """Whether a blob is there and wasn't found damaged."""
        return revision in self._sizes and revision not in self.unreadable

    def put(self, revision: str, data: bytes) -> bool:
        """Stores a blob durably, unless it is there; returns whether it was stored.

        Raises OSError; no partial file is left then.
        """
        if self.has(revision):
            return False
        partial = self.directory / f"{_PARTIAL}{secrets.token_hex(8)}"
        try:
            self._write(partial, data)
            partial.rename(self.directory / revision)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        sync(self.directory)
        self._sizes[revision] = len(data)
        self.unreadable.discard(revision)
        return True

    def read(self, revision: str) -> bytes:
        """Returns a blob.

        Raises BlobCorrupt, and sets the blob aside, if it is missing or hasn't its digest; OSError
        if it can't be read, which says nothing about the blob.
        """
        with self._opened(revision) as file:
            data = file.read()
        if revision_of(data) != revision:
            raise self._damaged(revision, "hasn't its digest")
        return data

    def open_checked(self, revision: str) -> io.BufferedReader:
        """Returns a blob as an open file at its start, to be closed by the caller.

        The file can be read to its end even if the blob is removed meanwhile. Raises as read.
        """
        with contextlib.ExitStack() as closing:
            file = closing.enter_context(self._opened(revision))
            if hashlib.file_digest(file, "sha256").hexdigest() != revision:
                raise self._damaged(revision, "hasn't its digest")
            file.seek(0)
            closing.pop_all()
        return file

    def remove(self, revision: str) -> None:
        """Removes a blob that no row refers to any more; if it can't, the next start will."""
        self._sizes.pop(revision, None)
        self.unreadable.discard(revision)
        try:
            (self.directory / revision).unlink(missing_ok=True)
        except OSError as exc:
            get().warning("blob not removed", blob=revision, error=str(exc))

    def _opened(self, revision: str) -> io.BufferedReader:
        if revision in self.unreadable:
            raise _corrupt(revision, "was found damaged")
        try:
            return (self.directory / revision).open("rb")
        except FileNotFoundError:
            raise self._damaged(revision, "is missing") from None

    def _damaged(self, revision: str, problem: str) -> BlobCorrupt:
        self._set_aside(revision, problem)
        return _corrupt(revision, problem)

    def _write(self, path: Path, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _set_aside(self, revision: str, problem: str) -> None:
        self.unreadable.add(revision)
        self._sizes.pop(revision, None)
        with contextlib.suppress(OSError):
            (self.directory / revision).replace(self._quarantine / revision)
        get().error("blob quarantined; register the vector again", blob=revision, problem=problem)


def _corrupt(revision: str, problem: str) -> BlobCorrupt:
    return BlobCorrupt(f"blob {revision} {problem}", metadata={"revision": revision})
