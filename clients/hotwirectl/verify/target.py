"""Which running server to verify: its address, its model and its nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from hotwire_client import Client, Node, UnavailableError
from hotwirectl.verify.api import Api, ApiError

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Target:
    """A server that answers. nodes: those that serve the model, of one instance or of several.

    max_model_len: the most tokens of a request; None if the server does not say.
    """

    api: Api
    model: str
    nodes: tuple[Node, ...]
    max_model_len: int | None

    @property
    def width(self) -> int:
        """The width of the residual stream."""
        return max((node.hidden_size for node in self.nodes), default=0)


def known_nodes(client: Client) -> Sequence[Node]:
    """Returns the nodes that the daemon knows; none if no daemon answers."""
    try:
        return list(client.list_nodes().nodes)
    except UnavailableError:
        return ()


def running(api: Api, nodes: Iterable[Node], wanted: str | None) -> Target:
    """Returns the server at the address, matched to the nodes by the model's name.

    Raises:
        click.UsageError: Nothing answers there, or it serves none of the nodes' models.
    """
    by_model = _by_model(nodes)
    try:
        served = api.models()
    except ApiError as error:
        raise click.UsageError(
            f"the daemon knows running nodes, but there is no vLLM at {api.url} ({error}); "
            "name its address with --url"
        ) from error
    model = _model(by_model, served, wanted)
    return Target(api, model, tuple(by_model[model]), served[model])


def _by_model(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in nodes:
        found.setdefault(node.model, []).append(node)
    return found


def _model(known: Iterable[str], served: Iterable[str], wanted: str | None) -> str:
    names = {wanted, Path(wanted).name} if wanted else None
    for name in served:
        if name in known and (names is None or name in names):
            return name
    raise click.UsageError(
        f"{'the server serves ' + _list(served)}, the daemon's nodes {_list(known)}"
        + (f", and none of both is {wanted}" if wanted else ", and no model is in both")
        + "; name the server with --url, or verify one of its own with --throwaway --model DIR"
    )


def _list(names: Iterable[str] | Mapping[str, object]) -> str:
    return ", ".join(sorted(filter(None, names))) or "nothing"
