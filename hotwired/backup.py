"""Takes a backup of a state directory, also while a daemon serves from it.

The database is read at one moment, and the blobs that there are at that moment are linked aside:
what the daemon removes a moment later is still there to be copied. Changes wait for the links
alone, which are made while the database is locked against writers.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from hotwired import migrations, registry
from hotwired.archive import BLOBS, MANIFEST, REGISTRY, Manifest, Writer
from hotwired.durable import sync
from hotwired.errors import BlobCorrupt
from hotwired.registry import translated

_CHUNK_BYTES = 1 << 20
_ASIDE = ".backup"
# How long the database may be another's before the backup gives up.
_BUSY_SECONDS = 30.0


def to_file(state_dir: Path, path: Path) -> Manifest:
    """Writes a backup to a file, mode 0600, which takes the place of one there once it is whole.

    Raises as write; no part of a file is left then.
    """
    # Its name is not to be foreseen: another backup, or another user, may be at the same one.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            manifest = write(state_dir, file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        sync(path.parent)
    except OSError as exc:
        raise translated(exc, path) from exc
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def write(state_dir: Path, file: BinaryIO) -> Manifest:
    """Writes a backup and returns what it holds.

    Raises BlobCorrupt if a vector's bytes are missing or damaged, StoreCorrupt, StoreTooNew,
    StoreUnavailable, or OSError if the file can't be written.
    """
    with _aside(state_dir) as aside:
        database = aside / REGISTRY
        stored = registry.read(database)
        data = database.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        manifest = Manifest(stored.generation, len(data), digest, stored.blobs)
        head = manifest.to_bytes()
        writer = Writer(file)
        writer.member(MANIFEST, len(head), [head])
        writer.member(REGISTRY, len(data), [data])
        for revision, size in sorted(manifest.blobs.items()):
            writer.member(f"{BLOBS}/{revision}", size, _blob(aside / BLOBS, revision, size))
        writer.end()
    return manifest


@contextmanager
def _aside(state_dir: Path) -> Iterator[Path]:
    """Makes a folder with the database and the blobs of one moment. One backup has it at a time."""
    path = state_dir / _ASIDE
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as exc:
        raise translated(exc, state_dir) from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _clear(path)  # of a backup that was killed
        _freeze(state_dir, path)
        yield path
    finally:
        _clear(path)
        os.close(lock)


def _clear(aside: Path) -> None:
    for path in aside.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _freeze(state_dir: Path, aside: Path) -> None:
    database = state_dir / REGISTRY
    uri = f"file:{quote(os.fsencode(database))}?mode=rw"
    try:
        with closing(_connected(uri)) as writer, closing(_connected(uri)) as reader:
            writer.execute("BEGIN IMMEDIATE")
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            _link(state_dir / BLOBS, aside / BLOBS)
            writer.execute("ROLLBACK")
            migrations.copy_to(reader, aside / REGISTRY)
    except (sqlite3.Error, OSError) as exc:
        raise translated(exc, database) from exc


def _connected(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS)


def _link(source: Path, target: Path) -> None:
    target.mkdir(mode=0o700)
    for path in source.iterdir():
        try:
            (target / path.name).hardlink_to(path)
        except FileNotFoundError:
            pass  # half a blob that was just put in its place, or one just dropped: no row has it
        except OSError:
            shutil.copyfile(path, target / path.name)  # a file system without links


def _blob(blobs: Path, revision: str, size: int) -> Iterator[bytes]:
    """Yields a blob's bytes. Raises BlobCorrupt if they aren't what the registry says."""
    digest, count = hashlib.sha256(), 0
    try:
        with (blobs / revision).open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                count += len(chunk)
                yield chunk
    except FileNotFoundError:
        raise _damaged(revision, "is missing") from None
    if (count, digest.hexdigest()) != (size, revision):
        raise _damaged(revision, "hasn't its digest")


def _damaged(revision: str, problem: str) -> BlobCorrupt:
    return BlobCorrupt(
        f"blob {revision} {problem}: register its vector again, or delete it, before a backup",
        metadata={"revision": revision},
    )
