"""Puts a backup into a state directory: wholly, or not at all.

All is unpacked and checked beside its place first. The database is moved in last: a daemon that
finds blobs without one refuses to start, and the next restore begins anew.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from hotwired import registry
from hotwired.archive import BLOBS, REGISTRY, Manifest, Reader, invalid
from hotwired.durable import sync
from hotwired.errors import StateNotEmpty, StoreCorrupt
from hotwired.locks import STATE_LOCK, locked
from hotwired.registry import translated
from hotwired.run_dir import make_private

_STAGING = ".restore"


def restore(file: BinaryIO, state_dir: Path) -> Manifest:
    """Restores a backup to a directory that is empty or missing, and returns what it holds.

    Raises StateNotEmpty, DaemonLocked or DirectoryUnsafe; BackupInvalid if the backup isn't whole,
    StoreTooNew if a newer version took it; StoreFull or StoreUnavailable.
    """
    try:
        make_private(state_dir)
        with locked(state_dir / STATE_LOCK):
            _check_unused(state_dir)
            return _restore(file, state_dir)
    except OSError as exc:
        raise translated(exc, state_dir) from exc


def _restore(file: BinaryIO, state_dir: Path) -> Manifest:
    staging = state_dir / _STAGING
    for leftover in (staging, state_dir / BLOBS):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        (staging / BLOBS).mkdir(parents=True, mode=0o700)
        staging.chmod(0o700)
        manifest = _unpack(Reader(file), staging)
        _check_registry(staging / REGISTRY, manifest)
        # Blobs before the database: a row without its blob would be a vector that is lost.
        (staging / BLOBS).rename(state_dir / BLOBS)
        sync(state_dir)
        (staging / REGISTRY).rename(state_dir / REGISTRY)
    except BaseException:
        shutil.rmtree(state_dir / BLOBS, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    sync(state_dir)
    return manifest


def _check_unused(state_dir: Path) -> None:
    there = {path.name for path in state_dir.iterdir()} - {STATE_LOCK}
    if _STAGING in there and REGISTRY not in there:
        there -= {_STAGING, BLOBS}  # of a restore that was killed
    if there:
        raise StateNotEmpty(
            f"{state_dir} is not empty: restore to a new directory, or move it away first",
            metadata={"path": str(state_dir)},
        )


def _unpack(reader: Reader, staging: Path) -> Manifest:
    manifest = reader.manifest()
    members = [(REGISTRY, manifest.registry_bytes, manifest.registry_sha256)]
    members += [(f"{BLOBS}/{rev}", size, rev) for rev, size in sorted(manifest.blobs.items())]
    for name, size, sha256 in members:
        _write(staging / name, reader.member(name, size, sha256))
    reader.end()
    sync(staging / BLOBS)
    return manifest


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(descriptor)


def _check_registry(path: Path, manifest: Manifest) -> None:
    try:
        stored = registry.read(path)
    except StoreCorrupt as exc:
        raise invalid(exc.message) from exc
    if (stored.generation, stored.blobs) != (manifest.generation, manifest.blobs):
        raise invalid(f"{REGISTRY} is of another state than the rest")
