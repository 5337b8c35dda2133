"""What a table looks like to people: pure functions from tables to text."""

from collections.abc import Mapping
from typing import Any

from hotwirectl import text
from hotwirectl.norms.table import LayerNorms, NormTable

_WIDTH = 32
_EIGHTHS = " ▏▎▍▌▋▊▉"
_TITLES = ("LAYER", "MEAN", "P50", "P95", "MAX", "FIRST", "BAR")


def table(t: NormTable) -> str:
    """The facts of a table, then a line for each layer with a bar for its mean and its p95."""
    first = t.first.layers if t.first else {}
    top = max(max(norms.mean, norms.p95 or 0.0) for norms in t.layers.values())
    rows = (
        (
            str(layer),
            *(_number(value) for value in (norms.mean, norms.p50, norms.p95, norms.max)),
            _number(first[layer].mean if layer in first else None),
            bar(norms.mean, norms.p95, top),
        )
        for layer, norms in t.layers.items()
    )
    return f"{_head(t)}\n\n{text.columns(_TITLES, rows)}"


def bar(mean: float, p95: float | None, top: float, width: int = _WIDTH) -> str:
    """Returns a bar up to the mean in eighths of a character, shaded from there to p95.

    top: the value that is `width` characters wide.
    """
    eighths = max(1, round(8 * width * mean / top))
    solid = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return solid.ljust(round(width * (p95 or 0) / top), "░")


def line(t: NormTable, verb: str) -> str:
    """What was done, such as `norms/model measured (layers 0-29, 812 positions)`."""
    facts = [f"layers {text.layers(sorted(t.layers))}", *_positions(t)]
    return text.escaped(f"norms/{t.model or 'unnamed'} {verb} ({', '.join(facts)})")


def _head(t: NormTable) -> str:
    facts = [
        ("model", t.model),
        ("fingerprint", t.fingerprint or ""),
        ("norms of", f"the residual stream after each block{_comma(t.dtype)}"),
        ("positions", ", ".join([*_positions(t), *_prompts(t.prompts)])),
        ("first tokens", _first(t)),
        ("source", _source(t.source)),
        ("bar", "the mean, shaded from there to p95"),
    ]
    return text.fields([(name, value) for name, value in facts if value])


def _positions(t: NormTable) -> list[str]:
    counts = {norms.count for norms in t.layers.values() if norms.count is not None}
    return [f"{count:,} positions" for count in sorted(counts)[:1]]


def _prompts(prompts: Mapping[str, Any] | None) -> list[str]:
    if not prompts or "count" not in prompts:
        return []
    return [
        f"{prompts['count']} prompts of {prompts.get('shortest')}-{prompts.get('longest')} tokens"
    ]


def _first(t: NormTable) -> str:
    if t.first is None:
        return ""
    ratio = max((_times(norms, t.layers.get(layer)) for layer, norms in t.first.layers.items()))
    return f"{t.first.skipped} of each prompt left out; up to {ratio:.3g} times a layer's mean"


def _times(first: LayerNorms, rest: LayerNorms | None) -> float:
    return first.mean / rest.mean if rest else 0.0


def _source(source: Mapping[str, Any]) -> str:
    told = [str(source[name]) for name in ("tool", "device", "date") if name in source]
    return ", ".join(told)


def _comma(value: str | None) -> str:
    return f", {value}" if value else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
