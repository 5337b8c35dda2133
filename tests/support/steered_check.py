"""Whether an answer is what the reference comes to when just these positions are steered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hotwired.vector_file import VectorData
from tests.support.engine_models import TINY_LAYERS, TINY_VOCAB, TINY_WIDTH, direction
from tests.support.engine_process import Answer, Ask
from tests.support.hf_reference import HfReference, Steered

LAYER = 1
ROW = direction(1, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)
"""The vector of these specifications, and the layer they steer."""

SPECS: dict[str | None, dict[str, Any] | None] = {
    None: None,
    "all": {"id": "joy", "layer": LAYER},
    "generated": {"id": "joy", "layer": LAYER, "decode_only": True},
    "prompt": {"id": "joy", "layer": LAYER, "scope": "prompt"},
}
"""A specification for each scope; None is nowhere."""

WINDOW = {"id": "joy", "layer": LAYER, "from_generated": 3, "to_generated": 9}
"""One that begins and ends within what is generated."""

WITHIN = 2e-3
"""How far log-probabilities of two fp32 implementations may be apart."""


@dataclass(frozen=True)
class Judge:
    """Compares with one reference, for one vector at LAYER."""

    reference: HfReference
    vector: VectorData = ROW

    def check(self, answer: Answer, scope: str | None) -> None:
        """Every figure of the answer is the reference's, steered in this scope; None is nowhere."""
        tokens, mask = answer.prompt + answer.tokens, self._mask(answer, scope)
        self.check_from(tokens, len(answer.prompt), answer.logprobs, mask)

    def check_window(self, answer: Answer, spec: dict[str, Any] | None) -> None:
        """As check, for a window of what is generated; None is nowhere."""
        tokens, start = answer.prompt + answer.tokens, len(answer.prompt)
        mask = np.zeros(len(tokens), dtype=bool)
        if spec is not None:
            mask[start + spec["from_generated"] : start + spec["to_generated"]] = True
        self.check_from(tokens, start, answer.logprobs, mask)

    def check_constrained(self, answer: Answer, scope: str | None) -> None:
        """As check, for figures that only the tokens a grammar allows share among them."""
        free, mask = answer.prompt + answer.tokens, self._mask(answer, scope)
        expected = self._expected(free, mask)[len(answer.prompt) - 1 :]
        for step, at in enumerate(answer.logprobs):
            allowed = {token: value for token, value in at.items() if np.isfinite(value)}
            figures = torch.tensor(list(allowed.values()))
            off = expected[step, list(allowed)] - figures
            assert float(off.max() - off.min()) < WITHIN, step

    def check_from(
        self,
        tokens: tuple[int, ...],
        start: int,
        reported: Sequence[dict[int, float]],
        mask: np.ndarray,
    ) -> None:
        """What is reported for the tokens from ``start`` on is what the (tokens,) mask makes it."""
        expected = self._expected(tokens, mask)[start - 1 :]
        for step, at in enumerate(reported):
            off = (expected[step, list(at)] - torch.tensor(list(at.values()))).abs().max()
            assert float(off) < WITHIN, (step, float(off))

    def _mask(self, answer: Answer, scope: str | None) -> np.ndarray:
        positions = np.arange(len(answer.prompt) + len(answer.tokens))
        generated: np.ndarray = positions >= len(answer.prompt)
        return {
            "all": positions >= 0,
            "generated": generated,
            "prompt": ~generated,
            None: positions < 0,
        }[scope]

    def _expected(self, tokens: tuple[int, ...], mask: np.ndarray) -> torch.Tensor:
        row = self.vector.rows[LAYER]
        steered = Steered(tokens, {LAYER: row}, torch.from_numpy(mask))
        return self.reference.logprobs([steered])[0]

    def check_batch(self, answers: Mapping[str, Answer]) -> None:
        """Each answer's figures are those of the scope that it is named after."""
        for scope in SPECS:
            self.check(answers[str(scope)], scope)


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Return random tokens, the same ones for each seed."""
    return tuple(np.random.default_rng(seed).integers(3, TINY_VOCAB, length).tolist())


def batch(tokens: int) -> dict[str, Ask]:
    """Return a request for each scope, named after it, with prompts of odd lengths."""
    return {
        str(scope): Ask(prompt(37 + at, at), spec, tokens=tokens)
        for at, (scope, spec) in enumerate(SPECS.items())
    }
