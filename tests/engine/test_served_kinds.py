"""What only an engine with processes of its own serves: sessions by AsyncLLM, and beam search."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.conftest import ONE_THREAD, Rig, Start
from tests.engine.test_sessions import FIRST, PAIRS, check, chunks
from tests.support.engine_process import Ask, EngineError
from tests.support.steered_check import ROW, SPECS, Judge, prompt

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(start: Start, tiny_options: dict[str, Any], spoken_model: str) -> Rig:
    """The small model behind an AsyncLLM, with 48 tokens a step."""
    options = {"model": spoken_model, "skip_tokenizer_init": False, "max_num_batched_tokens": 48}
    rig: Rig = start(
        tiny_options | options | {"served": True},
        env=ONE_THREAD | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    )
    rig.driver.put({"joy": ROW})
    return rig


@pytest.fixture(autouse=True)
def _empty_cache(served: Rig) -> None:
    served.engine.call("reset_prefix_cache")


@pytest.mark.parametrize("queued", [False, True], ids=["in turn", "queued"])
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_session(
    served: Rig,
    judge: Judge,
    before: str | None,
    after: str | None,
    queued: bool,  # noqa: FBT001
) -> None:
    """Each chunk is steered as it asks; what the session leaves in the cache misleads nobody."""
    asks, _, mask = chunks(before, after)
    name = f"{before}-{after}-{queued}"
    tokens = check(judge, served.engine.call("converse", name, asks, queued), asks, mask)
    for scope, spec in SPECS.items():
        judge.check(served.engine.one(Ask(tokens, spec, tokens=4)), scope)
    assert served.driver.engine().requests_live == 0


def beam_search(rig: Rig, spec: object, length: int = FIRST) -> list[Any]:
    """Runs a search of width 3 over 8 tokens."""
    asked: dict[str, Any] = {"n": 3, "max_tokens": 8, "ignore_eos": True, "temperature": 0.0}
    if spec is not None:
        asked["vllm_xargs"] = {"hotwire": json.dumps(spec), "other": 1}
    found: list[Any] = rig.engine.call("beam_search", prompt(length), asked)
    return found


@pytest.mark.parametrize("length", [5, 30, FIRST, 60])
@pytest.mark.parametrize("scope", SPECS)
def test_beams_are_steered_in_their_scope(
    served: Rig, judge: Judge, scope: str | None, length: int
) -> None:
    """What a beam has generated is steered as generated, though vLLM sends it as a prompt."""
    beams = beam_search(served, SPECS[scope], length)
    assert len({beam.tokens for beam in beams}) == 3
    for beam in beams:
        judge.check(beam, scope)


@pytest.mark.parametrize("scope", SPECS)
def test_beams_leave_a_cache_that_misleads_nobody(
    served: Rig, judge: Judge, scope: str | None
) -> None:
    """Follow-ups of a beam find its blocks only where they would have written the same."""
    best = beam_search(served, SPECS[scope], 60)[0]
    tokens = best.prompt + best.tokens
    for other, spec in SPECS.items():
        judge.check(served.engine.one(Ask(tokens, spec, tokens=4)), other)


def test_a_strict_beam_search_that_cannot_be_honoured_is_refused(served: Rig) -> None:
    """It is told why, as any other request."""
    with pytest.raises(EngineError, match="VECTOR_NOT_FOUND") as refused:
        beam_search(served, {"id": "nobody", "strict": True})
    assert refused.value.kind == "VLLMValidationError"


@pytest.mark.parametrize("forged", [-1, 10**9, "4", True, 7.5, None])
def test_a_prompt_length_of_a_clients_making(served: Rig, judge: Judge, forged: object) -> None:
    """A length that cannot be is ignored."""
    extra = (("hotwire_prompt_len", forged),)
    ask = Ask(prompt(FIRST), SPECS["generated"], tokens=6, extra_args=extra)
    judge.check(served.engine.one(ask), "generated")


def test_a_length_within_the_prompt_is_a_beam_searchs_to_say(served: Rig, judge: Judge) -> None:
    """A client's is not taken: it would slip out of what the policy steers in prompts."""
    said = (("hotwire_prompt_len", 35),)
    answer = served.engine.one(Ask(prompt(70), SPECS["generated"], tokens=6, extra_args=said))
    judge.check(answer, "generated")
