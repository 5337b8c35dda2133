"""What timings look like: medians and spans, and what steering and an idle plugin cost."""

from collections.abc import Sequence
from typing import Any

from hotwirectl import text
from hotwirectl.verify import cost
from hotwirectl.verify.results import Timing

_TITLES = ("COST", "MS/TOKEN", "P10-P90", "MORE THAN UNSTEERED")
_SHARES = (("p10", 0.1), ("p50", 0.5), ("p90", 0.9))


def table(timings: Sequence[Timing]) -> str:
    """A line for each way, and one for the idle plugin if a bare server was timed."""
    rows = [_row(each) for each in form(timings)]
    idle = idle_cost(timings)
    return text.columns(_TITLES, rows) + ("" if idle is None else f"\n{_sentence(idle)}")


def idle_cost(timings: Sequence[Timing]) -> dict[str, float] | None:
    """Returns what an unsteered token takes more than on bare servers; None if not known.

    more: as a share of the mean of the bare servers' medians. bare_apart: what those, one before
    and one after, are apart, as a share of it, too: less than that can't be told.
    """
    bare = [cost.quantile(t.ms, 0.5) for t in timings if t.ms and t.name.startswith(cost.BARE)]
    if not bare or not timings[0].ms:
        return None
    mean = sum(bare) / len(bare)
    more = cost.quantile(timings[0].ms, 0.5) / mean - 1.0
    return {"more": more, "bare_apart": (max(bare) - min(bare)) / mean}


def _sentence(idle: dict[str, float]) -> str:
    told = abs(idle["more"]) > idle["bare_apart"]
    return (
        f"idle plugin: {idle['more']:+.1%} over bare, whose two runs are {idle['bare_apart']:.1%} "
        f"apart{'' if told else ': no cost is told from that'}"
    )


def form(timings: Sequence[Timing]) -> list[dict[str, Any]]:
    """Returns the JSON form of each; `more` is a share of the unsteered, paired round by round."""
    base = timings[0]
    return [_form(timing, base) for timing in timings]


def _form(timing: Timing, base: Timing) -> dict[str, Any]:
    own = timing is base or timing.name.startswith(cost.BARE)
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
