"""The commands for vectors: register, list, show, delete."""

from pathlib import Path

import click

from hotwire_client import Client, NotFoundError, Vector
from hotwirectl import changes, views, watching
from hotwirectl.listings import VECTORS
from hotwirectl.names import vector_argument
from hotwirectl.settings import RESOURCES, Command, Settings, pass_settings
from hotwirectl.terms import canary_option, ttl_option
from hotwired.v1.steering_service_pb2 import ListVectorsResponse

_SUFFIX = ".safetensors"
_MIN_PREFIX = 8
_REVISION_LENGTH = 64

# What the formats that people hold vectors in need before they can be registered.
_OTHER_FORMATS = {
    ".bin": "a pickle can run code when it is read",
    ".ckpt": "a pickle can run code when it is read",
    ".gguf": "it holds a control vector, one tensor `direction.N` for each layer",
    ".npy": "it has no place for layers or metadata",
    ".npz": "it has no place for metadata",
    ".pkl": "a pickle can run code when it is read",
    ".pt": "a pickle can run code when it is read",
    ".pth": "a pickle can run code when it is read",
}


@click.command(
    "register",
    cls=Command,
    formats=RESOURCES,
    example="hotwirectl register joy.safetensors --ttl 24h",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="The vector's name.  [default: the file's name up to its suffix]")
@click.option("--model", default="", help="The model it was made for: only its engines get it.")
@ttl_option(
    help="When the name expires, such as 24h or 1d12h from now.  [default: it keeps its own]"
)
@canary_option(help="Make FILE the canary of NAME, which so many of the requests get.")
@click.option("--dry-run", is_flag=True, help="Check everything, on the nodes too; change nothing.")
@pass_settings
def register(
    settings: Settings,
    file: Path,
    name: str | None,
    model: str,
    *,
    ttl: float | None,
    canary: float | None,
    dry_run: bool,
) -> None:
    """Register the vector in FILE.

    FILE is a .safetensors file with one tensor [layers, hidden], or a tensor `layers.N` for each
    layer. A name that is registered already is pointed to the new vector; requests under way
    keep the one they have. With --canary it stays as it is, but for a share of new requests. The
    command ends once every node uses it.
    """
    _check_suffix(file)
    with settings.client() as client:
        response = client.register_vector(
            file, name=name, model=model, ttl=ttl, canary_percent=canary, validate_only=dry_run
        )
    vector, verb = response.vector, "unchanged" if response.unchanged else "registered"
    what = f"vector/{vector.name} {'valid' if dry_run else verb}"
    facts = views.canary_facts(vector) if canary is not None else []
    changes.report(settings, response, what, revision=vector.revision, facts=facts, dry_run=dry_run)


@click.command("list", cls=Command, formats=RESOURCES, example="hotwirectl list -o wide")
@watching.options()
@pass_settings
def list_command(settings: Settings, *, interval: float | None, watch: bool) -> None:
    """List all vectors, by name."""
    every = watching.seconds(interval, watch=watch)
    with settings.client() as client:
        if every:
            rows = watching.Rows(VECTORS, wide=settings.format() == "wide")
            watching.follow(settings, lambda: _all(client), rows, every, mark=_mark)
            return
        items = client.list_vectors()
    data = ListVectorsResponse(vectors=items, total_size=len(items))
    settings.printer().result(
        data,
        lambda: VECTORS.table(items, wide=False),
        wide=lambda: VECTORS.table(items, wide=True),
        names=list(watching.by_name("vector", items)),
    )


@click.command("show", cls=Command, formats=RESOURCES, example="hotwirectl show joy -o yaml")
@vector_argument()
@watching.options()
@pass_settings
def show(settings: Settings, name: str, *, interval: float | None, watch: bool) -> None:
    """Show everything about the vector NAME."""
    every = watching.seconds(interval, watch=watch)
    with settings.client() as client:
        vector = client.get_vector(name)
        if every:
            blocks = watching.Blocks(views.vector)
            watching.follow(settings, lambda: _one(client, name), blocks, every, mark=_mark)
            return
    settings.printer().result(vector, lambda: views.vector(vector), names=[f"vector/{name}"])


@click.command(
    "delete",
    cls=Command,
    formats=RESOURCES,
    example="hotwirectl delete joy --revision de80ba1b",
)
@vector_argument()
@click.option(
    "--revision",
    default="",
    help=f"Delete only while NAME points to this revision; its first {_MIN_PREFIX} characters do.",
)
@pass_settings
def delete(settings: Settings, name: str, revision: str) -> None:
    """Delete the vector NAME, and its canary if it has one.

    Requests under way keep it until they end.
    """
    with settings.client() as client:
        whole = whole_revision(client, name, revision)
        response = client.delete_vector(name, revision=whole)
    what = f"vector/{response.vector.name} deleted"
    changes.report(settings, response, what, revision=response.vector.revision)


def _check_suffix(file: Path) -> None:
    suffix = file.suffix.lower()
    if suffix == _SUFFIX:
        return
    why = f": {_OTHER_FORMATS[suffix]}" if suffix in _OTHER_FORMATS else ""
    raise click.UsageError(
        f"{file.name} is not taken{why}. Save the vector as {_SUFFIX}, with one tensor "
        "[layers, hidden] or a tensor `layers.N` for each layer"
    )


def whole_revision(client: Client, name: str, given: str) -> str:
    """Returns the revision that a prefix stands for; the daemon has the last word on it."""
    if not _MIN_PREFIX <= len(given) < _REVISION_LENGTH:
        return given
    current: Vector = client.get_vector(name)
    return current.revision if current.revision.startswith(given.lower()) else given


def _all(client: Client) -> dict[str, Vector]:
    return watching.by_name("vector", client.list_vectors())


def _one(client: Client, name: str) -> dict[str, Vector]:
    """Returns the vector by its name, or nothing if it is gone."""
    try:
        return watching.by_name("vector", [client.get_vector(name)])
    except NotFoundError:
        return {}


def _mark(v: Vector) -> object:
    # That it has expired is told by the clock, not by the daemon.
    return watching.whole(v), views.state(v)
