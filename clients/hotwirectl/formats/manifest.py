"""Reads a directory of hidden-directions: manifest.json and a .pt file for each direction."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hotwirectl.formats import torch_file
from hotwirectl.formats.raw import RawVector, damaged, read_bytes, refused
from hotwirectl.formats.suffixes import MANIFEST as FILE
from hotwirectl.json_file import parse_json

_MOST_TEXT = 500
_MOST = 4096
# A name is a file's: it must not lead out of the directory.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_KEPT = ("recommended_layer", "recommended_alpha")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a directory says of its directions: the model, and an entry for each by its name."""

    model: str
    entries: dict[str, dict[str, Any]]


def read_directory(directory: Path) -> list[RawVector]:
    """Returns all directions of a directory, in the manifest's order.

    Raises CommandFailedError: no manifest, or a direction that is refused; as torch_file.read.
    """
    found = manifest(directory)
    paths = [directory / f"{name}.pt" for name in found.entries]
    for path in paths:
        if not path.is_file():
            raise damaged(directory / FILE, f"it names {path.stem!r}, and there is no {path.name}")
    return [described(each, found) for each in torch_file.read_all(paths)]


def manifest(directory: Path) -> Manifest:
    """Returns what a directory's manifest says. Raises CommandFailedError if there is no such."""
    path = directory / FILE
    if not path.is_file():
        why = f"a directory without {FILE} is no set of directions"
        raise refused(directory, "VECTOR_FORMAT_INVALID", why, hint="name its files one by one")
    try:
        form = parse_json(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it can't be read as JSON: {error}") from error
    listed = form.get("directions") if isinstance(form, dict) else None
    if not isinstance(listed, list) or not 0 < len(listed) <= _MOST:
        raise damaged(path, 'it has no list "directions"')
    entries = {_name(path, entry): entry for entry in listed}
    if len(entries) != len(listed):
        raise damaged(path, "it names a direction twice")
    model = form.get("model")
    return Manifest(model if isinstance(model, str) else "", entries)


def beside(path: Path) -> Manifest | None:
    """Returns the manifest that has an entry for a file that lies next to it, if there is one."""
    if not (path.parent / FILE).is_file():
        return None
    found = manifest(path.parent)
    return found if path.stem in found.entries else None


def described(vector: RawVector, found: Manifest) -> RawVector:
    """Returns a direction with what the manifest says of it.

    Raises CommandFailedError if it says another shape.
    """
    entry = found.entries[vector.name]
    shape = entry.get("shape")
    if shape is not None and shape != list(vector.rows.shape):
        why = f"it is {list(vector.rows.shape)}, and the manifest says {str(shape)[:40]}"
        raise refused(f"{vector.name}.pt", "VECTOR_SHAPE_MISMATCH", why)
    kept = {key: entry[key] for key in _KEPT if isinstance(entry.get(key), int | float | str)}
    about = {key: str(value)[:_MOST_TEXT] for key, value in kept.items()}
    assumed = vector.assumed
    if found.model:
        about["model"] = found.model[:_MOST_TEXT]
        assumed += (f"it is for the model {about['model']!r}, as its manifest says",)
    return replace(vector, metadata=vector.metadata | about, assumed=assumed)


def _name(path: Path, entry: Any) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise damaged(path, f"{str(name)[:40]!r} is no name of a direction")
    return name
