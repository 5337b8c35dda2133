"""The command that waits for the nodes, for probes and scripts."""

import contextlib
import time

import click

from hotwire_client import Client, DeadlineExceededError, ListNodesResponse, Node, NodeState
from hotwirectl import exit_codes, failures
from hotwirectl.settings import Command, Settings, pass_settings

_PAUSE_SECONDS = 0.1


@click.command("wait", cls=Command, example="hotwirectl wait --nodes 3 --timeout 60")
@click.option(
    "--generation",
    type=click.IntRange(1),
    default=1,
    help="The generation that must be stored at least.  [default: the newest will do]",
)
@click.option(
    "--nodes",
    "count",
    type=click.IntRange(1),
    default=1,
    help="How many nodes there must be at least.  [default: 1]",
)
@pass_settings
def wait(settings: Settings, generation: int, count: int) -> None:
    """Wait until every node uses the newest generation.

    Ends with 0 as soon as that is so, with 3 if it is not within --timeout. A node that is
    disarmed, refuses a vector or takes none from a daemon is never there.
    """
    end = time.monotonic() + settings.seconds()
    with settings.client() as client:
        response = _watched(client, end, generation, count)
    if lack := _lack(response, generation, count):
        raise failures.CommandFailedError(_failure(lack, response))
    said = f"generation {response.generation} is in use on {len(response.nodes)} nodes"
    settings.printer().result(response, lambda: said)


def _watched(client: Client, end: float, generation: int, count: int) -> ListNodesResponse:
    """Returns the first response that lacks nothing, else the last one in time."""
    response = client.list_nodes()
    # What is asked last has little time left; that it comes too late says nothing new.
    with contextlib.suppress(DeadlineExceededError):
        while _lack(response, generation, count) and time.monotonic() + _PAUSE_SECONDS < end:
            time.sleep(_PAUSE_SECONDS)
            response = client.list_nodes(timeout=max(end - time.monotonic(), _PAUSE_SECONDS))
    return response


def _lack(response: ListNodesResponse, generation: int, count: int) -> str:
    """Returns what is not as it should be, or nothing."""
    if response.generation < generation:
        return f"generation {response.generation} is the newest, {generation} is waited for"
    if len(response.nodes) < count:
        return f"{len(response.nodes)} nodes are known, {count} are waited for"
    if late := len(_late(response)):
        there, known = len(response.nodes) - late, len(response.nodes)
        return f"{there} of {known} nodes use generation {response.generation}"
    return ""


def _late(response: ListNodesResponse) -> list[Node]:
    return [node for node in response.nodes if node.state != NodeState.NODE_STATE_CONVERGED]


def _failure(lack: str, response: ListNodesResponse) -> failures.Failure:
    late = {node.name: node.detail or NodeState.Name(node.state) for node in _late(response)}
    return failures.Failure(
        code="NOT_CONVERGED",
        reason="NOT_CONVERGED",
        message=lack,
        exit_code=exit_codes.NOT_CONVERGED,
        hint="`hotwirectl nodes` shows how far each node is",
        metadata=late,
    )
