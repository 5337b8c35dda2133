"""Chunked prefill, preemption, aborts: what the scheduler does to a request changes no figure.

A small model with 32 tokens a step and a cache of 6 blocks, all in one process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.conftest import Rig
from tests.support.engine_models import TINY_LAYERS, TINY_VOCAB, TINY_WIDTH, direction
from tests.support.engine_process import Answer, Ask
from tests.support.hf_reference import HfReference, Steered

ROW = direction(1, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)
SPECS: dict[str, Any] = {
    "all": {"id": "joy", "layer": 1},
    "generated": {"id": "joy", "layer": 1, "decode_only": True},
    "prompt": {"id": "joy", "layer": 1, "scope": "prompt"},
}


@pytest.fixture(autouse=True)
def _vectors(tight: Rig) -> None:
    tight.driver.put({"joy": ROW})


@pytest.fixture(scope="module")
def reference(tiny_model: str) -> HfReference:
    """The small model."""
    return HfReference(tiny_model)


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Random tokens, the same ones for each seed."""
    return tuple(np.random.default_rng(seed).integers(3, TINY_VOCAB, length).tolist())


def check(reference: HfReference, answer: Answer, scope: str | None) -> None:
    """Every figure is the reference's; so each position was steered as its scope says."""
    length = len(answer.prompt)
    positions = {
        "all": slice(None),
        "generated": slice(length, None),
        "prompt": slice(0, length),
        None: slice(0),
    }[scope]
    sequence = Steered(answer.prompt + answer.tokens, {1: ROW.rows[1]}, positions)
    expected = reference.logprobs([sequence])[0, length - 1 : -1]
    for step, reported in enumerate(answer.logprobs):
        figures = torch.tensor(list(reported.values()))
        assert float((expected[step, list(reported)] - figures).abs().max()) < 2e-3, (scope, step)
        assert float(expected[step].max() - expected[step, answer.tokens[step]]) < 2e-3


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65, 70])
@pytest.mark.parametrize("scope", SPECS)
def test_a_chunked_prompt_is_prompt_to_its_last_token(
    tight: Rig, reference: HfReference, scope: str, length: int
) -> None:
    """Whatever the length of a chunk's tail, one token as well, its positions are the prompt's."""
    check(reference, tight.engine.one(Ask(prompt(length), SPECS[scope], tokens=12)), scope)


def test_chunks_beside_requests_that_generate(tight: Rig, reference: HfReference) -> None:
    """A long prompt that is computed in odd pieces beside running requests is steered right."""
    scopes = {"a": "all", "b": "generated", "c": "prompt", "d": None}
    asks = {
        name: Ask(prompt(10 + at, at), SPECS.get(scope or ""), tokens=40)
        for at, (name, scope) in enumerate(scopes.items())
    }
    tight.engine.call("add", {name: asks[name] for name in "abd"})
    tight.engine.call("step", 4)
    tight.engine.call(
        "add", {"late": Ask(prompt(61, 9), SPECS["generated"], tokens=8), "c": asks["c"]}
    )
    answers = tight.engine.call("finish")
    check(reference, answers.pop("late"), "generated")
    for name, answer in answers.items():
        check(reference, answer, scopes[name])


def test_a_preempted_request_goes_on_as_it_was(tight: Rig, reference: HfReference) -> None:
    """Requests that lose their blocks and are computed anew are steered at the same positions."""
    before = tight.engine.call("preemptions")
    scopes: dict[str, str | None] = {
        "all": "all",
        "generated": "generated",
        "prompt": "prompt",
        "none": None,
    }
    asks = {
        name: Ask(prompt(33 + at, at), SPECS.get(scope or ""), tokens=64)
        for at, (name, scope) in enumerate(scopes.items())
    }
    tight.engine.call("add", asks)
    answers = tight.engine.call("finish")
    assert tight.engine.call("preemptions") > before
    for name, answer in answers.items():
        check(reference, answer, scopes[name])
    assert tight.driver.worker().rows_in_use == 0
    assert tight.driver.engine().requests_live == 0


def test_a_preempted_request_keeps_its_revision(tight: Rig, reference: HfReference) -> None:
    """A vector replaced before the preemption is not what the request resumes with."""
    before = tight.engine.call("preemptions")
    asks = {str(at): Ask(prompt(33, at), SPECS["all"], tokens=64) for at in range(3)}
    tight.engine.call("add", asks)
    tight.engine.call("step", 5)
    tight.driver.put({"joy": direction(2, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)})
    answers = tight.engine.call("finish")
    assert tight.engine.call("preemptions") > before
    for answer in answers.values():
        check(reference, answer, "all")


def test_nothing_is_left_of_an_aborted_request(tight: Rig) -> None:
    """Aborting a queued and a running request gives back rows, programs and revisions."""
    tight.engine.call("add", {"running": Ask(prompt(8), SPECS["all"], tokens=60)})
    tight.engine.call("step", 3)
    tight.engine.call("add", {"queued": Ask(prompt(9), SPECS["generated"], tokens=60)})
    assert tight.driver.engine().requests_live == 2
    assert tight.driver.worker().rows_in_use == 1
    tight.engine.call("abort", ["running", "queued"])
    assert tight.driver.engine().requests_live == 0
    assert list(tight.driver.engine().revisions_in_use) == []
    # The worker hears of it with the next step.
    tight.engine.one(Ask(prompt(8), tokens=2))
    assert tight.driver.worker().rows_in_use == 0
    assert tight.driver.worker().slots_in_use <= TINY_LAYERS


def test_a_batch_of_different_programs_never_runs_out_of_rows(
    tight: Rig, reference: HfReference
) -> None:
    """As many programs as a batch can hold, all different and in both phases, are all applied."""
    for turn in range(3):
        asks = [
            Ask(
                prompt(4, at),
                [
                    {"id": "joy", "layer": 1},
                    {
                        "id": "joy",
                        "layer": 3,
                        "scale": 1e-6 * (8 * turn + at + 1),
                        "decode_only": True,
                    },
                ],
                tokens=6,
            )
            for at in range(8)
        ]
        for answer in tight.engine.generate(asks):
            check(reference, answer, "all")
    assert not tight.driver.worker().program_errors_total


def test_a_thousand_scales_take_no_memory(tight: Rig) -> None:
    """Scales are part of the table, not of the bank: one vector row serves them all."""
    slots = tight.driver.worker().slots_in_use
    for turn in range(4):
        tight.engine.generate(
            [
                Ask((7, 8), {"id": "joy", "layer": 2, "scale": 0.01 * (turn * 250 + at)}, tokens=1)
                for at in range(1, 251)
            ]
        )
    assert tight.driver.worker().slots_in_use <= slots + 1
    assert tight.driver.worker().rows_in_use == 0
