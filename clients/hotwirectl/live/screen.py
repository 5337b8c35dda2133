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
from hotwirectl.live.engine_table import EngineTable, plain_table
from hotwirectl.live.rates import EngineRates, Meter

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
    parts.append(EngineTable(engines) if engines else Text("no engines are connected", style="dim"))
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


def _reasons(engines: Sequence[EngineRates]) -> Table:
    table = plain_table(_REASONS, left={"ENGINE", "COUNTER", "REASON"})
    for e in engines:
        for r in e.reasons:
            cells = (e.now.engine, r.counter, r.reason, str(r.total), f"{r.rate:.1f}")
            style = "yellow" if r.rate else ""
            table.add_row(*(Text(text.escaped(cell), style=style) for cell in cells))
    return table


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
