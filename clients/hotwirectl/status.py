"""The commands that look: stats, nodes, health, version."""

import contextlib
from functools import partial
from importlib import metadata
from typing import Any

import click
import grpc

from hotwire_client import Client, HotwireError, ListNodesResponse
from hotwirectl import failures, text, views
from hotwirectl.settings import Command, Settings, pass_settings

API_VERSION = "hotwired.v1"
_DISTRIBUTION = "hotwired"


@click.command("stats", cls=Command)
@click.option("--watch", is_flag=True, help="Print a sample at intervals, until interrupted.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    help="The seconds between two samples, with --watch.  [default: 1]",
)
@pass_settings
def stats(settings: Settings, *, watch: bool, interval: float | None) -> None:
    """Show counters of the daemon and engines."""
    if interval is not None and not watch:
        raise click.UsageError("--interval needs --watch")
    with settings.client() as client:
        if watch:
            _watch(settings, client, interval or 1.0)
        else:
            taken = client.stats()
            settings.printer().result(taken, lambda: views.stats(taken))


@click.command("nodes", cls=Command)
@pass_settings
def nodes(settings: Settings) -> None:
    """List the vLLM processes the daemon knows."""
    with settings.client() as client:
        response = client.list_nodes()
    settings.printer().result(response, lambda: views.nodes(response))


@click.command("health", cls=Command)
@click.option("--service", default="", help="Ask for one service of the daemon only.")
@pass_settings
def health(settings: Settings, service: str) -> None:
    """Ask the daemon whether it is well.

    Ends with 0 if it is, with 4 if it says it is not, and with 78 if it does not answer.
    """
    with settings.client() as client:
        response = client.health(service)
    status = type(response).ServingStatus.Name(response.status)
    if status != "SERVING":
        raise failures.CommandFailedError(failures.unhealthy(status, settings.address()))
    settings.printer().result(
        response, lambda: text.escaped(f"the daemon at {settings.address()} is serving")
    )


@click.command("version", cls=Command)
@click.option("--client", "client_only", is_flag=True, help="Do not ask the daemon.")
@pass_settings
def version(settings: Settings, *, client_only: bool) -> None:
    """Show versions, those of the nodes too."""
    known = None if client_only else _known_nodes(settings)
    data: dict[str, Any] = {
        "client_version": _version(_DISTRIBUTION),
        "api_version": API_VERSION,
        "grpc_version": grpc.__version__,
        "server": settings.address(),
        "reachable": None if client_only else known is not None,
        "nodes": [
            {"name": n.name, "plugin_version": n.plugin_version, "vllm_version": n.vllm_version}
            for n in (known.nodes if known else ())
        ],
    }
    settings.printer().result(data, lambda: _version_text(data))


def _watch(settings: Settings, client: Client, interval: float) -> None:
    printer = settings.printer()
    titled = True
    with contextlib.suppress(KeyboardInterrupt):
        for sample in client.watch_stats(interval):
            printer.sample(sample, partial(views.samples, sample, titled=titled))
            titled = False


def _known_nodes(settings: Settings) -> ListNodesResponse | None:
    try:
        with settings.client() as client:
            return client.list_nodes()
    except HotwireError:
        return None


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def _version_text(data: dict[str, Any]) -> str:
    reachable = {None: "not asked", True: "reachable", False: "not reachable"}[data["reachable"]]
    head = text.fields(
        [
            ("client", data["client_version"]),
            ("api", data["api_version"]),
            ("grpc", data["grpc_version"]),
            ("daemon", f"{reachable} at {data['server']}"),
        ]
    )
    if not data["nodes"]:
        return head
    rows = [(n["name"], n["plugin_version"], n["vllm_version"]) for n in data["nodes"]]
    return head + "\n\n" + text.columns(("NAME", "PLUGIN", "VLLM"), rows)
