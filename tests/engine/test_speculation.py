"""Speculative decoding: the target is steered, whatever a draft proposes, and the draft is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.conftest import ONE_THREAD, Rig, Start
from tests.support import situations
from tests.support.engine_models import TINY_LAYERS, TINY_VOCAB, TINY_WIDTH, direction
from tests.support.engine_process import Answer, Ask
from tests.support.hf_reference import HfReference
from tests.support.steered_check import SPECS, WINDOW, Judge

pytestmark = pytest.mark.slow

TOKENS, DRAFTED = 60, 3
WEAK = direction(1, range(TINY_LAYERS), norm=8.0, width=TINY_WIDTH)
"""A vector that leaves an unsteered draft right now and then."""


@pytest.fixture(scope="module")
def judge(tiny_reference: HfReference) -> Judge:
    """Compares with the reference for this vector."""
    return Judge(tiny_reference, WEAK)


@pytest.fixture(scope="module", params=["ngram", "draft_model"])
def rig(
    request: pytest.FixtureRequest, start: Start, tiny_options: dict[str, Any], tiny_model: str
) -> Rig:
    """The small model with a draft: n-grams of its own text, or a second instance of itself."""
    draft = {"method": request.param, "num_speculative_tokens": DRAFTED}
    draft |= (
        {"prompt_lookup_max": 2, "prompt_lookup_min": 1}
        if request.param == "ngram"
        else {"model": tiny_model}
    )
    chunked = {"max_num_batched_tokens": 48, "speculative_config": draft}
    rig: Rig = start(tiny_options | chunked, env=ONE_THREAD)
    rig.driver.put({"joy": WEAK})
    return rig


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """A few tokens over and over, so that n-grams foretell something."""
    few = np.random.default_rng(seed).integers(3, TINY_VOCAB, 5)
    return tuple(np.resize(few, length).tolist())


def accepted(rig: Rig) -> int:
    """Drafted tokens that the target took so far."""
    found = rig.engine.call("run", situations.counters, "spec_decode_num_accepted_tokens")
    return int(found["vllm:spec_decode_num_accepted_tokens"])


@pytest.mark.parametrize("length", [1, 47, 48, 49, 70])
@pytest.mark.parametrize("scope", SPECS)
def test_a_steered_answer_is_the_targets_own(
    rig: Rig, judge: Judge, scope: str | None, length: int
) -> None:
    """Every figure is that of a target which generates a token at a time.

    A verified span is generated text, however long, and a prompt's tail is prompt, however short.
    """
    answer = rig.engine.one(Ask(prompt(length), SPECS[scope], tokens=TOKENS))
    judge.check(answer, scope)
    assert len(answer.tokens) == TOKENS


@pytest.mark.parametrize("scope", SPECS)
def test_drafts_are_taken_in_every_scope(rig: Rig, judge: Judge, scope: str | None) -> None:
    """Spans of several tokens are verified and kept, and are steered as their scope says."""
    before = accepted(rig)
    asks = [Ask(prompt(20 + at, at), SPECS[scope], tokens=TOKENS) for at in range(8)]
    for answer in rig.engine.generate(asks):
        judge.check(answer, scope)
    assert accepted(rig) > before


def test_a_window_within_verified_drafts(rig: Rig, judge: Judge) -> None:
    """It begins and ends at its tokens, however many drafts a step verifies."""
    judge.check_window(rig.engine.one(Ask(prompt(21), WINDOW, tokens=20)), WINDOW)


def test_a_batch_of_scopes(rig: Rig, judge: Judge) -> None:
    """Spans of different lengths side by side are each steered in their own scope."""
    before = accepted(rig)
    asks = [Ask(prompt(30 + at, at), spec, tokens=TOKENS) for at, spec in enumerate(SPECS.values())]
    for scope, answer in zip(SPECS, rig.engine.generate(asks), strict=True):
        judge.check(answer, scope)
    assert accepted(rig) > before


def test_tokens_are_those_without_speculation(rig: Rig, plain_answers: list[Answer]) -> None:
    """Greedy tokens are the plain engine's, in every scope."""
    rig.engine.call("reset_prefix_cache")
    found = rig.engine.generate(asks_of_all())
    assert [answer.tokens for answer in found] == [answer.tokens for answer in plain_answers]
    assert len({answer.tokens for answer in found}) == len(found)


@pytest.fixture(scope="module")
def plain_answers(tight_rig: Rig) -> list[Answer]:
    """What the engine without speculation answers."""
    tight_rig.driver.set_policy()
    tight_rig.driver.put({"joy": WEAK})
    return tight_rig.engine.generate(asks_of_all())


def asks_of_all() -> list[Ask]:
    """One prompt in each scope."""
    return [Ask(prompt(41), spec, tokens=TOKENS) for spec in SPECS.values()]


def test_the_prefix_cache_serves_speculated_text(rig: Rig, judge: Judge) -> None:
    """Blocks of a speculated answer are found again by who is steered alike, and by nobody else."""
    rig.engine.call("reset_prefix_cache")
    first = rig.engine.one(Ask(prompt(40), SPECS["all"], tokens=TOKENS))
    tokens = first.prompt + first.tokens
    for scope, cached in {"all": 96, None: 0, "generated": 0, "prompt": 0}.items():
        answer = rig.engine.one(Ask(tokens, SPECS[scope], tokens=8))
        judge.check(answer, scope)
        if scope in ("all", None):
            assert (scope, answer.cached) == (scope, cached)


def test_the_draft_is_not_steered(rig: Rig) -> None:
    """Only the target's own blocks are wrapped and hold buffers; the draft shares their class."""
    (found,) = rig.engine.call("on_workers", wrapped)
    assert found["target"] == [f"model.layers.{layer}" for layer in range(TINY_LAYERS)]
    assert found["draft"] in (None, [])
    assert not found["class"]


def wrapped(worker: Any) -> dict[str, Any]:
    """Returns the names of steered modules in the target and in the draft, if it is a model."""
    from vllm.model_executor.models.llama import LlamaDecoderLayer

    def names(model: Any) -> list[str]:
        modules = model.named_modules()
        return [n for n, m in modules if "forward" in vars(m) or "hotwired_bank" in m._buffers]

    draft = getattr(getattr(worker.model_runner, "drafter", None), "model", None)
    return {
        "target": names(worker.model_runner.get_model()),
        "draft": None if draft is None else names(draft),
        "class": "hotwired" in LlamaDecoderLayer.forward.__module__,
    }
