"""What steering does to the request that asks for it, and to no other."""

import itertools

from hotwirectl.verify.answers import Answer, distance
from hotwirectl.verify.api import ApiError, Ask, RefusedError
from hotwirectl.verify.effect import probe
from hotwirectl.verify.node_checks import Seen
from hotwirectl.verify.results import CIRCUMSTANCES, FailedError, NotShownError
from hotwirectl.verify.stage import PROMPTS, Stage

_MATE_TOKENS = 16
_CACHED_TOKENS = 4
_LONG_WORDS = 300
_WORDS = ("the", "day", "was", "as", "long", "as", "it", "had", "been", "in", "the", "old", "town")


def fires(stage: Stage) -> Seen:
    """Steering changes what comes out; the other way round differently, by nothing not at all."""
    found = probe(stage)
    stage.scale = found.scale
    plain, steered = stage.baseline, found.last
    assert steered is not None  # noqa: S101 - probe has an effect, so there was an answer
    opposite = distance(stage.complete(stage.spec(-stage.scale)), steered)
    nothing = distance(stage.complete(stage.spec(0.0)), plain)
    figures: dict[str, object] = {
        "scale": stage.scale,
        "effect_nats": found.effect,
        "opposite_nats": opposite,
        "scale_0_nats": nothing,
        "effect_by_scale": dict(found.points),
    }
    if opposite < stage.visible:
        raise FailedError(f"the opposite scale differs by {opposite:.2g} nats only", figures)
    if nothing > stage.rounding:
        raise FailedError(f"a scale of 0 changes a log-probability by {nothing:.2g}", figures)
    return (
        f"layer {stage.layer}, scale {stage.scale:g}: {found.effect:.2g} nats, opposite "
        f"{opposite:.2g} apart, scale 0: {nothing:.1g}"
    ), figures


def zero_vector(stage: Stage) -> Seen:
    """A row of zeros goes the whole way through the tap, and changes nothing."""
    plain = stage.baseline
    each = [distance(stage.complete(stage.zero()), plain) for _ in range(2)]
    figures: dict[str, object] = {"nats": each}
    if max(each) > stage.rounding:
        raise FailedError(f"a row of zeros changes a log-probability by {max(each):.2g}", figures)
    return f"differs from unsteered by {max(each):.1g} nats", figures


def batchmates(stage: Stage) -> Seen:
    """Beside steered requests, an unsteered one gets what it gets beside rows of zeros."""
    _need_scale(stage)
    worst, moved = 0.0, []
    for _ in range(1 if stage.quick else 3):
        quiet = stage.together(_mates(stage, stage.zero()))
        mixed = stage.together(_mates(stage, stage.spec()))
        alone = stage.complete(None, tokens=_MATE_TOKENS)
        worst = max(worst, min(distance(mixed[0], other) for other in (quiet[0], alone)))
        moved += [distance(a, b) for a, b in zip(mixed[1:], quiet[1:], strict=True)]
    figures: dict[str, object] = {"untouched_nats": worst, "steered_nats": moved}
    if worst > stage.rounding:
        raise FailedError(f"an unsteered request differs by {worst:.2g} nats", figures)
    if max(moved) < stage.visible:
        raise FailedError("the steered requests of the batch are not steered", figures)
    return f"differs by {worst:.1g} nats beside 3 that are moved by up to {max(moved):.2g}", figures


def prefix_cache(stage: Stage) -> Seen:
    """What a steered request leaves in the cache serves no unsteered one, or the reverse."""
    _need_scale(stage)
    salt = stage.ask().salt
    prompt, first = _long(stage, salt)
    rest = [None, stage.spec(), None, stage.spec()]
    answers = [first]
    answers += [stage.complete(spec, prompt, tokens=_CACHED_TOKENS, salt=salt) for spec in rest]
    _, plain, steered, after, again = answers
    leak, effect = distance(after, plain), distance(steered, plain)
    figures: dict[str, object] = {
        "order": ["plain", "plain", "steered", "plain", "steered"],
        "cached_tokens": [answer.cached_tokens for answer in answers],
        "plain_after_steered_nats": leak,
        "steered_again_nats": distance(again, steered),
        "effect_nats": effect,
    }
    _isolated(answers, figures)
    rounding = max(stage.rounding, 4 * distance(first, plain))
    if leak > rounding:
        raise FailedError(f"after a steered request a plain one differs by {leak:.2g}", figures)
    if effect < 4 * rounding:
        raise NotShownError("steering moves this long prompt too little to tell")
    return _cached(answers) + f"plain again differs by {leak:.1g} nats", figures


def repeats(stage: Stage) -> Seen:
    """The same request gets the same again; an unsteered one also after all of this."""
    plain = distance(stage.complete(), stage.baseline)
    figures: dict[str, object] = {"unsteered_before_after_nats": plain}
    if plain > stage.rounding:
        raise FailedError(f"an unsteered request differs by {plain:.2g} from before", figures)
    _need_scale(stage)
    one, other = stage.complete(stage.spec()), stage.complete(stage.spec())
    figures["steered_twice_nats"] = twice = distance(one, other)
    if twice > stage.rounding:
        raise FailedError(f"a steered request differs by {twice:.2g} from itself", figures)
    return (
        f"steered twice: {twice:.1g} nats apart; unsteered before and after: {plain:.1g}",
        figures,
    )


def refusal(stage: Stage) -> Seen:
    """A strict request for a vector that there is not is refused, and says why."""
    try:
        stage.complete(stage.spec(1.0, id=stage.vectors.unknown))
    except RefusedError as error:
        if error.reason == "VECTOR_NOT_FOUND":
            return "HTTP 400 with VECTOR_NOT_FOUND", {}
        if error.reason in CIRCUMSTANCES:
            raise
        raise FailedError(f"it was refused with {error.reason}") from error
    raise FailedError("it was served")


def _need_scale(stage: Stage) -> None:
    if not stage.scale:
        # Says why, where the policy is what forbids it.
        stage.complete(stage.spec(1.0))
        raise NotShownError("there is no scale at which steering shows")


def _mates(stage: Stage, spec: object) -> list[Ask]:
    asks = [stage.ask(None, PROMPTS[0], tokens=_MATE_TOKENS)]
    return asks + [stage.ask(spec, prompt, tokens=_MATE_TOKENS) for prompt in PROMPTS[1:]]


def _long(stage: Stage, salt: str) -> tuple[str, Answer]:
    """Returns a prompt of some blocks, as long as the server takes, and the answer to it."""
    room = (stage.max_model_len or 1024) - 2 * _CACHED_TOKENS
    text = " ".join(itertools.islice(itertools.cycle(_WORDS), min(_LONG_WORDS, room)))
    try:
        return text, stage.complete(None, text, tokens=_CACHED_TOKENS, salt=salt)
    except ApiError:
        # A word may be several tokens; a token is a character at least.
        return text[:room], stage.complete(None, text[:room], tokens=_CACHED_TOKENS, salt=salt)


def _isolated(answers: list[Answer], figures: dict[str, object]) -> None:
    """Raises FailedError if the counts of cached tokens tell of sharing."""
    counts = [answer.cached_tokens or 0 for answer in answers]
    if counts[2]:
        raise FailedError(f"the steered one took {counts[2]} tokens from the cache", figures)
    if counts[3] < counts[1]:
        raise NotShownError("the prompt was evicted from the cache meanwhile")


def _cached(answers: list[Answer]) -> str:
    counts = [answer.cached_tokens for answer in answers]
    if all(count is None for count in counts):
        return "outputs only (no --enable-prompt-tokens-details): "
    if not counts[1]:
        return "outputs only (nothing is cached): "
    return f"cached tokens: plain {counts[1]}, steered {counts[2] or 0}, plain {counts[3]}; "
