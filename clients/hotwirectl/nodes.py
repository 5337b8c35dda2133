"""The command that lists the nodes."""

from collections.abc import Iterable, Sequence

import click
import grpc

from hotwire_client import Client, ListNodesResponse, Node
from hotwirectl import exit_codes, failures, listings, near, watching
from hotwirectl.listings import NODES
from hotwirectl.names import node_arguments
from hotwirectl.settings import RESOURCES, Command, Settings, pass_settings


@click.command("nodes", cls=Command, formats=RESOURCES, example="hotwirectl nodes --watch")
@node_arguments()
@watching.options()
@pass_settings
def nodes(settings: Settings, names: Sequence[str], *, interval: float | None, watch: bool) -> None:
    """List the vLLM processes the daemon knows.

    With a NAME only that node, or those of the instance of that name.
    """
    every = watching.seconds(interval, watch=watch)
    with settings.client() as client:
        response = _chosen(client.list_nodes(), names)
        if every:
            rows = watching.Rows(NODES, wide=settings.format() == "wide")
            watching.follow(settings, lambda: _now(client, names), rows, every, mark=_mark)
            return
    settings.printer().result(
        response,
        lambda: listings.nodes(response.nodes),
        wide=lambda: listings.nodes(response.nodes, wide=True),
        names=list(watching.by_name("node", response.nodes)),
    )


def _chosen(response: ListNodesResponse, names: Sequence[str]) -> ListNodesResponse:
    """Returns the nodes that are named, or all if none is.

    Raises:
        failures.CommandFailedError: There is no node or instance of a name.
    """
    for name in names:
        if not any(_is(node, name) for node in response.nodes):
            raise _not_found(name, response)
    kept = _kept(response.nodes, names)
    return ListNodesResponse(nodes=kept, generation=response.generation)


def _kept(nodes: Iterable[Node], names: Sequence[str]) -> list[Node]:
    return [n for n in nodes if not names or any(_is(n, name) for name in names)]


def _is(node: Node, name: str) -> bool:
    return name in {node.name, f"node/{node.name}", node.instance_id}


def _not_found(name: str, response: ListNodesResponse) -> failures.CommandFailedError:
    known = {n.name for n in response.nodes} | {n.instance_id for n in response.nodes}
    meant = near.nearest(name, sorted(known))
    return failures.CommandFailedError(
        failures.Failure(
            code=grpc.StatusCode.NOT_FOUND.name,
            reason="NODE_NOT_FOUND",
            message=f"there is no node {name!r}{near.question(name, sorted(known))}",
            exit_code=exit_codes.of_status(grpc.StatusCode.NOT_FOUND),
            hint="`hotwirectl nodes` shows all names",
            metadata={"name": name} | ({"near": meant} if meant else {}),
        )
    )


def _now(client: Client, names: Sequence[str]) -> dict[str, Node]:
    return watching.by_name("node", _kept(client.list_nodes().nodes, names))


def _mark(node: Node) -> object:
    # When it was last seen changes with every look.
    known = Node()
    known.CopyFrom(node)
    known.ClearField("last_seen_time")
    return watching.whole(known)
