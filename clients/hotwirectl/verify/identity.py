"""Which of the daemon's instances answers at an address: its engine's receipt says so."""

from collections.abc import Sequence

import click

from hotwire_client import Node, NodeState
from hotwirectl.verify.api import RefusedError
from hotwirectl.verify.stage import Stage


def nodes_of(stage: Stage) -> Sequence[Node]:
    """Returns the nodes of the instance that the requests reach.

    It asks for rows of zeros, which change nothing. All the stage's nodes are returned if the
    policy refuses the request, or some of them cannot steer and therefore keep no receipt.

    Raises:
        click.UsageError: None of the daemon's engines has seen the request.
    """
    spec = {"id": stage.vectors.zero, "layer": stage.layer}
    try:
        receipt = stage.receipt(stage.complete(spec, tokens=1, tops=0))
    except RefusedError:
        return stage.nodes
    if receipt is not None:
        instance = receipt.engine.rpartition("/")[0]
        return [node for node in stage.nodes if node.instance_id == instance]
    if all(node.state == NodeState.NODE_STATE_CONVERGED for node in stage.nodes):
        raise click.UsageError(
            f"the vLLM at {stage.api.url} is none of those that the daemon knows: none of their "
            "engines has seen a request that was sent there; name the server with --url"
        )
    return stage.nodes
