"""The commands that look: stats, health, version."""

import contextlib
from functools import partial
from typing import Any

import click
import grpc

from hotwire_client import Client, HotwireError, ListNodesResponse
from hotwirectl import failures, terminal, text, views, watching
from hotwirectl.printers import Printer
from hotwirectl.settings import Command, Settings, pass_settings

API_VERSION = "hotwired.v1"
_DISTRIBUTION = "hotwired"
_STATS_INTERVAL = 1.0


@click.command("stats", cls=Command, example="hotwirectl stats --watch")
@watching.options(default=_STATS_INTERVAL)
@pass_settings
def stats(settings: Settings, *, interval: float | None, watch: bool) -> None:
    """Show counters of the daemon and engines.

    With --watch on a terminal it is a screen of rates; elsewhere, and in other formats than the
    table, a sample on lines of its own.
    """
    every = watching.seconds(interval, watch=watch, default=_STATS_INTERVAL)
    with settings.client() as client:
        if every:
            _watch(settings, client, every)
            return
        taken = client.stats()
    settings.printer().result(
        taken, lambda: views.stats(taken), wide=lambda: views.stats(taken, wide=True)
    )


@click.command("health", cls=Command, example="hotwirectl health --timeout 2")
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


@click.command("version", cls=Command, example="hotwirectl version -o json")
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
    with contextlib.suppress(KeyboardInterrupt):
        if settings.format() in {"table", "wide"} and terminal.can_draw():
            from hotwirectl.live import screen  # rich, which no other command waits for

            screen.show(client.watch_stats(interval), settings.address())
        else:
            _print_samples(settings.printer(), client, interval)


def _print_samples(printer: Printer, client: Client, interval: float) -> None:
    titled = True
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
    from importlib import metadata  # it brings forty modules along, for this one command

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
