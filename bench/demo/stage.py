"""What every check works with, and what it comes to."""

from dataclasses import dataclass, field
from typing import Any

from bench.demo import data
from bench.demo.api import Answer, Api, Steering
from bench.demo.control import Control
from bench.demo.settings import SHOWN_SCALE, Places

UNSTEERED = Steering()
POSITIVE = Steering(SHOWN_SCALE)
NEGATIVE = Steering(-SHOWN_SCALE)


@dataclass(frozen=True, slots=True)
class Check:
    """One claim: whether it held, a sentence on what was seen, and the figures behind it."""

    name: str
    passed: bool
    seen: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Stage:
    """A server and a daemon that run, and the demo's texts. Texts are asked for once each."""

    api: Api
    control: Control
    places: Places
    prompts: list[str] = field(default_factory=data.prompts)
    _alone: dict[tuple[str, Steering], Answer] = field(default_factory=dict)

    def alone(self, prompt: str, steering: Steering = UNSTEERED) -> str:
        """The text that a request gets when nothing else runs."""
        key = (prompt, steering)
        if key not in self._alone:
            self._alone[key] = self.api.complete(prompt, steering)
        return self._alone[key].text

    def again(self, prompt: str, steering: Steering = UNSTEERED) -> str:
        """The same, asked for now, whatever was answered before."""
        return self.api.complete(prompt, steering).text


def yes_no(value: bool) -> str:  # noqa: FBT001 - a word for a truth value
    """The word for it."""
    return "yes" if value else "no"
