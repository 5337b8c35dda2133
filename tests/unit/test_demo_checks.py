"""The demo's checks can fail: each is shown a server that breaks what it is to find."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from bench.demo import control_checks, steering_checks
from bench.demo.api import Answer, Api, RefusedError, Steering
from bench.demo.control import Control
from bench.demo.settings import COMPARED_TOKENS, places
from bench.demo.stage import UNSTEERED, Check, Stage

Margin = Callable[[float], float]


class Server:
    """Answers as a working server and daemon would, but for what the fields say."""

    def __init__(self, margin: Margin = lambda scale: scale, *, obeys_off: bool = True) -> None:
        self.margin = margin
        self.obeys_off = obeys_off
        self.leaks = False
        self.off = False

    def tokens(self, text: str) -> list[int]:
        """One token a text."""
        return [hash(text)]

    def next_logprobs(
        self, prompts: Sequence[str], ids: Sequence[int], steering: Steering
    ) -> list[dict[int, float]]:
        """Positive words, the first half, get the margin; negative ones 0."""
        value = self.margin(steering.scale or 0.0)
        half = len(ids) // 2
        return [{i: value * (at < half) for at, i in enumerate(ids)} for _ in prompts]

    def complete(
        self, prompt: str, steering: Steering = UNSTEERED, tokens: int = COMPARED_TOKENS
    ) -> Answer:
        """A text that tells prompt and scale."""
        if steering.strict and self.off:
            raise RefusedError("KILL_SWITCH")
        steered = steering.scale is not None and not (self.off and self.obeys_off)
        return Answer(f"{prompt} {steering.scale if steered else 'plain'}", 0)

    def complete_together(
        self, requests: Sequence[tuple[str, Steering]], tokens: int = COMPARED_TOKENS
    ) -> list[Answer]:
        """The same for each, unless it leaks."""
        answers = [self.complete(*request) for request in requests]
        mixed = len({steering for _, steering in requests}) > 1
        return [Answer(a.text + " leak", 0) for a in answers] if self.leaks and mixed else answers

    def __call__(self, *arguments: str) -> dict[str, Any]:
        """The commands `off` and `on`."""
        self.off = arguments == ("off",)
        return {}


def _run(check: Callable[[Stage], Check], server: Server) -> bool:
    where = places(Path("/nowhere"))
    return check(Stage(cast(Api, server), cast(Control, server), where)).passed


def test_meaning_needs_every_step() -> None:
    """Promised: one step of the scale that doesn't raise the margin fails the check."""
    assert _run(steering_checks.meaning, Server())
    assert not _run(steering_checks.meaning, Server(lambda scale: min(scale, 1.0)))
    assert not _run(steering_checks.meaning, Server(lambda scale: -scale))


def test_batchmates_must_not_leak() -> None:
    """Promised: an unsteered text that only a mixed batch gives fails the check."""
    server = Server()
    assert _run(steering_checks.batchmates, server)
    server.leaks = True
    assert not _run(steering_checks.batchmates, server)


def test_kill_switch_must_be_obeyed_and_undone() -> None:
    """Promised: steering while off fails the check, and the switch is on again afterwards."""
    assert _run(control_checks.kill_switch, Server())
    server = Server(obeys_off=False)
    assert not _run(control_checks.kill_switch, server)
    assert not server.off


def test_cache_must_hit() -> None:
    """Promised: a server that caches nothing doesn't pass for one that keeps steered apart."""
    assert not _run(steering_checks.prefix_cache, Server())
