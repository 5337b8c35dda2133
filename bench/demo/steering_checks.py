"""Checks of what steering does to requests: meaning, text, batchmates, prefix cache."""

from itertools import pairwise
from typing import Any

from bench.demo import data
from bench.demo.api import Steering
from bench.demo.settings import COMPARED_TOKENS, MARGIN_SCALES, TEXT_TOKENS
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
    texts = {
        sign: _together(stage, prompts, [how] * len(prompts), TEXT_TOKENS)
        for sign, how in rows.items()
    }
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
    """An unsteered request among steered ones gets a text that it gets without them, too.

    Alone or among unsteered ones: vLLM's own rounding depends on the size of the batch, with or
    without the plugin, so that where two tokens all but tie the two can differ.
    """
    prompts = stage.prompts[:8]
    steerings = [UNSTEERED, POSITIVE, UNSTEERED, NEGATIVE] * 2
    alone = [stage.alone(p, how) for p, how in zip(prompts, steerings, strict=True)]
    plain = _together(stage, prompts, [UNSTEERED] * 8)
    mixed = _together(stage, prompts, steerings)
    as_alone = [mine == other for mine, other in zip(mixed, alone, strict=True)]
    untouched = [a or mixed[i] == plain[i] for i, a in enumerate(as_alone)][0::2]
    steered = [mixed[i] not in (plain[i], stage.alone(prompts[i])) for i in range(1, 8, 2)]
    seen = f"{sum(untouched)} of 4 unsteered texts are as without the 4 steered ones beside them"
    figures = {
        "untouched": sum(untouched),
        "steered_differ": sum(steered),
        "unsteered_as_alone": sum(as_alone[0::2]),
        "steered_as_alone": sum(as_alone[1::2]),
    }
    passed = all(untouched) and all(steered)
    return Check("a batchmate's text is untouched", passed, seen, figures)


def prefix_cache(stage: Stage) -> Check:
    """Cached prompts are shared among requests with the same steering, and with no others."""
    prompt = " ".join(f"{prompt} as expected." for prompt in stage.prompts)
    order = [UNSTEERED, UNSTEERED, POSITIVE, UNSTEERED, POSITIVE]
    answers = [stage.api.complete(prompt, how) for how in order]
    cached = [answer.cached_tokens for answer in answers]
    texts = [answer.text for answer in answers]
    hits = cached[1] > 0 and cached[3] == cached[1] and cached[4] > 0
    kept_apart = cached[2] == 0 and texts[1] == texts[3] and texts[1] not in texts[2::2]
    seen = f"cached tokens: plain {cached[1]}, first steered {cached[2]}, plain again {cached[3]}"
    figures = {"cached_tokens": cached, "order": ["plain", "plain", "steered", "plain", "steered"]}
    return Check("the prefix cache keeps steered apart", hits and kept_apart, seen, figures)


def _together(
    stage: Stage, prompts: list[str], steerings: list[Steering], tokens: int = COMPARED_TOKENS
) -> list[str]:
    answers = stage.api.complete_together(list(zip(prompts, steerings, strict=True)), tokens)
    return [answer.text for answer in answers]


def _mean(logprobs: dict[int, float], ids: list[int]) -> float:
    return sum(logprobs[i] for i in ids) / len(ids)


def _token(stage: Stage, word: str) -> int:
    ids = stage.api.tokens(f" {word}")
    if len(ids) != 1:
        raise ValueError(f"{word!r} is {len(ids)} tokens")
    return ids[0]
