"""What a check comes to, and what ends one early."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, slots=True)
class Check:
    """One claim: how it stands, a sentence on what was seen, and the figures behind it."""

    name: str
    status: Status
    seen: str
    figures: dict[str, Any] = field(default_factory=dict)


class NotShownError(Exception):
    """Raised by a check that can't tell as things are; the message says why."""


class FailedError(Exception):
    """Raised by a check that has seen what must not be; the message says what.

    figures: what was seen until then.
    """

    def __init__(self, message: str, figures: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.figures = figures or {}


@dataclass(frozen=True, slots=True)
class Timing:
    """What a token costs one way: milliseconds a token of each round, or why they are not known."""

    name: str
    ms: tuple[float, ...] = ()
    why_not: str = ""


#: Refusals that a policy or other requests account for, and no fault.
CIRCUMSTANCES = {
    "KILL_SWITCH": "the kill switch is on",
    "DOSE_EXCEEDED": "the policy's dose limit refuses it",
    "DOSE_UNKNOWN_NORM": "the policy has a dose limit and no reference norm for this layer",
    "DOSE_SHADOWED": "the policy's dose mode is shadow, in which nothing is steered",
    "SLOTS_EXHAUSTED": "the vectors of live requests fill the workers' bank",
    "NODE_DISARMED": "this vLLM is disarmed",
    "SITE_NOT_ARMED": "the block has no such site",
}
