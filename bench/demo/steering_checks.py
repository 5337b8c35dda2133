"""Checks of what steering does to requests: meaning, text, batchmates, prefix cache."""

from itertools import pairwise
from typing import Any

from bench.demo import data
from bench.demo.api import Steering
from bench.demo.settings import MARGIN_SCALES
from bench.demo.stage import NEGATIVE, POSITIVE, UNSTEERED, Check, Stage
from bench.demo.text import repeated

TEXT_PROMPTS = 6
# A text that the unsteered model finds this much less likely than its own, in nats a token, is
# still fluent: see the README for what was measured at which scale.
SURPRISE_LIMIT = 1.0
REPEATED_LIMIT = 0.2


def meaning(stage: Stage) -> Check:
    """The margin of positive over negative words grows with the scale, at every step."""
    words = data.words()
    positive = [_token(stage, word) for word in words.positive]
    negative = [_token(stage, word) for word in words.negative]
    margins: dict[str, float] = {}
    for scale in MARGIN_SCALES:
        steering = Steering(scale or None)
        found = stage.api.next_logprobs(stage.prompts, positive + negative, steering)
        each = [_mean(at, positive) - _mean(at, negative) for at in found]
        margins[f"{scale:+g}"] = round(sum(each) / len(each), 3)
    values = list(margins.values())
    passed = all(later > earlier for earlier, later in pairwise(values))
    seen = f"margin {values[0]:+.2f} to {values[-1]:+.2f} nats in {len(values)} steps of scale"
    figures: dict[str, Any] = {"prompts": len(stage.prompts), "margin_by_scale": margins}
    return Check("the margin grows with the scale", passed, seen, figures)


def readable(stage: Stage) -> Check:
    """Texts at the scale shown differ from the unsteered ones and are as fluent, nearly."""
    prompts = stage.prompts[:TEXT_PROMPTS]
    rows = {"-": NEGATIVE, "0": UNSTEERED, "+": POSITIVE}
    texts = {sign: _texts(stage, prompts, how) for sign, how in rows.items()}
    surprise = {sign: stage.api.surprise(prompts, found) for sign, found in texts.items()}
    again = {sign: round(sum(map(repeated, t)) / len(t), 3) for sign, t in texts.items()}
    differ = all(len(set(three)) == 3 for three in zip(*texts.values(), strict=True))
    fluent = max(surprise.values()) - surprise["0"] <= SURPRISE_LIMIT
    varied = max(again["-"], again["+"]) <= again["0"] + REPEATED_LIMIT
    seen = "nats a token: " + ", ".join(f"{sign} {value:.2f}" for sign, value in surprise.items())
    figures = {
        "surprise_nats_per_token": surprise,
        "repeated_trigrams": again,
        "texts": [
            {"prompt": prompt, **dict(zip(rows, three, strict=True))}
            for prompt, three in zip(prompts, zip(*texts.values(), strict=True), strict=True)
        ],
    }
    passed = differ and fluent and varied
    return Check("steered text differs and is readable", passed, seen, figures)


def batchmates(stage: Stage) -> Check:
    """In a batch of mixed requests, each gets what it gets alone."""
    steerings = [UNSTEERED, POSITIVE, UNSTEERED, NEGATIVE]
    requests = [(p, steerings[i % 4]) for i, p in enumerate(stage.prompts[:8])]
    alone = [stage.alone(*request) for request in requests]
    together = [answer.text for answer in stage.api.complete_together(requests)]
    same = [a == b for a, b in zip(alone, together, strict=True)]
    plain = sum(same[0::2])
    steered = sum(same[1::2])
    seen = f"{plain} of 4 unsteered and {steered} of 4 steered texts are the same as alone"
    figures = {"unsteered_same": plain, "steered_same": steered, "sent_at_once": len(requests)}
    return Check("a batchmate's text is untouched", plain == 4, seen, figures)


def prefix_cache(stage: Stage) -> Check:
    """Cached prompts are shared among requests with the same steering, and with no others."""
    prompt = " ".join(f"{prompt} as expected." for prompt in stage.prompts)
    order = [UNSTEERED, UNSTEERED, POSITIVE, UNSTEERED, POSITIVE]
    answers = [stage.api.complete(prompt, how) for how in order]
    cached = [answer.cached_tokens for answer in answers]
    texts = [answer.text for answer in answers]
    hits = cached[1] > 0 and cached[3] == cached[1] and cached[4] > 0
    kept_apart = cached[2] == 0 and texts[0] == texts[1] == texts[3] != texts[2] == texts[4]
    seen = f"cached tokens: plain {cached[1]}, first steered {cached[2]}, plain again {cached[3]}"
    figures = {"cached_tokens": cached, "order": ["plain", "plain", "steered", "plain", "steered"]}
    return Check("the prefix cache keeps steered apart", hits and kept_apart, seen, figures)


def _texts(stage: Stage, prompts: list[str], steering: Steering) -> list[str]:
    answers = stage.api.complete_together([(prompt, steering) for prompt in prompts])
    return [answer.text for answer in answers]


def _mean(logprobs: dict[int, float], ids: list[int]) -> float:
    return sum(logprobs[i] for i in ids) / len(ids)


def _token(stage: Stage, word: str) -> int:
    ids = stage.api.tokens(f" {word}")
    if len(ids) != 1:
        raise ValueError(f"{word!r} is {len(ids)} tokens")
    return ids[0]
