"""Every kind of request is steered as a plain one is, or is none of the plugin's business."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.engine.conftest import BLOCK, Rig
from tests.support import situations
from tests.support.engine_process import Answer, Ask
from tests.support.hf_reference import HfReference
from tests.support.steered_check import ROW, SPECS, Judge, batch, prompt
from tests.support.tiny_extras import decoded, make_lora, merge_lora


@pytest.fixture(autouse=True)
def _vectors(wide: Rig) -> None:
    wide.driver.put({"joy": ROW})


def generate(rig: Rig, adapter: str | None = None) -> dict[str, Answer]:
    """Runs a request in each scope."""
    asks = batch(12)
    found = rig.engine.call("run", situations.generate_as, list(asks.values()), {}, adapter)
    return dict(zip(asks, found, strict=True))


def test_an_engine_with_everything_on_steers_plain_requests(wide: Rig, judge: Judge) -> None:
    """LoRA and prompt embeddings being possible changes nothing for who uses neither."""
    judge.check_batch(generate(wide))


@pytest.mark.parametrize("scope", [scope for scope in SPECS if scope])
def test_every_sampled_choice_is_steered_in_its_scope(wide: Rig, judge: Judge, scope: str) -> None:
    """Choices of one request part ways, and each is the reference's by its own tokens."""
    ask = Ask(prompt(40), SPECS[scope], tokens=10, n=3, temperature=1.0, seed=5)
    answer = wide.engine.one(ask)
    assert len(set(answer.choices)) == 3
    judge.check(answer, scope)


def test_a_lora_adapter_and_steering_add_up(
    wide: Rig, judge: Judge, tiny_model: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A request with both is the merged model's, steered; without the adapter it is the model's."""
    folder = tmp_path_factory.mktemp("lora")
    adapter = make_lora(folder / "adapter")
    merged = Judge(HfReference(merge_lora(tiny_model, folder / "merged")))
    merged.check_batch(generate(wide, adapter))
    plain = generate(wide)
    judge.check_batch(plain)
    assert {answer.cached for answer in plain.values()} == {0}
    again = generate(wide, adapter)
    merged.check_batch(again)
    assert {answer.cached for answer in again.values()} == {BLOCK}


# No object: between its parts a grammar allows any white space, and this model takes its time.
YES_OR_SEVEN = {"enum": ["yes", 7]}


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        ({"regex": "[0-9]{4}-[a-f]{4}"}, r"[0-9]{4}-[a-f]{4}"),
        ({"choice": ["yes", "no"]}, r"yes|no"),
        ({"json": YES_OR_SEVEN}, r'"yes"|7'),
    ],
    ids=["regex", "choice", "json"],
)
@pytest.mark.parametrize("scope", SPECS)
def test_structured_output_is_steered_within_its_grammar(
    wide: Rig,
    judge: Judge,
    *,
    spoken_model: str,
    scope: str | None,
    constraint: dict[str, Any],
    pattern: str,
) -> None:
    """The text keeps to the grammar, and the figures behind it are those of the scope."""
    fields = {
        "structured_outputs": constraint,
        "ignore_eos": False,
        "max_tokens": 40,
        "logprobs": 20,
    }
    ask = Ask(prompt(35), SPECS[scope])
    (answer,) = wide.engine.call("run", situations.generate_as, [ask], fields)
    assert re.fullmatch(pattern, decoded(spoken_model, answer.tokens), re.DOTALL)
    judge.check_constrained(answer, scope)


@pytest.mark.parametrize("scope", SPECS)
def test_prompt_log_probabilities_are_steered(wide: Rig, judge: Judge, scope: str | None) -> None:
    """Those of every prompt position, over chunks and past a warm cache, are the scope's."""
    ask = Ask(prompt(70), SPECS[scope], tokens=2)
    wide.engine.one(ask)
    reported = wide.engine.call("run", situations.prompt_logprobs, ask, 5)
    assert len(reported) == 69
    mask = np.full(70, scope in ("all", "prompt"))
    judge.check_from(prompt(70), 1, reported, mask)


def test_a_prompt_of_embeddings_is_a_prompt(wide: Rig, judge: Judge, spoken_model: str) -> None:
    """It is steered as its tokens are: up to its end as prompt, then as generated."""
    asks = batch(12)
    answers = wide.engine.call("run", situations.from_embeds, list(asks.values()), spoken_model)
    judge.check_batch(dict(zip(asks, answers, strict=True)))


def test_a_prompt_of_embeddings_is_shared_where_it_is_unsteered(
    wide: Rig, judge: Judge, spoken_model: str
) -> None:
    """Decode-only steering shares the unsteered blocks of embeddings; steered ones are apart."""
    cached = []
    for scope in (None, "generated", "all", "generated", None):
        ask = Ask(prompt(70), SPECS[scope], tokens=12)
        (answer,) = wide.engine.call("run", situations.from_embeds, [ask], spoken_model)
        judge.check(answer, scope)
        cached.append(answer.cached)
    assert cached == [0, 2 * BLOCK, 0, 2 * BLOCK, 2 * BLOCK]


def test_beam_search_of_an_offline_caller_is_unsteered(wide: Rig) -> None:
    """vLLM's BeamSearchParams take no specification; a steered batchmate's blocks are not read."""
    first = wide.engine.call("run", beams, prompt(70))
    wide.engine.one(Ask(prompt(70), SPECS["all"]))
    assert wide.engine.call("run", beams, prompt(70)) == first


def beams(host: Any, tokens: tuple[int, ...]) -> list[list[int]]:
    """Runs a beam search of width 2."""
    from vllm.sampling_params import BeamSearchParams

    params = BeamSearchParams(beam_width=2, max_tokens=6, ignore_eos=True)
    (output,) = host.llm.beam_search([{"prompt_token_ids": list(tokens)}], params)
    return [beam.tokens for beam in output.sequences]
