"""Steering in vLLM does what the same vectors do in Hugging Face's eager model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.conftest import Rig
from tests.support.engine_models import LAYERS, direction, smollm2
from tests.support.engine_process import Answer, Ask
from tests.support.hf_reference import HfReference, Steered

TOKENS = 64
WITHIN = 2e-3
"""How far log-probabilities of two fp32 implementations may be apart."""

PROMPTS = (
    "The weather today is",
    "My favourite animal is the",
    "In the year 1850 the city of",
    "She opened the letter and",
    "The recipe needs two eggs,",
    "The first rule of the club is",
    "A train leaves the station at noon and",
    "Once upon a time there was a little fox that",
    "def fibonacci(n):",
    "The capital of France is",
)
JOY = direction(1, range(LAYERS), norm=20.0)
ONE = direction(3, norm=20.0)


@dataclass(frozen=True)
class Case:
    """A specification, and the same in terms of what is added where: (rows, layers, scale)."""

    spec: Any
    adds: tuple[tuple[np.ndarray, tuple[int, ...], float], ...]
    scope: str = "all"

    def added(self) -> dict[int, np.ndarray]:
        """The sum of what is added, by layer."""
        total: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(JOY.hidden_size, np.float32))
        for rows, layers, scale in self.adds:
            for layer in layers:
                row = rows[layer] if len(rows) > 1 else rows[0]
                total[layer] = total[layer] + np.float32(scale) * row
        return dict(total)

    def positions(self, prompt_len: int) -> slice:
        """The positions it acts on."""
        start = prompt_len if self.scope == "generated" else 0
        return slice(start, prompt_len if self.scope == "prompt" else None)


J, O = JOY.rows, ONE.rows  # noqa: E741
JOY_14 = {"id": "joy", "layer": 14}
CASES = {
    "unsteered": Case(None, ()),
    "one layer": Case(JOY_14, ((J, (14,), 1.0),)),
    "some layers": Case(
        {"id": "joy", "layer": "5,10-20", "scale": 0.3}, ((J, (5, *range(10, 21)), 0.3),)
    ),
    "all layers": Case({"id": "joy", "scale": 0.2}, ((J, tuple(range(LAYERS)), 0.2),)),
    "negative": Case({"id": "joy", "layer": 8, "scale": -0.75}, ((J, (8,), -0.75),)),
    "generated": Case({**JOY_14, "decode_only": True}, ((J, (14,), 1.0),), "generated"),
    "prompt": Case({**JOY_14, "scope": "prompt"}, ((J, (14,), 1.0),), "prompt"),
    "stacked": Case(
        [
            {"id": "joy", "layer": "13-15", "scale": 0.5},
            {"id": "one", "layer": [14, 29], "scale": -0.5},
        ],
        ((J, (13, 14, 15), 0.5), (O, (14, 29), -0.5)),
    ),
}


@pytest.fixture(scope="module")
def answers(main_rig: Rig) -> dict[tuple[str, str], Answer]:
    """What vLLM generates for each case and prompt, all in one batch."""
    main_rig.driver.put({"joy": JOY, "one": ONE})
    keys = [(case, prompt) for case in CASES for prompt in PROMPTS]
    asks = [Ask(p, CASES[case].spec, tokens=TOKENS, logprobs=20) for case, p in keys]
    return dict(zip(keys, main_rig.engine.generate(asks), strict=True))


@pytest.fixture(scope="module")
def reference(answers: dict[tuple[str, str], Answer]) -> dict[tuple[str, str], torch.Tensor]:
    """The reference's (TOKENS, vocabulary) log-probabilities, given the tokens vLLM chose.

    Given those, one near-tie that falls the other way does not spoil what comes after it.
    """
    model = HfReference(smollm2())
    found = {}
    for prompt in PROMPTS:
        own = {case: answers[case, prompt] for case in CASES}
        batch = [
            Steered(a.prompt + a.tokens, CASES[c].added(), CASES[c].positions(len(a.prompt)))
            for c, a in own.items()
        ]
        logprobs = model.logprobs(batch)
        for row, (case, a) in enumerate(own.items()):
            found[case, prompt] = logprobs[row, len(a.prompt) - 1 : -1]
    return found


@pytest.mark.parametrize("case", CASES)
def test_log_probabilities_are_those_of_the_reference(
    case: str,
    answers: dict[tuple[str, str], Answer],
    reference: dict[tuple[str, str], torch.Tensor],
) -> None:
    """The 20 likeliest tokens at each of 64 steps of 10 prompts have the reference's figures."""
    worst = 0.0
    for prompt in PROMPTS:
        for step, reported in enumerate(answers[case, prompt].logprobs):
            assert len(reported) >= 20
            tokens = list(reported)
            expected = reference[case, prompt][step, tokens]
            worst = max(
                worst, float((expected - torch.tensor(list(reported.values()))).abs().max())
            )
    assert worst < WITHIN


@pytest.mark.parametrize("case", CASES)
def test_greedy_tokens_are_those_of_the_reference(
    case: str,
    answers: dict[tuple[str, str], Answer],
    reference: dict[tuple[str, str], torch.Tensor],
) -> None:
    """All 64 tokens of 10 prompts are the reference's likeliest ones.

    Where it has two tokens closer than the tolerance, fp32 does not decide: either will do.
    """
    ties = 0
    for prompt in PROMPTS:
        expected = reference[case, prompt]
        chosen = torch.tensor(answers[case, prompt].tokens)
        short = expected.max(dim=-1).values - expected[range(TOKENS), chosen]
        assert float(short.max()) < WITHIN, f"{prompt!r} at step {int(short.argmax())}"
        ties += int((short > 0).sum())
    assert ties <= 2


def test_the_cases_are_told_apart(reference: dict[tuple[str, str], torch.Tensor]) -> None:
    """The tolerance means something: each case is hundreds of times further from every other."""
    firsts = {case: reference[case, PROMPTS[0]][1] for case in CASES}
    for one, first in firsts.items():
        for other, second in firsts.items():
            if one != other:
                assert float((first - second).abs().max()) > 100 * WITHIN
