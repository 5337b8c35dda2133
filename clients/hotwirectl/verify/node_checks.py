"""What the daemon says of the vLLM processes."""

from collections.abc import Sequence

from hotwire_client import Node, NodeRole, NodeState, WorkerStats
from hotwirectl import text
from hotwirectl.verify.results import FailedError
from hotwirectl.verify.stage import Stage

Seen = tuple[str, dict[str, object]]


def nodes(stage: Stage) -> Seen:
    """Every process of the instance holds what is desired, and every rank is there."""
    found = stage.nodes
    figures: dict[str, object] = {"nodes": [form(node) for node in found]}
    wrong = [f"{n.name} is {word(n)}" + (f": {n.detail}" if n.detail else "") for n in found
             if n.state != NodeState.NODE_STATE_CONVERGED]  # fmt: skip
    wrong += _missing(found)
    if not stage.vectors.settled:
        wrong.append("not every node took verify's vectors in time")
    if wrong:
        raise FailedError("; ".join(wrong), figures)
    versions = {(n.plugin_version, n.vllm_version) for n in found}
    if len(versions) > 1:
        raise FailedError("the processes run different versions", figures)
    return _sentence(found), figures


def workers(found: Sequence[Node]) -> list[Node]:
    """Returns the ranks."""
    return [node for node in found if NodeRole.NODE_ROLE_WORKER in node.roles]


def sites(found: Sequence[Node]) -> list[str]:
    """Returns where in a block all ranks steer, in the order of a block."""
    each = [list(node.sites) for node in workers(found)]
    return [site for site in each[0] if all(site in other for other in each)] if each else []


def dp_ranks(found: Sequence[Node]) -> list[int]:
    """Returns the data-parallel ranks."""
    return sorted({node.dp_rank for node in workers(found)})


def word(node: Node) -> str:
    """Returns the node's state as a word."""
    return NodeState.Name(node.state).removeprefix("NODE_STATE_").lower()


def roles(node: Node) -> list[str]:
    """Returns what the node does, as words."""
    return [NodeRole.Name(role).removeprefix("NODE_ROLE_").lower() for role in node.roles]


def form(node: Node) -> dict[str, object]:
    """Returns what a report says of a node."""
    return {
        "name": node.name,
        "roles": roles(node),
        "state": word(node),
        "detail": node.detail,
        "dp_rank": node.dp_rank,
        "pp_rank": node.pp_rank,
        "tp_rank": node.tp_rank,
        "shape": f"{node.num_layers}x{node.hidden_size}",
        "dtype": node.dtype,
        "sites": list(node.sites),
        "plugin": node.plugin_version,
        "vllm": node.vllm_version,
    }


def counted(stage: Stage) -> dict[str, WorkerStats]:
    """Returns the counters of the instance's workers, by their names."""
    mine = {node.name for node in stage.nodes}
    found = [worker for engine in stage.client.stats().engines for worker in engine.workers]
    return {worker.node: worker for worker in found if worker.node in mine}


def _missing(found: Sequence[Node]) -> list[str]:
    """Returns a sentence for each role or rank that ought to be there."""
    held = {role for node in found for role in node.roles}
    wanted = (NodeRole.NODE_ROLE_ENGINE, NodeRole.NODE_ROLE_WORKER, NodeRole.NODE_ROLE_FRONTEND)
    names = [NodeRole.Name(role).removeprefix("NODE_ROLE_").lower() for role in wanted
             if role not in held]  # fmt: skip
    ranks = {(n.dp_rank, n.pp_rank, n.tp_rank) for n in workers(found)}
    whole = 1
    for axis in range(3):
        whole *= len({rank[axis] for rank in ranks})
    gaps = [f"{len(ranks)} of {whole} ranks are there"] if ranks and len(ranks) != whole else []
    return [f"there is no {name}" for name in names] + gaps


def _sentence(found: Sequence[Node]) -> str:
    ranks = workers(found)
    parts = [
        f"{name} {len({getattr(n, field) for n in ranks})}"
        for name, field in (("DP", "dp_rank"), ("PP", "pp_rank"), ("TP", "tp_rank"))
    ]
    armed = text.escaped(", ".join(sites(found)))
    return f"{len(found)} processes converged, {' '.join(parts)}, armed at {armed}"
