"""The options that say what a file's rows are, and what is asked of the daemon where they don't."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from hotwire_client import Client, HotwireError, Node
from hotwirectl import text
from hotwirectl.formats.told import Depth, Told
from hotwirectl.layer_bases import BASES
from hotwirectl.near import Choice
from hotwirectl.printers import stdio
from hotwirectl.settings import Settings

#: Where the daemon's answer is of use, and not needed: the seconds it may take.
ASK_SECONDS = 1.0

# For these, stderr is a program's too, and what was assumed is in the data.
_MACHINE = ("json", "yaml")

F = TypeVar("F", bound=Callable[..., Any])


def layer_options(command: F) -> F:
    """Gives a command the options --layer-base and --num-layers."""
    base = click.option(
        "--layer-base",
        type=Choice(BASES),
        help="What row 0 of a file is: the output of block 0, or the embedding, as in "
        "transformers' hidden states.  [default: what its format or the number of rows proves]",
    )
    count = click.option(
        "--num-layers",
        type=click.IntRange(1, 2048),
        help="The model's number of blocks.  [default: that of the nodes' model]",
    )
    return base(count(command))


def told(settings: Settings, layer_base: str | None, num_layers: int | None) -> Told:
    """Returns what is said of a vector; the daemon, if there is one, is asked if that won't do."""

    def ask() -> Depth | None:
        found = quietly(settings, lambda client: client.list_nodes())
        return depth_of(found.nodes, "") if found is not None else None

    return Told(layer_base, num_layers, ask)


def told_or_asked(
    settings: Settings, layer_base: str | None, num_layers: int | None, model: str
) -> Told:
    """Returns the same of a vector that is for a model; if need be, the daemon has to answer."""

    def ask() -> Depth | None:
        with settings.client() as client:
            return depth_of(client.list_nodes().nodes, model)

    return Told(layer_base, num_layers, ask)


def say_assumed(settings: Settings, name: str, assumed: Iterable[str]) -> None:
    """Prints on stderr what was taken for granted of a vector."""
    if settings.format() in _MACHINE:
        return
    for sentence in assumed:
        stdio.err(text.escaped(f"assumed: {name}: {sentence}"))


def quietly(settings: Settings, call: Callable[[Client], Any]) -> Any:
    """Returns what a call of the daemon comes to, or None if it does not answer."""
    try:
        with settings.client(timeout=min(ASK_SECONDS, settings.seconds())) as client:
            return call(client)
    except HotwireError:
        return None


def depth_of(nodes: Iterable[Node], model: str) -> Depth | None:
    """Returns the depth of the model that the nodes serve: of the one named, if one is.

    None if there is no such node, or if they disagree.
    """
    layers = {n.num_layers for n in nodes if n.num_layers and (not model or n.model == model)}
    return Depth(layers.pop(), "as the nodes say") if len(layers) == 1 else None
