"""The commands for registered vectors: list, show, delete."""

import click

from hotwire_client import Client, NotFoundError, Vector
from hotwirectl import changes, views, watching
from hotwirectl.listings import VECTORS
from hotwirectl.names import vector_argument
from hotwirectl.settings import RESOURCES, Command, Settings, pass_settings
from hotwired.v1.steering_service_pb2 import ListVectorsResponse

_MIN_PREFIX = 8
_REVISION_LENGTH = 64


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
