"""Reads vectors from paths, by what they are called."""

from pathlib import Path

from hotwirectl.formats import (
    gguf_file,
    manifest,
    npz_file,
    safetensors_file,
    suffixes,
    torch_file,
)
from hotwirectl.formats.raw import RawVector, refused

_READERS = {
    suffixes.SAFETENSORS: safetensors_file.read,
    suffixes.GGUF: gguf_file.read,
    suffixes.NPZ: npz_file.read,
    **dict.fromkeys(suffixes.TORCH, torch_file.read),
}


def read_all(path: Path) -> list[RawVector]:
    """Returns the vectors of a file, or of a directory with a manifest.

    Raises click.UsageError for a format that is not known, CommandFailedError as the readers.
    """
    suffixes.check(path)
    if path.is_dir():
        return manifest.read_directory(path)
    found = _READERS[path.suffix.lower()](path)
    about = manifest.beside(path) if found.format == torch_file.FORMAT else None
    return [manifest.described(found, about) if about else found]


def read_one(path: Path) -> RawVector:
    """Returns the one vector of a path. Raises as read_all, also if it has several."""
    if path.is_dir():
        names = list(manifest.manifest(path).entries)
        if len(names) > 1:
            why = f"it holds {len(names)} directions, and one is wanted"
            hint = f"name one, such as {path / names[0]}.pt"
            raise refused(path, "VECTOR_AMBIGUOUS", why, hint=hint)
    return read_all(path)[0]
