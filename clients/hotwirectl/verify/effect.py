"""How strongly to steer so that it shows: upwards from little, as far as the policy lets it."""

from dataclasses import dataclass, field
from typing import Any

from hotwire_client import Receipt
from hotwirectl.verify.answers import Answer, distance
from hotwirectl.verify.api import RefusedError
from hotwirectl.verify.results import CIRCUMSTANCES, FailedError, NotShownError
from hotwirectl.verify.stage import Stage

#: An effect in nats that is worth the name.
WANTED = 0.1
_FACTOR = 4.0
_STEPS = 8


@dataclass(slots=True)
class Probe:
    """The scales that were tried at a place, and what each moved a log-probability by (nats)."""

    points: list[tuple[float, float]] = field(default_factory=list)
    last: Answer | None = None
    refused: RefusedError | None = None

    @property
    def scale(self) -> float:
        """The scale tried last that was not refused."""
        return self.points[-1][0]

    @property
    def effect(self) -> float:
        """What it came to."""
        return self.points[-1][1] if self.points else 0.0


def probe(stage: Stage, start: float = 1.0, **where: Any) -> Probe:
    """Steers at a place with growing scales until it shows; where: as in Stage.spec.

    A scale that the dose limit refuses is not gone beyond: half of it is the last one tried. If it
    refuses the first, less is tried until it does not.

    Raises:
        RefusedError: Steering is refused at any scale.
        NotShownError: What the policy allows is too little to be seen.
        FailedError: Whatever the scale, nothing changes.
    """
    found, scale = Probe(), start
    wanted = max(WANTED, 2 * stage.visible)
    for _ in range(_STEPS):
        if _try(stage, found, scale, where):
            if found.refused or found.effect >= wanted:
                break
            scale *= _FACTOR
        elif found.points:
            _try(stage, found, scale / 2, where)
            break
        else:
            scale /= _FACTOR
    if found.effect < stage.visible:
        raise _nothing(stage, found)
    return found


def _try(stage: Stage, found: Probe, scale: float, where: dict[str, Any]) -> bool:
    try:
        found.last = stage.complete(stage.spec(scale, **where))
    except RefusedError as error:
        if error.reason != "DOSE_EXCEEDED":
            raise
        found.refused = error
        return False
    found.points.append((scale, distance(stage.baseline, found.last)))
    return True


def _nothing(stage: Stage, found: Probe) -> Exception:
    """Returns why nothing is to be seen."""
    if not found.points:
        return found.refused or NotShownError("nothing could be tried")
    receipt = stage.receipt(found.last) if found.last else None
    held = _held(receipt, found)
    if held:
        return NotShownError(held)
    figures = {"effect_by_scale": dict(found.points)}
    return FailedError(
        f"up to a scale of {found.scale:g} nothing moves by more than {found.effect:.2g} nats",
        figures,
    )


def _held(receipt: Receipt | None, found: Probe) -> str:
    """Returns what keeps the steering small or away, if the policy or other requests do."""
    if found.refused is not None:
        return CIRCUMSTANCES.get(found.refused.reason, "")
    if receipt is None:
        return ""
    if receipt.outcome == "clamped" or receipt.HasField("max_live_relative_dose"):
        return "the policy's dose limit keeps what is added too small to be seen"
    return CIRCUMSTANCES.get(receipt.reason, "")
