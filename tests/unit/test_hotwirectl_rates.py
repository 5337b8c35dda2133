"""The figures of the live screen: rates from samples of counters."""

import pytest
from rich.console import Console
from rich.text import Text

from hotwirectl.live.rates import KEPT, Meter, sparkline
from hotwirectl.live.screen import frame
from hotwired.v1.stats_pb2 import EngineStats, Stats


def sample(second: float, *engines: EngineStats, **fields: bool) -> Stats:
    """Returns a sample taken at that second."""
    made = Stats(engines=engines, **fields)  # type: ignore[arg-type]
    made.sample_time.FromNanoseconds(int(second * 1e9))
    return made


def engine(count: int, name: str = "i/0", **more: object) -> EngineStats:
    """Returns an engine whose counters are multiples of a count."""
    return EngineStats(
        engine=name,
        requests_total=10 * count,
        requests_steered_total=6 * count,
        requests_unsteered_total={"KILL_SWITCH": 4 * count},
        dose_decisions_total={"clamped": 2 * count},
        steered_tokens_total=100 * count,
        fill_steps_total=count,
        fill_seconds_total=count * 20e-6,
    )


def test_rates_are_a_second() -> None:
    """The growth between two samples by the time between them, not by the interval asked for."""
    meter = Meter()
    (first,) = meter.add(sample(100, engine(5)))
    assert (first.requests, first.fill_us) == (0.0, None)
    (rates,) = meter.add(sample(102, engine(7)))
    assert (rates.requests, rates.steered, rates.unsteered) == (10.0, 6.0, 4.0)
    assert rates.tokens == 100.0
    assert rates.fill_us == pytest.approx(20.0)
    assert [(r.counter, r.reason, r.total, r.rate) for r in rates.reasons] == [
        ("unsteered", "KILL_SWITCH", 28, 4.0),
        ("dose", "clamped", 14, 2.0),
    ]


def test_an_engine_that_was_started_anew_counts_from_0() -> None:
    """Its rates are neither below 0 nor those of both."""
    meter = Meter()
    meter.add(sample(0, engine(50)))
    (rates,) = meter.add(sample(1, engine(2)))
    assert (rates.requests, rates.unsteered) == (20.0, 8.0)
    assert rates.fill_us == pytest.approx(20.0)


def test_engines_come_and_go() -> None:
    """A new one begins with 0, and one that is gone leaves no history to another's return."""
    meter = Meter()
    meter.add(sample(0, engine(1)))
    both = meter.add(sample(1, engine(2), engine(9, "j/0")))
    assert [(e.now.engine, e.requests) for e in both] == [("i/0", 10.0), ("j/0", 0.0)]
    meter.add(sample(2, engine(2)))
    (_, back) = meter.add(sample(3, engine(2), engine(9, "j/0")))
    assert back.history["requests"] == [0.0]


def test_the_history_is_short() -> None:
    """The newest are kept, oldest first; idle steps say nothing of the fill."""
    meter = Meter()
    for second in range(KEPT + 5):
        (rates,) = meter.add(sample(second, engine(second)))
    assert len(rates.history["requests"]) == KEPT
    assert rates.history["requests"][-1] == 10.0
    (idle,) = meter.add(sample(second + 1, engine(second)))
    assert idle.fill_us is None
    assert idle.history["requests"][-1] == 0.0


def test_two_samples_of_one_moment() -> None:
    """No division by zero."""
    meter = Meter()
    meter.add(sample(1, engine(1)))
    assert meter.add(sample(1, engine(2)))[0].requests == 0.0


@pytest.mark.parametrize(
    ("values", "shown"),
    [([], ""), ([0, 0], "▁▁"), ([1, 1], "██"), ([0, 3.5, 7], "▁▅█"), ([-1, 2], "▁█")],
)
def test_sparklines(values: list[float], shown: str) -> None:
    """From 0 to the highest."""
    assert sparkline(values) == shown


def drawn(width: int = 140, **fields: bool) -> str:
    """Returns what is drawn of two samples, with its colours."""
    console = Console(width=width, force_terminal=True, color_system="standard", record=True)
    meter = Meter()
    meter.add(sample(0, engine(1, "i\x1b[2J/[red]0")))
    last = sample(1, engine(2, "i\x1b[2J/[red]0"), **fields)
    with console.capture() as capture:
        console.print(frame(last, meter.add(last), "unix:/x"))
    return capture.get()


def test_what_is_drawn() -> None:
    """Rates and reasons; names cannot act on the terminal, nor as markup."""
    shown = drawn()
    for text in ("REQ/S", "10.0", "KILL_SWITCH", "clamped", "20.0", r"i\x1b[2J/[red]0", "unix:/x"):
        assert text in shown
    assert "\x1b[2J" not in shown


def test_states_have_colours() -> None:
    """The kill switch is red while nothing is steered; what has not converged is yellow."""
    assert "\x1b[1;31mON, nothing is steered" in drawn(kill_switch=True)
    assert "\x1b[32moff" in drawn(kill_switch=False)
    assert "\x1b[32myes" in drawn(converged=True)
    assert "\x1b[1;33mno" in drawn(converged=False)


@pytest.mark.parametrize(
    ("width", "there", "not_there"),
    [(200, "█", "…"), (95, "SLOTS", "█"), (65, "FILL-US", "SLOTS")],
)
def test_figures_go_before_bars_and_some_before_others(
    width: int, there: str, not_there: str
) -> None:
    """No line is longer than the terminal, and no figure is cut."""
    lines = [Text.from_ansi(line) for line in drawn(width=width).splitlines()]
    assert max(line.cell_len for line in lines) <= width
    shown = "\n".join(line.plain for line in lines)
    assert there in shown
    assert not_there not in shown
    assert "…" not in shown
