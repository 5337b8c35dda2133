"""What happens in a second: worked out from samples of counters that only grow. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hotwire_client import EngineStats, Stats

#: How many of the last figures are kept for a sparkline.
KEPT = 24

_MICROSECONDS = 1e6
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Reason:
    """One counted reason: its total, and how much it grew in a second."""

    counter: str
    reason: str
    total: int
    rate: float


@dataclass(frozen=True)
class EngineRates:
    """What one engine did between the last two samples, a second; 0 before there are two.

    Attributes:
        now: The last sample's counters.
        requests, steered, unsteered, tokens: A second.
        fill_us: The microseconds spent on a step that steered something; None if none did.
        reasons: Why requests were not steered, and what was decided on doses.
        history: The last values of `requests`, `steered`, `unsteered`, `tokens` and `fill_us`.
    """

    now: EngineStats
    requests: float
    steered: float
    unsteered: float
    tokens: float
    fill_us: float | None
    reasons: Sequence[Reason]
    history: Mapping[str, Sequence[float]]


@dataclass
class Meter:
    """Turns samples, in the order in which they were taken, into rates."""

    _last: Stats | None = None
    _history: dict[str, dict[str, deque[float]]] = field(default_factory=dict)

    def add(self, sample: Stats) -> list[EngineRates]:
        """Returns the rates of every engine in the sample, since the sample before."""
        last, self._last = self._last, sample
        before = {e.engine: e for e in last.engines} if last else {}
        seconds = _seconds(last, sample) if last else 0.0
        self._history = {e.engine: self._history.get(e.engine, {}) for e in sample.engines}
        return [self._engine(e, before.get(e.engine), seconds) for e in sample.engines]

    def _engine(self, now: EngineStats, before: EngineStats | None, seconds: float) -> EngineRates:
        # One that was started anew counts from 0: what it has is what it did since.
        if before is not None and now.requests_total < before.requests_total:
            before = EngineStats()
        old = now if before is None else before
        rates = {
            "requests": _rate(now.requests_total, old.requests_total, seconds),
            "steered": _rate(now.requests_steered_total, old.requests_steered_total, seconds),
            "unsteered": _rate(_sum(now), _sum(old), seconds),
            "tokens": _rate(now.steered_tokens_total, old.steered_tokens_total, seconds),
        }
        fill = _fill_us(now, old)
        history = self._remember(now.engine, rates | ({} if fill is None else {"fill_us": fill}))
        reasons = tuple(_reasons(now, old, seconds))
        return EngineRates(now, **rates, fill_us=fill, reasons=reasons, history=history)

    def _remember(self, engine: str, values: Mapping[str, float]) -> dict[str, list[float]]:
        kept = self._history[engine]
        for name, value in values.items():
            kept.setdefault(name, deque(maxlen=KEPT)).append(value)
        return {name: list(past) for name, past in kept.items()}


def sparkline(values: Sequence[float]) -> str:
    """Returns a bar for each value, the highest being full and 0 the lowest."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    steps = len(_BARS) - 1
    return "".join(_BARS[round(steps * max(value, 0.0) / top)] for value in values)


def _seconds(last: Stats, sample: Stats) -> float:
    nanoseconds = sample.sample_time.ToNanoseconds() - last.sample_time.ToNanoseconds()
    return nanoseconds / 1e9


def _rate(now: int, before: int, seconds: float) -> float:
    return max(now - before, 0) / seconds if seconds > 0 else 0.0


def _sum(e: EngineStats) -> int:
    return sum(e.requests_unsteered_total.values())


def _fill_us(now: EngineStats, before: EngineStats) -> float | None:
    steps = now.fill_steps_total - before.fill_steps_total
    spent = now.fill_seconds_total - before.fill_seconds_total
    return _MICROSECONDS * max(spent, 0.0) / steps if steps > 0 else None


def _reasons(now: EngineStats, before: EngineStats, seconds: float) -> Iterable[Reason]:
    counters = (
        ("unsteered", now.requests_unsteered_total, before.requests_unsteered_total),
        ("dose", now.dose_decisions_total, before.dose_decisions_total),
        ("program-error", now.program_errors_total, before.program_errors_total),
    )
    for counter, counts, old in counters:
        for reason in sorted(counts):
            if counts[reason]:
                grown = _rate(counts[reason], old.get(reason, 0), seconds)
                yield Reason(counter, reason, counts[reason], grown)
