"""That the tap of every rank, stage and site acts."""

import time

from hotwire_client import WorkerStats
from hotwirectl.verify import node_checks
from hotwirectl.verify.answers import distance
from hotwirectl.verify.api import RefusedError
from hotwirectl.verify.effect import probe
from hotwirectl.verify.node_checks import Seen
from hotwirectl.verify.results import CIRCUMSTANCES, FailedError, NotShownError
from hotwirectl.verify.stage import Stage

_COUNT_SECONDS = 3.0
_POLL_SECONDS = 0.1

Counters = dict[str, WorkerStats]


def taps(stage: Stage) -> Seen:
    """Steering at each stage's layers and at each site shows, and every rank counts it."""
    stage.complete(stage.spec(stage.scale or 1.0))
    before = node_checks.counted(stage)
    if not before:
        raise NotShownError("the daemon counts no ranks: it is older than this command")
    figures: dict[str, object] = {}
    figures["effect_by_layer"] = layers = _layers(stage)
    figures["effect_by_site"] = at_sites = _sites(stage)
    missed = _other_ranks(stage)
    counted = _until_all_count(stage, before)
    figures["steered_tokens_by_rank"] = counted
    idle = [name for name, tokens in counted.items() if not tokens]
    wrong = _new_errors(before, node_checks.counted(stage))
    if idle:
        raise FailedError(f"no token was steered on {', '.join(idle)}", figures)
    if wrong:
        raise FailedError(f"programs failed: {', '.join(wrong)}", figures)
    if missed:
        raise NotShownError(f"engine {', '.join(missed)} can't be reached by this address")
    told = f"layers {', '.join(layers)}" + (f"; {', '.join(at_sites)}" if at_sites else "")
    return f"{len(counted)} of {len(counted)} ranks count; seen at {told}", figures


def tapped_layers(layers: int, stages: int, *, quick: bool) -> list[int]:
    """Returns the layers to look at: the middle of each pipeline stage, and both ends."""
    middles = {(2 * at + 1) * layers // (2 * stages) for at in range(stages)}
    ends = set() if quick else {0, layers - 1}
    return sorted(middles | ends)


def _layers(stage: Stage) -> dict[str, float]:
    stages = len({node.pp_rank for node in node_checks.workers(stage.nodes)})
    found = {}
    for layer in tapped_layers(stage.layers, stages, quick=stage.quick):
        found[str(layer)] = probe(stage, stage.scale or 1.0, layer=layer).effect
    return found


def _sites(stage: Stage) -> dict[str, float]:
    """Returns the effect at the sites beside the stream after a block."""
    found = {}
    for site in node_checks.sites(stage.nodes):
        if site == "post":
            continue
        try:
            found[site] = probe(stage, stage.scale or 1.0, site=site).effect
        except RefusedError as error:
            if error.reason not in CIRCUMSTANCES:
                raise
    return found


def _other_ranks(stage: Stage) -> list[str]:
    """Steers on each data-parallel rank by name; returns the engines that did not get it."""
    ranks = node_checks.dp_ranks(stage.nodes)
    if len(ranks) < 2:
        return []
    missed = []
    for rank in ranks:
        answer = stage.complete(stage.spec(), dp_rank=rank)
        receipt = stage.receipt(answer)
        if receipt is None or not receipt.engine.endswith(f"/{rank}"):
            missed.append(str(rank))
        elif distance(answer, stage.baseline) < stage.visible:
            raise FailedError(f"on data-parallel rank {rank} nothing is steered")
    return missed


def _until_all_count(stage: Stage, before: Counters) -> dict[str, int]:
    """Returns how many tokens each rank has steered since; the daemon may lag a moment."""
    end = time.monotonic() + _COUNT_SECONDS
    while True:
        now = node_checks.counted(stage)
        counted = {
            name: now[name].steered_tokens_total - worker.steered_tokens_total
            for name, worker in before.items()
            if name in now
        }
        if all(counted.values()) or time.monotonic() > end:
            return counted
        time.sleep(_POLL_SECONDS)


def _new_errors(before: Counters, now: Counters) -> list[str]:
    return [
        f"{reason} on {name}"
        for name, worker in now.items()
        for reason, count in worker.program_errors_total.items()
        if name in before and count > before[name].program_errors_total.get(reason, 0)
    ]
