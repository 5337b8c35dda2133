"""The live limit: what is added to each token is held to a share of that token's own stream."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from hotwire_plugin.program import ProgramOp
from tests.engine.conftest import ONE_THREAD, Rig, Start
from tests.support import residuals
from tests.support.engine_models import TINY_LAYERS, TINY_VOCAB, TINY_WIDTH, direction
from tests.support.engine_process import Answer, Ask
from tests.support.hf_reference import HfReference
from tests.support.steering_math import loader

VECTORS = {
    name: direction(seed, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)
    for seed, name in enumerate(("joy", "calm"), 1)
}
LOAD = loader(
    {
        (name, layer): torch.from_numpy(vector.rows[layer])
        for name, vector in VECTORS.items()
        for layer in range(TINY_LAYERS)
    }
)
STACK = [{"id": "joy", "layer": "1-2"}, {"id": "calm", "layer": 2, "op": "ablate"}]
OPS = (
    ProgramOp("joy", 1, 1.0, "add", "all"),
    ProgramOp("joy", 2, 1.0, "add", "all"),
    ProgramOp("calm", 2, 1.0, "ablate", "all"),
)
PROMPT: tuple[int, ...] = tuple(np.random.default_rng(5).integers(3, TINY_VOCAB, 70).tolist())


@pytest.fixture(scope="module")
def rig(start: Start, tiny_options: dict[str, Any]) -> Iterator[Rig]:
    """The small model with a prefix cache, its last block watched."""
    rig = start(tiny_options, env=ONE_THREAD)
    rig.engine.call("on_workers", partial(residuals.watch, layers=TINY_LAYERS))
    yield rig
    rig.engine.kill()


@pytest.fixture(autouse=True)
def _clear(rig: Rig) -> None:
    rig.driver.put(VECTORS)
    rig.driver.set_policy()
    rig.engine.call("reset_prefix_cache")
    rig.engine.call("on_workers", residuals.taken)


@pytest.fixture(scope="module")
def model(tiny_model: str) -> HfReference:
    """The small model, in Hugging Face's."""
    return HfReference(tiny_model)


def finish(rig: Rig, name: str) -> tuple[Answer, torch.Tensor]:
    """Run what is queued to its end; return a request's answer and its stream by position."""
    answers = rig.engine.call("finish")
    return answers[name], residuals.streams_of(rig.engine)[name]


def check(
    model: HfReference, answer: Answer, stream: torch.Tensor, limit: float | torch.Tensor
) -> None:
    """Compare with the reference under a limit, to fp32 rounding."""
    tokens = answer.prompt + answer.tokens[:-1]
    expected = model.stream(tokens, OPS, len(answer.prompt), LOAD, limit)
    assert residuals.relative_error(stream, expected) < residuals.MAX_RELATIVE


@pytest.mark.parametrize("limit", [0.05, 0.4])
def test_all_that_stacks_at_a_layer_is_held_together(
    rig: Rig, model: HfReference, limit: float
) -> None:
    """Against the stream as it is at that token, without a table of norms."""
    rig.driver.set_policy(max_live_relative_dose=limit)
    rig.engine.call("add", {"held": Ask(PROMPT, STACK)})
    held, stream = finish(rig, "held")
    check(model, held, stream, limit)
    free = model.stream(held.prompt + held.tokens[:-1], OPS, len(held.prompt), LOAD)
    assert residuals.relative_error(stream, free) > 100 * residuals.MAX_RELATIVE


def test_a_limit_that_is_not_reached_changes_no_bit(rig: Rig) -> None:
    """Steering within it is what it is without; but no cache is shared across the two."""
    plain = rig.engine.one(Ask(PROMPT, STACK))
    rig.driver.set_policy(max_live_relative_dose=1e6)
    held = rig.engine.one(Ask(PROMPT, STACK))
    assert held.cached == 0
    assert held.same_as(plain)


def test_a_running_request_keeps_its_limit_unless_told_otherwise(
    rig: Rig, model: HfReference
) -> None:
    """A policy without apply_to_running counts from the next admission on."""
    rig.engine.call("add", {"free": Ask(PROMPT, STACK)})
    rig.engine.call("step", 6)
    rig.driver.set_policy(max_live_relative_dose=0.05)
    free, stream = finish(rig, "free")
    check(model, free, stream, math.inf)


def test_a_tightened_limit_reaches_running_requests(rig: Rig, model: HfReference) -> None:
    """From one step on; what was computed before stays; nobody else reads what comes after."""
    rig.engine.call("add", {"free": Ask(PROMPT, STACK, tokens=60)})
    rig.engine.call("step", 10)
    before = residuals.streams_of(rig.engine)["free"]
    rig.driver.set_policy(max_live_relative_dose=0.05, apply_to_running=True)
    answers = rig.engine.call("finish")
    stream = torch.cat([before, residuals.streams_of(rig.engine)["free"]])
    free = answers["free"]
    limit = torch.full((len(stream),), 0.05)
    limit[: len(before)] = math.inf
    check(model, free, stream, limit)
    rig.driver.set_policy()
    follow_up = (*free.prompt, *free.tokens)
    again = rig.engine.one(Ask(follow_up, STACK))
    assert again.cached <= len(before)
    rig.engine.call("reset_prefix_cache")
    assert again.same_as(rig.engine.one(Ask(follow_up, STACK)))


def test_a_request_with_a_lower_limit_of_its_own_keeps_it(rig: Rig, model: HfReference) -> None:
    """Relaxing the policy relaxes no request that was admitted before."""
    rig.driver.set_policy(max_live_relative_dose=0.05, apply_to_running=True)
    rig.engine.call("add", {"held": Ask(PROMPT, STACK)})
    rig.engine.call("step", 4)
    rig.driver.set_policy(max_live_relative_dose=0.5, apply_to_running=True)
    held, stream = finish(rig, "held")
    check(model, held, stream, 0.05)
