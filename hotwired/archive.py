"""The form of a backup: a plain tar that is checked to its last byte.

backup.json, registry.db, then blobs/<revision> in order. All but the contents follows from
backup.json, and those by digest: a reader compares each header with the one that must be there,
and never goes by a path, link, mode or size that an archive states.
"""

import hashlib
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from hotwired.errors import BackupInvalid

FORMAT = "hotwired.backup/1"
MANIFEST = "backup.json"
REGISTRY = "registry.db"
BLOBS = "blobs"

_MAX_MANIFEST_BYTES = 16 << 20
_MAX_MEMBER_BYTES = (8 << 30) - 1  # what a header of this kind can say
_CHUNK_BYTES = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds.

    generation: of the state. registry_bytes, registry_sha256: of the database's file. blobs:
    revision, which is the digest, -> bytes.
    """

    generation: int
    registry_bytes: int
    registry_sha256: str
    blobs: Mapping[str, int]

    def to_bytes(self) -> bytes:
        """Returns the JSON, the same for the same content."""
        form = {
            "format": FORMAT,
            "generation": self.generation,
            "registry": {"bytes": self.registry_bytes, "sha256": self.registry_sha256},
            "blobs": dict(sorted(self.blobs.items())),
        }
        return json.dumps(form, indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> "Manifest":
        """Returns what to_bytes was made of. Raises BackupInvalid for anything else."""
        try:
            form = json.loads(data)
            found = cls(
                form["generation"],
                form["registry"]["bytes"],
                form["registry"]["sha256"],
                form["blobs"],
            )
            whole = found.to_bytes() == data and found.is_sound()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise invalid(f"{MANIFEST} is damaged, or of another version than {FORMAT}")
        return found

    def is_sound(self) -> bool:
        """Whether each value is of its kind, and each size one that a header can say."""
        sizes = (self.registry_bytes, *self.blobs.values())
        return (
            all(type(number) is int and number >= 0 for number in (self.generation, *sizes))
            and max(sizes) <= _MAX_MEMBER_BYTES
            and all(map(_is_digest, (self.registry_sha256, *self.blobs)))
        )


class Writer:
    """Writes an archive to a file that need not be seekable."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._written = 0

    def member(self, name: str, size: int, chunks: Iterable[bytes]) -> None:
        """Writes a member. The chunks must have so many bytes in all."""
        self._write(_header(name, size))
        for chunk in chunks:
            self._write(chunk)
        self._write(bytes(_padding(size)))

    def end(self) -> None:
        """Writes what a tar ends with."""
        self._write(bytes(_end(self._written)))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._written += len(data)


class Reader:
    """Reads an archive from a file that need not be seekable. All methods raise BackupInvalid."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._taken = 0

    def manifest(self) -> Manifest:
        """Reads the first member."""
        header = self._take(tarfile.BLOCKSIZE)
        try:
            size = tarfile.TarInfo.frombuf(header, "ascii", "strict").size
        except (tarfile.TarError, ValueError):
            raise invalid("it is not a plain tar") from None
        if not 0 < size <= _MAX_MANIFEST_BYTES or header != _header(MANIFEST, size):
            raise invalid(f"it doesn't begin with {MANIFEST}")
        data = self._take(size)
        self._zeros(_padding(size))
        return Manifest.parse(data)

    def member(self, name: str, size: int, sha256: str) -> Iterator[bytes]:
        """Yields a member's bytes; the last of them are checked only when more is asked for."""
        if self._take(tarfile.BLOCKSIZE) != _header(name, size):
            raise invalid(f"{name} is not where it must be")
        digest, left = hashlib.sha256(), size
        while left:
            chunk = self._take(min(left, _CHUNK_BYTES))
            digest.update(chunk)
            left -= len(chunk)
            yield chunk
        if digest.hexdigest() != sha256:
            raise invalid(f"{name} hasn't its digest")
        self._zeros(_padding(size))

    def end(self) -> None:
        """Checks that the archive ends here."""
        self._zeros(_end(self._taken))
        if self._file.read(1):
            raise invalid("there is something behind its end")

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise invalid("it ends too early")
        self._taken += size
        return data

    def _zeros(self, size: int) -> None:
        if any(self._take(size)):
            raise invalid("there is something between its members")


def invalid(problem: str) -> BackupInvalid:
    """Returns the error for a backup with a problem."""
    return BackupInvalid(f"this is no whole backup: {problem}", metadata={"problem": problem})


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info.tobuf(tarfile.USTAR_FORMAT)


def _padding(size: int) -> int:
    return -size % tarfile.BLOCKSIZE


def _end(written: int) -> int:
    """Returns the bytes of the end: two blocks at least, up to a full record."""
    least = 2 * tarfile.BLOCKSIZE
    return least + -(written + least) % tarfile.RECORDSIZE
