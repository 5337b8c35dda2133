"""Measures which pooling, layer and scale the demo should use: `make choose` (minutes).

For each, in Hugging Face's eager mode with a forward hook: the margin of positive over negative
words at relative doses from -0.2 to 0.2, on how many prompts each step of it grows, and how the
texts at both ends read: what the unsteered model makes of them, and how much they repeat.
Prints a table and writes .cache/choose.json.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import torch
from torch import Tensor

from bench.demo import contrast, data
from bench.demo.reference import Reference
from bench.demo.report import columns
from bench.demo.settings import ROOT, places
from bench.demo.text import repeated
from bench.machine import machine

LAYERS = (8, 10, 12, 14, 16, 18, 20, 22, 24)
DOSES = (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2)
TEXT_PROMPTS = 6
TEXT_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured at one layer.

    scale_per_dose: the scale at which ||scale * row|| is the residual stream's mean norm.
    margins: nats, by DOSES. prompts_monotone: how many of the prompts' margins grow at every step.
    surprise: nats a token of the texts at the lowest and the highest dose. repeated: their share of
    repeated three-word runs.
    """

    pooling: str
    layer: int
    scale_per_dose: float
    margins: list[float]
    prompts_monotone: int
    surprise: tuple[float, float]
    repeated: tuple[float, float]

    @property
    def monotone(self) -> bool:
        """Whether the mean margin grows at every step."""
        return _grows(self.margins)


class Chooser:
    """Measures with one model."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.prompts = data.prompts()
        words = data.words()
        self._positive = [reference.token(word) for word in words.positive]
        self._negative = [reference.token(word) for word in words.negative]

    def row(self, pooling: str, layer: int, vector: Tensor, norm: float) -> Row:
        """Measures one layer; `vector` is its row, `norm` the residual stream's mean norm there."""
        unit = norm / float(vector.norm())
        margins = [self._margins(layer, dose * unit * vector) for dose in DOSES]
        ends = [self._texts(layer, dose * unit * vector) for dose in (DOSES[0], DOSES[-1])]
        return Row(
            pooling=pooling,
            layer=layer,
            scale_per_dose=round(unit, 2),
            margins=[round(float(each.mean()), 3) for each in margins],
            prompts_monotone=sum(map(_grows, torch.stack(margins).T.tolist())),
            surprise=(ends[0][0], ends[1][0]),
            repeated=(ends[0][1], ends[1][1]),
        )

    def unsteered(self) -> tuple[float, float]:
        """Surprise and repetition of the unsteered texts."""
        return self._read(self.reference.continuations(self.prompts[:TEXT_PROMPTS], TEXT_TOKENS))

    def _margins(self, layer: int, addition: Tensor) -> Tensor:
        with self.reference.steered(layer, addition):
            found = self.reference.next_logprobs(self.prompts)
        return found[:, self._positive].mean(1) - found[:, self._negative].mean(1)

    def _texts(self, layer: int, addition: Tensor) -> tuple[float, float]:
        with self.reference.steered(layer, addition):
            texts = self.reference.continuations(self.prompts[:TEXT_PROMPTS], TEXT_TOKENS)
        return self._read(texts)

    def _read(self, texts: Sequence[str]) -> tuple[float, float]:
        each = [self.reference.surprise(p, t) for p, t in zip(self.prompts, texts, strict=False)]
        again = sum(map(repeated, texts)) / len(texts)
        return round(sum(each) / len(each), 3), round(again, 3)


def main() -> None:
    """Measures all, prints a line for each as it comes, and writes the file."""
    where = places(ROOT)
    chooser = Chooser(Reference(where.model))
    norms = contrast.norms(chooser.reference)
    plain = chooser.unsteered()
    rows: list[Row] = []
    poolings: tuple[contrast.Pooling, ...] = ("last", "mean")
    for pooling in poolings:
        vector = contrast.difference(chooser.reference, pooling)
        for layer in LAYERS:
            rows.append(chooser.row(pooling, layer, vector[layer], norms[layer]))
            print(f"measured {rows[-1]}", flush=True)
    facts = machine()
    print(f"\n{facts['device']}, {facts['date']}. Unsteered: {plain[0]} nats, {plain[1]} repeated.")
    print(_table(rows))
    form = {**facts, "doses": DOSES, "unsteered": plain, "rows": [asdict(row) for row in rows]}
    (where.cache / "choose.json").write_text(json.dumps(form, indent=2) + "\n")


def _table(rows: Sequence[Row]) -> str:
    titles = ["pooling", "layer", "scale at 0.2", *(f"{dose:+g}" for dose in DOSES)]
    titles += ["grows", "on prompts", "nats -/+", "repeated -/+"]
    lines = [
        [
            row.pooling,
            str(row.layer),
            f"{DOSES[-1] * row.scale_per_dose:.1f}",
            *(f"{margin:+.2f}" for margin in row.margins),
            "yes" if row.monotone else "no",
            str(row.prompts_monotone),
            "{:.2f} / {:.2f}".format(*row.surprise),
            "{:.2f} / {:.2f}".format(*row.repeated),
        ]
        for row in rows
    ]
    return columns(titles, lines)


def _grows(values: Sequence[float]) -> bool:
    return all(later > earlier for earlier, later in pairwise(values))


if __name__ == "__main__":
    main()
