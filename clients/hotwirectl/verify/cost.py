"""What a token costs: unsteered, steered at one layer, steered at all."""

import time
from collections.abc import Mapping, Sequence

from hotwirectl.verify.api import Api, Ask, RefusedError
from hotwirectl.verify.results import CIRCUMSTANCES, Timing
from hotwirectl.verify.stage import PROMPTS, Stage

UNSTEERED = "unsteered"
ONE_LAYER = "steered, 1 layer"
BARE = "bare vLLM"
NO_BARE = Timing(BARE, why_not="only a throwaway server is started bare, too, without --quick")

#: Small enough for any dose limit, and as costly as any other.
_FAINT = 1e-6
_FEWEST, _SECONDS = 3, 20.0
_QUICK, _FULL = (3, 16), (11, 32)


def timings(stage: Stage) -> list[Timing]:
    """Returns the milliseconds a token takes each way, in rounds that take turns."""
    asked = {
        UNSTEERED: None,
        ONE_LAYER: stage.spec(_FAINT),
        f"steered, {stage.layers} layers": stage.spec(_FAINT, layer=f"0-{stage.layers - 1}"),
    }
    why_not = {name: _refused(stage, spec) for name, spec in asked.items()}
    going = {name: spec for name, spec in asked.items() if not why_not[name]}
    taken = rounds(stage.api, stage.model, {n: stage.ask(s) for n, s in going.items()},
                   quick=stage.quick)  # fmt: skip
    return [Timing(name, tuple(taken.get(name, ())), why_not[name]) for name in asked]


def bare(api: Api, model: str, when: str) -> Timing:
    """Returns the same of a server that has never heard of steering; when: before or after."""
    (taken,) = rounds(api, model, {BARE: Ask(PROMPTS[0])}, quick=False).values()
    return Timing(f"{BARE}, {when}", tuple(taken))


def rounds(
    api: Api, model: str, asks: Mapping[str, Ask], *, quick: bool
) -> dict[str, Sequence[float]]:
    """Returns milliseconds a token by name: whole requests, prompt and HTTP included.

    On a slow server there are fewer rounds, three at the least.
    """
    count, tokens = _QUICK if quick else _FULL
    end = time.monotonic() + _SECONDS
    taken: dict[str, list[float]] = {name: [] for name in asks}
    names = list(asks)
    for at in range(-1, count):
        if at >= _FEWEST and time.monotonic() > end:
            break
        # The one that goes first pays for what the round before left, so each does in turn.
        turn = at % len(names)
        for name in names[turn:] + names[:turn]:
            ms = _ms(api, model, asks[name], tokens)
            if at >= 0:  # the first round warms up
                taken[name].append(ms)
    return dict(taken)


def _ms(api: Api, model: str, ask: Ask, tokens: int) -> float:
    timed = Ask(ask.prompt, ask.spec, tokens, ask.salt, tops=0)
    return 1000 * api.complete(model, timed).seconds / tokens


def _refused(stage: Stage, spec: object) -> str:
    try:
        stage.complete(spec, tokens=1)
    except RefusedError as error:
        return CIRCUMSTANCES.get(error.reason, f"refused with {error.reason}")
    return ""


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the value that so much of them are below, between two if it falls there."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def paired(timing: Timing, base: Timing) -> list[float]:
    """Returns what it takes more than the base in each round, as a share of the base."""
    pairs = zip(timing.ms, base.ms, strict=False)
    return [mine / other - 1.0 for mine, other in pairs]
