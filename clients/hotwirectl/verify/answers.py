"""Completions, and how far apart two of them are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Top(NamedTuple):
    """One generated token, and the log-probabilities (nats) of the likeliest at its place."""

    token: str
    logprobs: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion.

    tops: one for each token; none if they were not asked for. cached_tokens: those of the prompt
    that came from the prefix cache; None if the server does not say. seconds: until it was there.
    """

    request_id: str
    text: str
    tops: tuple[Top, ...] = ()
    cached_tokens: int | None = None
    seconds: float = 0.0


def distance(one: Answer, other: Answer) -> float:
    """Returns the largest difference of a log-probability, in nats; infinite without any in common.

    Places are compared as long as what was generated before them is the same. Two tokens that all
    but tie may change places by rounding: that is a small distance, though the texts part.
    """
    if not one.tops or not other.tops:
        return 0.0 if one.text == other.text else math.inf
    worst = 0.0
    for a, b in zip(one.tops, other.tops, strict=False):
        worst = max(worst, _apart(a, b))
        if a.token != b.token:
            break
    return worst


def _apart(a: Top, b: Top) -> float:
    return max(_less(a.logprobs, b.logprobs), _less(b.logprobs, a.logprobs))


def _less(here: Mapping[str, float], there: Mapping[str, float]) -> float:
    """How much likelier something is here; what is not listed there is no likelier than the last.

    Nothing listed at one of the two is no comparison.
    """
    if not here or not there:
        return math.inf
    last = min(there.values())
    return max(value - there.get(token, last) for token, value in here.items())
