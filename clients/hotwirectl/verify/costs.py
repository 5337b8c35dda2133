"""What timings look like: medians and spans, and what steering and an idle plugin cost."""

from collections.abc import Sequence
from typing import Any

from hotwirectl import text
from hotwirectl.verify import cost
from hotwirectl.verify.results import Timing

_TITLES = ("COST", "MS/TOKEN", "P10-P90", "MORE THAN UNSTEERED")
_ORDER = "the two ran one after the other, which by itself makes some percent"
_SHARES = (("p10", 0.1), ("p50", 0.5), ("p90", 0.9))


def table(timings: Sequence[Timing]) -> str:
    """A line for each way, and one for the idle plugin if a bare server was timed."""
    rows = [_row(form) for form in form(timings)]
    idle = _idle(timings)
    note = "" if idle is None else f"\nidle plugin: {idle:+.1%} over bare by the medians; {_ORDER}"
    return text.columns(_TITLES, rows) + note


def form(timings: Sequence[Timing]) -> list[dict[str, Any]]:
    """Returns the JSON form of each; `more` is a share of the unsteered, paired round by round."""
    base = timings[0]
    return [_form(timing, base) for timing in timings]


def _form(timing: Timing, base: Timing) -> dict[str, Any]:
    own = timing is base or timing.name == cost.BARE
    more = [] if own else cost.paired(timing, base)
    return {
        "name": timing.name,
        "ms": [round(ms, 4) for ms in timing.ms],
        **_quantiles(timing.ms, ""),
        **_quantiles(more, "more_"),
        "why_not": timing.why_not,
    }


def _quantiles(values: Sequence[float], prefix: str) -> dict[str, float | None]:
    return {
        prefix + name: cost.quantile(values, share) if values else None for name, share in _SHARES
    }


def _row(form: dict[str, Any]) -> list[str]:
    if form["p50"] is None:
        return [form["name"], "-", "-", f"not shown: {form['why_not']}"]
    more = "-"
    if form["more_p50"] is not None:
        more = "{more_p50:+.1%} ({more_p10:+.1%} to {more_p90:+.1%})".format(**form)
    return [form["name"], f"{form['p50']:.3g}", f"{form['p10']:.3g}-{form['p90']:.3g}", more]


def _idle(timings: Sequence[Timing]) -> float | None:
    """Returns what an unsteered token takes more than on the bare server; None if not known."""
    bare = next((timing for timing in timings if timing.name == cost.BARE and timing.ms), None)
    if bare is None or not timings[0].ms:
        return None
    return cost.quantile(timings[0].ms, 0.5) / cost.quantile(bare.ms, 0.5) - 1.0
