"""A table as a picture."""

from pathlib import Path
from typing import Any

import click

from hotwirectl import failures
from hotwirectl.norms.table import LayerNorms, NormTable

EXTRA = "plot"
_INCHES, _DPI = (8.0, 4.5), 150


def write(t: NormTable, path: Path) -> None:
    """Writes a PNG: mean, p50 and p95 by layer, the first tokens' mean apart, on a log scale.

    Raises:
        failures.CommandFailedError: matplotlib is missing (EXTRA_MISSING).
        click.UsageError: The file cannot be written.
    """
    figure = _figure()
    axes = figure.subplots()
    _draw(axes, t)
    try:
        figure.savefig(path, format="png", dpi=_DPI)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error


def _figure() -> Any:
    try:
        # Without pyplot: no window, no state.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise failures.extra_missing("--png", EXTRA, error) from error
    return Figure(figsize=_INCHES, layout="constrained")


def _draw(axes: Any, t: NormTable) -> None:
    _line(axes, {n: each.mean for n, each in t.layers.items()}, "mean", color="C0", lw=2)
    _line(axes, _some(t.layers, "p50"), "p50", color="C0", ls="--", lw=1)
    _line(axes, _some(t.layers, "p95"), "p95", color="C0", ls=":", lw=1)
    if t.first:
        label = f"first {t.first.skipped} of each prompt (left out), mean"
        _line(axes, _some(t.first.layers, "mean"), label, color="C1", marker=".", lw=1)
    axes.set(yscale="log", xlabel="block", ylabel="L2 norm of the residual stream after it")
    axes.set_title(t.model or t.fingerprint or "reference norms", loc="left")
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(frameon=False)


def _some(layers: Any, name: str) -> dict[int, float]:
    found: dict[int, LayerNorms] = dict(layers)
    values = {layer: getattr(norms, name) for layer, norms in found.items()}
    return {layer: value for layer, value in values.items() if value is not None}


def _line(axes: Any, values: dict[int, float], label: str, **style: Any) -> None:
    if values:
        axes.plot(list(values), list(values.values()), label=label, **style)
