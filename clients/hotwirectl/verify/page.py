"""A run as one HTML page: the checks, the plots, the block to paste. No script, no network."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import click

from hotwirectl.verify import plots
from hotwirectl.verify.machine import scrubbed
from hotwirectl.verify.report import Report
from hotwirectl.verify.results import Check

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #8884; --mark: #2563a8;
  --good: #1a7f4b; --bad: #b3261e; --open: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --paper: #15181c; --mark: #7db3ea;
  --good: #5fc890; --bad: #ff8a80; --open: #e0b050; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0;
  border-bottom: 1px solid var(--line); }
.passed { color: var(--good); } .failed { color: var(--bad); font-weight: 700; }
.not-shown { color: var(--open); } td:first-child { white-space: nowrap; }
svg { max-width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--ink); }
.line { fill: none; stroke: var(--mark); stroke-width: 2; } .dot, .bar { fill: var(--mark); }
.faint { fill-opacity: .45; } .limit { stroke: var(--open); stroke-dasharray: 5 4; }
.median { stroke: var(--ink); stroke-width: 2; }
pre { overflow-x: auto; padding: 1rem; border: 1px solid var(--line); font-size: 13px; }
"""


def write(report: Report, path: Path) -> None:
    """Writes the page.

    Raises:
        click.UsageError: The file cannot be written.
    """
    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error


def page(report: Report) -> str:
    """Returns the page."""
    body = [
        "<h1>hotwirectl verify</h1>",
        _summary(report),
        _table(report.checks),
        *_plots(report),
        "<h2>For a bug report</h2>",
        f"<pre>{escape(report.block())}</pre>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>hotwirectl verify: {escape(report.verdict)}</title>\n<style>{_STYLE}</style>\n"
        "</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _summary(report: Report) -> str:
    what = f"{report.verdict}, against {report.against} of {scrubbed(report.stage.model)}"
    return f"<p>{escape(what)}, {escape(report.machine['date'])}.</p>"


def _table(checks: Sequence[Check]) -> str:
    rows = [
        f'<tr><td class="{check.status.replace(" ", "-")}">{check.status}</td>'
        f"<td>{escape(check.name)}</td><td>{escape(scrubbed(check.seen))}</td></tr>"
        for check in checks
    ]
    head = "<tr><th>result</th><th>check</th><th>what was seen</th></tr>"
    return "\n".join(["<table>", head, *rows, "</table>"])


def _plots(report: Report) -> list[str]:
    parts = []
    if curve := _figure(report.checks, "effect_by_scale"):
        points = [(float(scale), nats) for scale, nats in curve.items()]
        parts += ["<h2>Effect by scale</h2>", _EFFECT]
        parts += [plots.lines(points, report.stage.rounding, "scale", "nats")]
    places = {f"layer {n}": v for n, v in _figure(report.checks, "effect_by_layer").items()}
    places |= _figure(report.checks, "effect_by_site")
    if places:
        parts += ["<h2>Effect by place</h2>", _PLACES, plots.bars(places, "nats")]
    if ranks := _figure(report.checks, "steered_tokens_by_rank"):
        parts += ["<h2>Tokens steered by rank</h2>", plots.bars(ranks, "tokens")]
    if times := {timing.name: timing.ms for timing in report.timings if timing.ms}:
        parts += ["<h2>Cost</h2>", _COST, plots.strips(times, "milliseconds a token")]
    return parts


_EFFECT = (
    "<p>The most that a log-probability moves when a random direction of length 1 is added in "
    "the middle layer at this scale.</p>"
)
_PLACES = "<p>The same at each layer and site that was looked at.</p>"
_COST = (
    "<p>Whole requests of one user over their tokens, prompt and HTTP included; a dot a round, "
    "a line at the median.</p>"
)


def _figure(checks: Sequence[Check], name: str) -> Mapping[str, Any]:
    return next((c.figures[name] for c in checks if c.figures.get(name)), {})
