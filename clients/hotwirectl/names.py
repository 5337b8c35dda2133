"""The names that are arguments: what a shell completes them to, and the forms they may have."""

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from hotwire_client import Client
from hotwirectl.config.file import load
from hotwirectl.config.model import check_name
from hotwirectl.precedence import Settings

# A prompt that hangs is worse than one that completes nothing.
_PATIENCE = 1.0

F = TypeVar("F", bound=Callable[..., Any])


def vector_argument(name: str = "name") -> Callable[[F], F]:
    """Returns the argument NAME, a vector's; `-o name` prints vector/NAME, which is taken too."""
    return click.argument(name, shell_complete=complete_name, callback=_without("vector/"))


def node_arguments(name: str = "names") -> Callable[[F], F]:
    """Returns the arguments NAME..., those of nodes, node/NAME, or of their instances."""
    return click.argument(name, metavar="[NAME]...", nargs=-1, shell_complete=_complete_node)


def context_argument(*, required: bool = True) -> Callable[[F], F]:
    """Returns the argument NAME, a context's, or context/NAME."""
    return click.argument(
        "name", required=required, shell_complete=complete_context, callback=_context
    )


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the registered names that begin so, or none if the daemon does not answer."""
    del param
    return _matching(ctx, incomplete, "vector/", lambda c: (v.name for v in c.list_vectors()))


def complete_context(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names of contexts that begin so, or none if the configuration is broken."""
    del ctx, param
    try:
        return sorted(name for name in load().contexts if name.startswith(incomplete))
    except click.UsageError:
        return []


def _complete_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    del param
    return _matching(ctx, incomplete, "node/", lambda c: (n.name for n in c.list_nodes().nodes))


def _matching(
    ctx: click.Context, incomplete: str, kind: str, names: Callable[[Client], Iterable[str]]
) -> list[str]:
    settings = ctx.find_root().ensure_object(Settings)
    prefix = kind if incomplete.startswith(kind) else ""

    def ask() -> list[str]:
        with settings.client(timeout=_PATIENCE) as client:
            return [prefix + name for name in names(client)]

    return [name for name in _in_time(ask) if name.startswith(incomplete)]


def _in_time(ask: Callable[[], list[str]]) -> list[str]:
    """Returns the answer, or nothing if it is late or an error, whatever the error."""
    answers: list[list[str]] = []

    def run() -> None:
        # Between two keys there is nobody to tell what went wrong.
        with contextlib.suppress(Exception):
            answers.append(ask())

    # Calls have deadlines, but not all that can take long is one: looking up a host is none.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return answers[0] if answers else []


def _without(kind: str) -> Callable[..., str]:
    def callback(ctx: click.Context, param: click.Parameter, value: str) -> str:
        del ctx, param
        return value.removeprefix(kind)

    return callback


def _context(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else check_name(value.removeprefix("context/"))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
