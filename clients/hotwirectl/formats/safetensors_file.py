"""Reads .safetensors files, in the forms that the daemon takes them in."""

from pathlib import Path

from hotwirectl.formats.raw import RawVector, read_bytes, refused
from hotwirectl.layer_bases import OUTPUT
from hotwired import errors, safetensors_file, vector_file

FORMAT = "safetensors"


def read(path: Path) -> RawVector:
    """Returns a file's vector. Raises CommandFailedError with the daemon's reason."""
    return parse(read_bytes(path), path)


def parse(data: bytes, path: Path) -> RawVector:
    """Returns the vector in a file's bytes; path is for its name. Raises as read."""
    try:
        found = vector_file.parse_upload(data)
    except errors.HotwireError as error:
        raise refused(path, error.reason, error.message) from error
    firm = _says_layers(data, found.metadata)
    assumed = () if firm or found.any_layer else ("row i is for block i: the rows have no numbers",)
    return RawVector(
        name=path.stem,
        format=FORMAT,
        rows=found.rows,
        numbers=found.layers if firm else (() if found.any_layer else None),
        dtype=found.source_dtype,
        base=OUTPUT,
        firm=firm,
        metadata=found.metadata,
        assumed=assumed,
    )


def _says_layers(data: bytes, metadata: dict[str, str]) -> bool:
    """Whether a file that was parsed names its layers, be it as any."""
    tensors, _ = safetensors_file.read(data)
    return "layers" in metadata or len(tensors) > 1 or tensors[0].name.startswith("layers.")
