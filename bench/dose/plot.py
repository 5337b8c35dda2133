"""The plot of docs/dose.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.dose.measure import Point

_STYLES = (("C0", "o"), ("C1", "s"))


def write(points: Sequence[Point], title: str, path: Path) -> None:
    """Writes a PNG: perplexity above, repetition below, both against the relative dose."""
    figure = Figure(figsize=(7.5, 6.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    names = list(dict.fromkeys(point.vector for point in points))
    for name, (color, marker) in zip(names, _STYLES, strict=True):
        own = [point for point in points if point.vector == name]
        doses = [point.dose for point in own]
        style = {"color": color, "marker": marker, "label": name}
        upper.plot(doses, [point.perplexity for point in own], **style)
        lower.plot(doses, [100 * point.repeated for point in own], **style)
    _label(upper, "perplexity of held-out text", yscale="log")
    _label(lower, "repeated 4-grams, %", xlabel="relative dose: scale · ‖row‖ / reference norm")
    upper.legend(frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110)


def _label(axes: Any, ylabel: str, **more: str) -> None:
    axes.set(ylabel=ylabel, **more)
    axes.grid(visible=True, which="both", alpha=0.25)
