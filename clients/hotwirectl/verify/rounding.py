"""How far equal requests are apart: what is less than that is no effect of steering."""

import contextlib

from hotwirectl.verify.answers import distance
from hotwirectl.verify.api import ApiError
from hotwirectl.verify.node_checks import Seen
from hotwirectl.verify.stage import LEAST_ROUNDING, PROMPTS, Stage

_MARGIN = 4.0


def measure(stage: Stage) -> Seen:
    """Asks unsteered requests again, alone and together, and takes how far they are apart."""
    _find_tops(stage)
    alone = [stage.complete() for _ in range(2 if stage.quick else 4)]
    batches = [stage.together([stage.ask(None, prompt) for prompt in PROMPTS]) for _ in range(2)]
    stage.baseline = alone[0]
    others = [*alone[1:], *(batch[0] for batch in batches)]
    apart = max(distance(stage.baseline, other) for other in others)
    stage.rounding = max(LEAST_ROUNDING, _MARGIN * apart)
    figures: dict[str, object] = {"apart_nats": apart, "rounding_nats": stage.rounding}
    said = "" if stage.tops else " (texts alone: the server tells no log-probabilities)"
    return (
        f"equal ones differ by {apart:.1g} nats; taken for rounding: {stage.rounding:.1g}" + said,
        figures,
    )


def _find_tops(stage: Stage) -> None:
    """Finds how many log-probabilities the server is ready to tell."""
    for tops in (stage.tops, 1):
        stage.tops = tops
        with contextlib.suppress(ApiError):
            stage.complete(tokens=1)
            return
    stage.tops = 0
