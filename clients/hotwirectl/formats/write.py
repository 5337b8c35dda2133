"""Writes .safetensors files that the daemon takes: the canonical rows, and metadata."""

import contextlib
import json
import secrets
import struct
from pathlib import Path

import click

from hotwirectl.formats.layer_base import Vector
from hotwirectl.formats.raw import refused
from hotwired import safetensors_file, vector_file

# What canonical bytes say of themselves goes before what a file said.
_OWN = ("format", "layers")


def revision_of(vector: Vector) -> str:
    """Returns the revision that the vector has once it is registered."""
    return vector_file.revision_of(vector_file.canonical_bytes(vector.data))


def metadata_of(vector: Vector) -> dict[str, str]:
    """Returns what is kept of a vector beside its rows: its own, and where it comes from."""
    made = {"source_format": vector.format, "source_dtype": vector.data.source_dtype}
    if vector.assumed:
        made["assumed"] = "; ".join(vector.assumed)
    kept = {key: value for key, value in vector.data.metadata.items() if key not in _OWN}
    return made | kept


def encoded(vector: Vector, metadata: dict[str, str]) -> bytes:
    """Returns a vector's file: its revision is that of the vector, whatever the metadata.

    Raises CommandFailedError if there is more metadata than the daemon takes.
    """
    canonical = vector_file.canonical_bytes(vector.data)
    (size,) = struct.unpack_from("<Q", canonical)
    header = json.loads(canonical[8 : 8 + size])
    header["__metadata__"] = metadata | header["__metadata__"]
    held = sum(len(k.encode()) + len(v.encode()) for k, v in header["__metadata__"].items())
    if held > safetensors_file.MAX_METADATA:
        why = f"it has {held} bytes of metadata; {safetensors_file.MAX_METADATA} is the most"
        raise refused(vector.name, "METADATA_TOO_LARGE", why, size_bytes=held)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((struct.pack("<Q", len(text)), text, memoryview(canonical)[8 + size :]))


def save(data: bytes, path: Path) -> None:
    """Writes a file, wholly or not at all. Raises click.UsageError if it can't."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
