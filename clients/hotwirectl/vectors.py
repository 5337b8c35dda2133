"""The commands for vectors: register, list, show, delete."""

from pathlib import Path

import click

from hotwire_client import Client, HotwireError, Vector
from hotwirectl import changes, views
from hotwirectl.settings import Command, Settings, pass_settings
from hotwirectl.terms import canary_option, ttl_option
from hotwired.v1.steering_service_pb2 import ListVectorsResponse

_SUFFIX = ".safetensors"
_MIN_PREFIX = 8
_REVISION_LENGTH = 64
_COMPLETION_SECONDS = 1.0

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


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the registered names that begin so, or none if the daemon does not answer."""
    del param
    settings = ctx.find_root().ensure_object(Settings)
    try:
        with settings.client(timeout=_COMPLETION_SECONDS) as client:
            return [v.name for v in client.list_vectors() if v.name.startswith(incomplete)]
    except (HotwireError, click.UsageError):
        return []


@click.command("register", cls=Command)
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


@click.command("list", cls=Command)
@pass_settings
def list_command(settings: Settings) -> None:
    """List all vectors, by name."""
    with settings.client() as client:
        items = client.list_vectors()
    data = ListVectorsResponse(vectors=items, total_size=len(items))
    settings.printer().result(data, lambda: views.vectors(items))


@click.command("show", cls=Command)
@click.argument("name", shell_complete=complete_name)
@pass_settings
def show(settings: Settings, name: str) -> None:
    """Show everything about the vector NAME."""
    with settings.client() as client:
        vector = client.get_vector(name)
    settings.printer().result(vector, lambda: views.vector(vector))


@click.command("delete", cls=Command)
@click.argument("name", shell_complete=complete_name)
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
