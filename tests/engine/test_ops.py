"""Every op in every scope, on the engine, against Hugging Face's eager model with hooks.

What is compared is the residual stream behind the last block, at every position, in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from hotwire_plugin.positions import EVERYWHERE, Positions
from hotwire_plugin.program import ProgramOp
from tests.engine.conftest import ONE_THREAD, Rig, Start
from tests.support import residuals
from tests.support.engine_models import TINY_LAYERS, TINY_VOCAB, TINY_WIDTH, direction
from tests.support.engine_process import Ask
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
PROMPT_LEN, TOKENS = 21, 12


class Case(NamedTuple):
    """A specification, and the operations it means."""

    spec: Any
    ops: tuple[ProgramOp, ...]


OPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "add": ({"scale": 0.5}, {"op": "add", "scale": 0.5}),
    "norm_add": ({"op": "norm_add", "scale": 0.4}, {"op": "norm_add", "scale": 0.4}),
    "capped": ({"op": "norm_add", "scale": -9, "cap": 0.3}, {"op": "norm_add", "scale": -0.3}),
    "ablate": ({"op": "ablate"}, {"op": "ablate"}),
    "component": (
        {"op": "scale_component", "coefficient": 3},
        {"op": "ablate", "scale": -2.0},
    ),
    "clamp": (
        {"op": "clamp", "min": 2, "max": 4},
        {"op": "clamp", "bounds": (2.0, 4.0)},
    ),
    "pin": ({"op": "clamp", "min": 5, "max": 5}, {"op": "clamp", "bounds": (5.0, 5.0)}),
    "swap": ({"op": "swap", "to": "calm"}, {"op": "swap", "target": "calm"}),
}
WHERE: dict[str, tuple[dict[str, Any], str, Positions]] = {
    "all": ({}, "all", EVERYWHERE),
    "prompt": ({"scope": "prompt"}, "prompt", EVERYWHERE),
    "generated": ({"decode_only": True}, "generated", EVERYWHERE),
    "last": ({"scope": "last_prompt_token"}, "last_prompt_token", EVERYWHERE),
    "positions": (
        {"positions": {"include": [0, [5, -3], "22-26"], "exclude": [7, -4]}},
        "all",
        Positions(include=((0, 0), (5, -3), (22, 26)), exclude=((7, 7), (-4, -4))),
    ),
    "window": (
        {"from_generated": 2, "to_generated": 6},
        "generated",
        Positions(generated=(2, 6)),
    ),
}


def single(op: str, where: str) -> Case:
    """Return one op at layer 1, somewhere."""
    asked, does = OPS[op]
    place, scope, positions = WHERE[where]
    whole = {"revision": "joy", "layer": 1, "scale": 1.0, "scope": scope, "positions": positions}
    return Case({"id": "joy", "layer": 1, **asked, **place}, (ProgramOp(**whole | does),))


CASES = {f"{op} {where}": single(op, where) for op in OPS for where in WHERE}
CASES["by layer"] = Case(
    {"id": "joy", "scale": {"0": 0.5, "2": -0.25}},
    (ProgramOp("joy", 0, 0.5, "add", "all"), ProgramOp("joy", 2, -0.25, "add", "all")),
)
CASES["eight at one layer"] = Case(
    [CASES[name].spec for name in list(CASES)[:48:6]],
    tuple(CASES[name].ops[0] for name in list(CASES)[:48:6]),
)
CASES["many scopes"] = Case(
    [CASES[f"add {where}"].spec for where in ("prompt", "generated", "positions")],
    tuple(CASES[f"add {where}"].ops[0] for where in ("prompt", "generated", "positions")),
)
CASES["unsteered"] = Case(None, ())


def prompt() -> tuple[int, ...]:
    """Random tokens."""
    tokens: list[int] = np.random.default_rng(5).integers(3, TINY_VOCAB, PROMPT_LEN).tolist()
    return tuple(tokens)


@pytest.fixture(scope="module")
def rig(start: Start, tiny_options: dict[str, Any]) -> Iterator[Rig]:
    """The small model without a prefix cache, 24 tokens a step, its last block watched."""
    options = {"enable_prefix_caching": False, "max_num_batched_tokens": 24}
    rig = start(tiny_options | options, env=ONE_THREAD)
    rig.driver.put(VECTORS)
    rig.engine.call("on_workers", partial(residuals.watch, layers=TINY_LAYERS))
    yield rig
    rig.engine.kill()


@pytest.fixture(scope="module")
def streams(rig: Rig) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
    """All cases in batches of eight: each one's tokens, and its stream behind the last block."""
    rig.engine.call("add", {name: Ask(prompt(), c.spec, TOKENS) for name, c in CASES.items()})
    answers = rig.engine.call("finish")
    by_name = residuals.streams_of(rig.engine)
    return {
        name: (answer.prompt + answer.tokens[:-1], by_name[name])
        for name, answer in answers.items()
    }


@pytest.fixture(scope="module")
def model(tiny_model: str) -> HfReference:
    """The small model, in Hugging Face's."""
    return HfReference(tiny_model)


@pytest.mark.parametrize("name", CASES)
def test_the_stream_is_the_references(
    name: str, streams: dict[str, tuple[tuple[int, ...], torch.Tensor]], model: HfReference
) -> None:
    """Within 1e-5 of each position's norm, for prompt, chunk tail and generated positions alike."""
    tokens, stream = streams[name]
    assert len(stream) == PROMPT_LEN + TOKENS - 1
    expected = model.stream(tokens, CASES[name].ops, PROMPT_LEN, LOAD)
    assert residuals.relative_error(stream, expected) < residuals.MAX_RELATIVE


def test_the_cases_are_told_apart(
    streams: dict[str, tuple[tuple[int, ...], torch.Tensor]],
) -> None:
    """The tolerance means something: a case is a thousand times further from every other."""
    seen = list(streams)
    for at, one in enumerate(seen):
        for other in seen[at + 1 :]:
            a, b = streams[one][1], streams[other][1]
            assert residuals.relative_error(a, b) > 1000 * residuals.MAX_RELATIVE, (one, other)
