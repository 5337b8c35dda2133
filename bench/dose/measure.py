"""Measures one layer of the demo model at a range of relative doses.

For each vector and dose, with Hugging Face's eager mode and a forward hook that adds scale * row at
every position: the perplexity of held-out text, and the share of repeated 4-grams in what the model
writes. The scale is dose * reference norm / ||row||, as the dose policy reckons it for `add`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench.demo.reference import Reference

HELD_OUT = Path(__file__).parent / "data" / "heldout.txt"
DOSES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0)
WINDOW = 512
NEW_TOKENS = 64
# Greedy texts of a model this small repeat themselves unsteered, which would hide what is measured.
TEMPERATURE = 0.8
SEED = 0
GRAM = 4


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured.

    dose: the relative dose. scale: what the row was multiplied with. perplexity: of the held-out
    text. repeated: the share of 4-grams of tokens that have come before in their text, the mean
    over texts.
    """

    vector: str
    dose: float
    scale: float
    perplexity: float
    repeated: float


class Curve:
    """Measures vectors at one layer.

    layer: the block after which they are added. norm: the reference norm there.
    """

    def __init__(
        self, reference: Reference, prompts: Sequence[str], layer: int, norm: float
    ) -> None:
        self._reference, self._layer, self._norm = reference, layer, norm
        self._prompts = reference.tokenizer(list(prompts), return_tensors="pt", padding=True)
        text = HELD_OUT.read_text(encoding="utf-8")
        self.held_out: Tensor = reference.tokenizer(text, return_tensors="pt").input_ids[0]

    def points(self, name: str, row: Tensor) -> Iterator[Point]:
        """Yields a point for each dose of a row, [hidden] fp32."""
        per_dose = self._norm / float(row.norm())
        for dose in DOSES:
            scale = dose * per_dose
            with self._reference.steered(self._layer, scale * row):
                found = perplexity(self._logits, self.held_out), self._repeated()
            yield Point(name, dose, round(scale, 3), round(found[0], 2), round(found[1], 4))

    def _logits(self, ids: Tensor) -> Tensor:
        logits: Tensor = self._reference.model(ids).logits
        return logits

    @torch.no_grad()
    def _repeated(self) -> float:
        torch.manual_seed(SEED)
        out = self._reference.model.generate(
            **self._prompts,
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
        )
        texts = out[:, self._prompts.input_ids.shape[1] :].tolist()
        return sum(map(repeated, texts)) / len(texts)


@torch.no_grad()
def perplexity(logits: Callable[[Tensor], Tensor], ids: Tensor) -> float:
    """The perplexity of `ids` ([tokens]) in windows of WINDOW, but for the first of each.

    logits: from ids [1, tokens] to [1, tokens, vocabulary].
    """
    nats, count = 0.0, 0
    for start in range(0, len(ids), WINDOW):
        window = ids[start : start + WINDOW]
        if len(window) < 2:
            continue
        logprobs = logits(window[None])[0, :-1].float().log_softmax(-1)
        nats -= float(logprobs.gather(1, window[1:, None]).double().sum())
        count += len(window) - 1
    return float(torch.tensor(nats / count, dtype=torch.float64).exp())


def repeated(tokens: Sequence[int]) -> float:
    """The share of a text's 4-grams that have come before in it; 0 if it has none."""
    grams = list(zip(*(tokens[n:] for n in range(GRAM)), strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
