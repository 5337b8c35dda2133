"""Each model family at each of its sites, on the engine, against Hugging Face's eager model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hotwire_plugin.program import ProgramOp
from tests.engine.conftest import BLOCK, ONE_THREAD, Rig, Start
from tests.support.engine_models import direction
from tests.support.engine_process import Answer, Ask, EngineError
from tests.support.family_models import FAMILIES, LAYERS, VOCAB, WIDTH, make
from tests.support.hf_sites import SiteReference
from tests.support.steering_math import loader

APART = 0.25
"""How far a steered log-probability is at least from the same one unsteered, in fp32."""

PROMPT_LEN, TOKENS = 20, 8
IN_DEFAULT_RUN = {"gpt2", "gemma2", "qwen3_moe"}
SITES = ("pre", "attn_out", "mlp_out", "post")
JOY = direction(1, range(LAYERS), norm=8.0, width=WIDTH)
ONE = direction(3, norm=8.0, width=WIDTH)
LOAD = loader(
    {
        (name, layer): torch.from_numpy(rows[layer % len(rows)])
        for name, rows in (("joy", JOY.rows), ("one", ONE.rows))
        for layer in range(LAYERS)
    }
)


def cases(name: str) -> dict[str, ProgramOp | None]:
    """What is asked of a family: an add at each site, and what depends on the stream there."""
    found: dict[str, ProgramOp | None] = {"unsteered": None}
    layer = FAMILIES[name].steered
    for site in SITES:
        found[site] = ProgramOp("joy", layer, 1.0, "add", "all", site=site)
        found[f"norm_add {site}"] = ProgramOp("joy", layer, 0.5, "norm_add", "all", site=site)
    if FAMILIES[name].linear:
        found["linear attention"] = ProgramOp("joy", 0, 1.0, "add", "all", site="attn_out")
    for at, site in ((0, "post"), (1, "pre"), (1, "post"), (2, "pre")):
        found[f"{at} {site}"] = ProgramOp("one", at, 0.5, "norm_add", "all", site=site)
    found["first pre"] = ProgramOp("joy", 0, 1.0, "add", "all", site="pre")
    found["last post"] = ProgramOp("joy", LAYERS - 1, 1.0, "add", "all")
    return found


def ask(op: ProgramOp | None) -> Ask:
    """Return a request for an operation."""
    tokens = np.random.default_rng(5).integers(3, VOCAB, PROMPT_LEN).tolist()
    spec = op and {
        "id": op.revision,
        "layer": op.layer,
        "scale": op.scale,
        "op": op.op,
        "site": op.site,
        "strict": True,
    }
    return Ask(tuple(tokens), spec, TOKENS, logprobs=20)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name in IN_DEFAULT_RUN else pytest.mark.slow)
        for name in FAMILIES
    ],
)
def name(request: pytest.FixtureRequest) -> str:
    """The family."""
    return str(request.param)


@pytest.fixture(scope="module")
def path(name: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where its checkpoint is."""
    return make(name, tmp_path_factory.mktemp("family") / name)


@pytest.fixture(scope="module")
def rig(name: str, path: str, start: Start) -> Iterator[Rig]:
    """An engine that serves it with all sites armed."""
    options: dict[str, Any] = {
        "model": path,
        "skip_tokenizer_init": True,
        "dtype": FAMILIES[name].dtype,
        "max_model_len": 128,
        "max_num_seqs": 32,
        "block_size": BLOCK,
        "enforce_eager": True,
    }
    env = ONE_THREAD | {"HOTWIRE_SITES": ",".join(SITES)}
    rig = start(options, env=env)
    rig.driver.put({"joy": JOY, "one": ONE})
    yield rig
    rig.engine.kill()


@pytest.fixture(scope="module")
def answers(name: str, rig: Rig) -> dict[str, Answer]:
    """What the engine generates for each case, all in one batch."""
    if not FAMILIES[name].judged:
        pytest.skip("vLLM itself does not agree with the reference on a CPU")
    asked = cases(name)
    found = rig.engine.generate([ask(op) for op in asked.values()])
    return dict(zip(asked, found, strict=True))


def worst(answer: Answer, expected: torch.Tensor) -> float:
    """The greatest distance of a reported log-probability from (positions, vocabulary)."""
    at = range(len(answer.prompt) - 1, len(answer.prompt) + len(answer.tokens) - 1)
    pairs = zip(at, answer.logprobs, strict=True)
    return max(
        abs(float(expected[position, token]) - reported)
        for position, by_token in pairs
        for token, reported in by_token.items()
    )


def test_every_case_is_the_references(name: str, path: str, answers: dict[str, Answer]) -> None:
    """The 20 likeliest tokens at each step have the figures of the model with hooks."""
    model = SiteReference(name, path)
    for case, op in cases(name).items():
        answer, ops = answers[case], () if op is None else (op,)
        expected = model.logprobs(answer.prompt + answer.tokens, ops, PROMPT_LEN, LOAD)
        error = worst(answer, expected)
        print(f"{name} {case}: {error:.1e}")
        assert error < FAMILIES[name].within, case


def test_every_case_is_far_from_unsteered(name: str, path: str, answers: dict[str, Answer]) -> None:
    """The same tokens without the operation have quite other figures."""
    model = SiteReference(name, path)
    for case, answer in answers.items():
        if case != "unsteered":
            plain = model.logprobs(answer.prompt + answer.tokens, (), PROMPT_LEN, LOAD)
            distance = worst(answer, plain)
            print(f"{name} {case} apart: {distance:.2f}")
            assert distance > max(APART, 3 * FAMILIES[name].within), case


@pytest.mark.parametrize(
    ("one", "other"),
    [("0 post", "1 pre"), ("1 post", "2 pre")],
)
def test_behind_a_block_is_before_the_next(
    name: str, one: str, other: str, answers: dict[str, Answer]
) -> None:
    """Whatever classes the two blocks are of, both find the same stream."""
    first, second = answers[one].logprobs[0], answers[other].logprobs[0]
    shared = first.keys() & second.keys()
    assert len(shared) > 15
    assert max(abs(first[token] - second[token]) for token in shared) < FAMILIES[name].within


def test_the_node_says_where_it_steers(rig: Rig) -> None:
    """The sites that are armed at some layer."""
    (node,) = rig.driver.describe().values()
    assert node.armed
    assert tuple(node.sites) == SITES


@pytest.mark.slow
def test_a_block_without_attention_has_no_such_site(name: str, rig: Rig) -> None:
    """A request that must be steered there is told so; others at that layer are."""
    if name != "lfm2":
        pytest.skip("every block has attention")
    with pytest.raises(EngineError, match="SITE_NOT_ARMED"):
        rig.engine.one(ask(ProgramOp("joy", 0, 1.0, "add", "all", site="attn_out")))
    rig.engine.one(ask(ProgramOp("joy", 0, 1.0, "add", "all", site="mlp_out")))
