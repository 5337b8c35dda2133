"""Measures what docs/dose.md shows: `python -m bench.dose` (minutes, on the CPU).

Prints a table, and writes bench/results/dose-cpu.json and docs/dose.png.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bench.demo import contrast, data
from bench.demo.reference import Reference
from bench.demo.report import columns
from bench.demo.settings import LAYER, MODEL_NAME, ROOT, VECTOR, places
from bench.dose import measure, plot
from bench.dose.measure import Curve, Point
from bench.machine import machine
from hotwirectl.norms import prompts
from hotwirectl.norms.measure import measure as measure_norms
from hotwirectl.norms.table import NormTable

RESULTS = ROOT / "bench" / "results" / "dose-cpu.json"
PLOT = ROOT / "docs" / "dose.png"


def main() -> None:
    """Measures both vectors and writes the files."""
    torch.manual_seed(measure.SEED)
    model = places(ROOT).model
    table = _norms(model)
    reference = Reference(model)
    joy = contrast.difference(reference)[LAYER]
    random = torch.randn(joy.shape, generator=torch.Generator().manual_seed(measure.SEED))
    curve = Curve(reference, data.prompts(), LAYER, table.layers[LAYER].mean)
    points: list[Point] = []
    for name, row in ((VECTOR, joy), ("random", random)):
        for point in curve.points(name, row):
            points.append(point)
            print(f"measured {point}", flush=True)
    _report(points, table, len(curve.held_out))


def _norms(model: Path) -> NormTable:
    held_out = prompts.read(measure.HELD_OUT)
    return measure_norms(model, held_out, held_out.texts)


def _report(points: Sequence[Point], table: NormTable, tokens: int) -> None:
    facts = machine()
    norm = table.layers[LAYER].mean
    where = f"{MODEL_NAME}, layer {LAYER}, reference norm {norm:.1f}"
    print(f"\n{facts['device']}, {facts['date']}. {where}; {tokens} held-out tokens.")
    print(_table(points))
    form: dict[str, Any] = {
        **facts,
        "model": MODEL_NAME,
        "layer": LAYER,
        "reference_norm": round(norm, 3),
        "first_tokens_left_out": table.first.skipped if table.first else 0,
        "held_out_tokens": tokens,
        "generated": f"{len(data.prompts())} texts of {measure.NEW_TOKENS} tokens",
        "temperature": measure.TEMPERATURE,
        "points": [asdict(point) for point in points],
    }
    RESULTS.write_text(json.dumps(form, indent=1) + "\n", encoding="utf-8")
    plot.write(points, f"{where}\n{facts['device']}, {facts['date']}", PLOT)


def _table(points: Sequence[Point]) -> str:
    names = list(dict.fromkeys(point.vector for point in points))
    titles = ["relative dose"]
    titles += [f"{name}: {what}" for name in names for what in ("scale", "perplexity", "repeated")]
    rows = []
    for dose in measure.DOSES:
        own = [point for point in points if point.dose == dose]
        cells = ((f"{p.scale:.2f}", f"{p.perplexity:.1f}", f"{p.repeated:.1%}") for p in own)
        rows.append([f"{dose:g}", *(cell for group in cells for cell in group)])
    return columns(titles, rows)


if __name__ == "__main__":
    main()
