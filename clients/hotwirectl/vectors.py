"""The commands for registered vectors: list, show, delete."""

import click

from hotwire_client import Client, HotwireError, Vector
from hotwirectl import changes, views
from hotwirectl.settings import Command, Settings, pass_settings
from hotwired.v1.steering_service_pb2 import ListVectorsResponse

_MIN_PREFIX = 8
_REVISION_LENGTH = 64
_COMPLETION_SECONDS = 1.0


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the registered names that begin so, or none if the daemon does not answer."""
    del param
    settings = ctx.find_root().ensure_object(Settings)
    try:
        with settings.client(timeout=_COMPLETION_SECONDS) as client:
            return [v.name for v in client.list_vectors() if v.name.startswith(incomplete)]
    except (HotwireError, click.UsageError):
        return []


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


def whole_revision(client: Client, name: str, given: str) -> str:
    """Returns the revision that a prefix stands for; the daemon has the last word on it."""
    if not _MIN_PREFIX <= len(given) < _REVISION_LENGTH:
        return given
    current: Vector = client.get_vector(name)
    return current.revision if current.revision.startswith(given.lower()) else given
