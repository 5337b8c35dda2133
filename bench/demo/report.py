"""What the demo leaves: a table a person reads, and a JSON file."""

import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.demo.settings import LAYER, SHOWN_SCALE
from bench.demo.stage import Check
from bench.machine import machine

TEXTS_SHOWN = 3
WIDTH = 100


def columns(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns under their titles."""
    lines = [list(titles), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    lines.insert(1, ["-" * width for width in widths])
    padded = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def table(checks: Sequence[Check]) -> str:
    """Everything a person wants to see of a run."""
    parts = [_texts(check.figures["texts"]) for check in checks if "texts" in check.figures]
    parts += [
        _margins(check.figures["margin_by_scale"])
        for check in checks
        if "margin_by_scale" in check.figures
    ]
    rows = [("passed" if c.passed else "FAILED", c.name, c.seen) for c in checks]
    parts.append(columns(("", "check", "what was seen"), rows))
    facts = machine()
    parts.append(f"{facts['device']}, {facts['date']}, vLLM {facts.get('vllm', '?')}")
    return "\n\n".join(parts)


def write(path: Path, checks: Sequence[Check], seconds: float) -> None:
    """Writes {"passed", "checks": [{name, passed, seen, figures}], device, date, versions ...}."""
    facts = machine()
    form: dict[str, Any] = {
        "passed": bool(checks) and all(check.passed for check in checks),
        "checks": [
            {"name": c.name, "passed": c.passed, "seen": c.seen, "figures": c.figures}
            for c in checks
        ],
        "layer": LAYER,
        "scale": SHOWN_SCALE,
        "seconds": round(seconds, 1),
        "device": facts.pop("device"),
        "date": facts.pop("date"),
        "versions": facts,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(form, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _texts(texts: Sequence[dict[str, str]]) -> str:
    names = {"-": f"scale -{SHOWN_SCALE:g}", "0": "unsteered", "+": f"scale +{SHOWN_SCALE:g}"}
    blocks = []
    for entry in texts[:TEXTS_SHOWN]:
        lines = [f"{entry['prompt']} ..."]
        lines += [_wrapped(f"  {names[sign]:10}", entry[sign]) for sign in names]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _wrapped(head: str, text: str) -> str:
    body = " ".join(text.split())
    return textwrap.fill(
        f"... {body}", WIDTH, initial_indent=f"{head} ", subsequent_indent=" " * (len(head) + 1)
    )


def _margins(margins: dict[str, float]) -> str:
    low, high = min(margins.values()), max(margins.values())
    span = (high - low) or 1.0
    rows = (
        (scale, f"{value:+.2f}", "#" * round(1 + 40 * (value - low) / span))
        for scale, value in margins.items()
    )
    title = "Mean log-probability of positive less that of negative words as the next token:"
    return f"{title}\n{columns(('scale', 'nats', ''), rows)}"
