"""What FILE|NAME stands for: a vector of a file, or one that is registered."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from hotwire_client import Download
from hotwirectl.formats import read, suffixes
from hotwirectl.formats.layer_base import Vector, settled
from hotwirectl.formats.told import Told
from hotwirectl.settings import Settings
from hotwired.vector_file import parse_canonical

REGISTERED = "registered"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True)
class Registered:
    """A vector of the daemon: its rows, what the daemon knows of it, and its revision."""

    vector: Vector
    model: str
    revision: str


def is_file(what: str) -> bool:
    """Whether FILE|NAME is a file; raises click.UsageError if it is neither that nor a name.

    A name goes before a file that is not called like a vector's.
    """
    path = Path(what)
    if path.exists() and (suffixes.is_known(path) or "/" in what or not _NAME.fullmatch(what)):
        return True
    if not _NAME.fullmatch(what) or path.suffix.lower() == suffixes.SAFETENSORS:
        raise click.UsageError(f"{what} is no file, and no vector has such a name")
    return False


def vector(settings: Settings, what: str, told: Told) -> Vector:
    """Returns the vector of FILE|NAME. Raises as read.read_one, layer_base.settled and Client."""
    if is_file(what):
        return settled(read.read_one(Path(what)), told)
    return registered(settings, what).vector


def registered(settings: Settings, name: str, revision: str = "") -> Registered:
    """Returns a vector of the daemon, by its name; of its own revision unless one is given."""
    with settings.client() as client:
        found = client.download_vector(name, revision=revision)
    data = parse_canonical(found.data)
    about = dict(_metadata(found))
    rows = type(data)(data.layers, data.any_layer, data.rows, data.source_dtype, about)
    return Registered(Vector(name, REGISTERED, rows), found.vector.model, found.revision)


def _metadata(found: Download) -> Mapping[str, str]:
    own = found.revision == found.vector.revision
    return found.vector.metadata if own else found.vector.canary.metadata
