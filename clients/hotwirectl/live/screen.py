"""Draws samples on a terminal until they end, and leaves the terminal as it was."""

import contextlib
import signal
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hotwire_client import Stats
from hotwirectl import text
from hotwirectl.live.rates import EngineRates, Meter, sparkline

_ENGINE = (
    *("ENGINE", "GEN", "REQ/S", "", "STEERED/S", "", "UNSTEERED/S", ""),
    *("LIVE", "TOK/S", "ROWS", "SLOTS", "FILL-US", ""),
)
_REASONS = ("ENGINE", "COUNTER", "REASON", "TOTAL", "/S")
# A size that has changed is drawn anew that soon, whether a sample has come or not.
_REFRESHES = 4


def show(samples: Iterable[Stats], server: str) -> None:
    """Draws each sample, on a screen of its own, until there are no more or it is interrupted."""
    meter = Meter()
    console = Console(highlight=False, markup=False, emoji=False)
    with (
        _ended_by_signals(),
        Live(console=console, screen=True, refresh_per_second=_REFRESHES) as live,
    ):
        live.update(Text(f"waiting for {text.escaped(server)}", style="dim"), refresh=True)
        for sample in samples:
            live.update(frame(sample, meter.add(sample), server), refresh=True)


def frame(sample: Stats, engines: Sequence[EngineRates], server: str) -> RenderableType:
    """Returns what is drawn for a sample."""
    parts: list[RenderableType] = [_head(sample, server), Text()]
    parts.append(_engines(engines) if engines else Text("no engines are connected", style="dim"))
    if any(e.reasons for e in engines):
        parts += [Text(), _reasons(engines)]
    return Group(*parts, Text(), Text("Ctrl-C ends", style="dim"))


def _head(s: Stats, server: str) -> Text:
    switch = ("ON, nothing is steered", "bold red") if s.kill_switch else ("off", "green")
    converged = ("yes", "green") if s.converged else ("no", "bold yellow")
    return Text.assemble(
        (text.escaped(server), "bold"),
        f"  {s.sample_time.ToJsonString()[11:19]}  up {text.duration(s.uptime_seconds)}\n",
        "kill switch ",
        switch,
        "   converged ",
        converged,
        f"   generation {s.generation}   vectors {s.vectors} ({text.size(s.store_bytes)})"
        f"   memory {text.size(s.daemon_rss_bytes)}",
    )


def _engines(engines: Sequence[EngineRates]) -> Table:
    table = _table(_ENGINE, left={0})
    for e in engines:
        table.add_row(
            Text(text.escaped(e.now.engine), style="bold"),
            str(e.now.generation),
            f"{e.requests:.1f}",
            _spark(e, "requests", "cyan"),
            f"{e.steered:.1f}",
            _spark(e, "steered", "green"),
            f"{e.unsteered:.1f}",
            _spark(e, "unsteered", "yellow"),
            str(e.now.requests_live),
            f"{e.tokens:.0f}",
            f"{e.now.rows_in_use}/{e.now.rows_capacity}",
            f"{e.now.slots_in_use}/{e.now.slots_capacity}",
            "-" if e.fill_us is None else f"{e.fill_us:.1f}",
            _spark(e, "fill_us", "magenta"),
        )
    return table


def _reasons(engines: Sequence[EngineRates]) -> Table:
    table = _table(_REASONS, left={0, 1, 2})
    for e in engines:
        for r in e.reasons:
            cells = (e.now.engine, r.counter, r.reason, str(r.total), f"{r.rate:.1f}")
            style = "yellow" if r.rate else ""
            table.add_row(*(Text(text.escaped(cell), style=style) for cell in cells))
    return table


def _table(titles: Sequence[str], left: set[int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for at, title in enumerate(titles):
        justify = "left" if at in left or not title else "right"
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return table


def _spark(e: EngineRates, name: str, style: str) -> Text:
    return Text(sparkline(e.history.get(name, ())), style=style)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP unwind the stack, so that the terminal is left as it was."""

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
