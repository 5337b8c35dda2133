"""The table of engines: figures first, and sparklines as long as the terminal has room for."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from hotwirectl import text
from hotwirectl.live.rates import KEPT, EngineRates, sparkline

# Shorter ones show nothing.
_SHORTEST = 4
_GAP = 2
# Wider than any terminal: what a table takes that need not be cut.
_ENDLESS = 10_000


class _Column(NamedTuple):
    """A figure of an engine.

    Attributes:
        title: What stands above it.
        value: Returns it.
        needed: Whether it is there on a narrow terminal, too.
        past: The name of its history, if it has a sparkline.
        style: The sparkline's colour.
    """

    title: str
    value: Callable[[EngineRates], str]
    needed: bool = False
    past: str = ""
    style: str = ""


_COLUMNS = (
    _Column("ENGINE", lambda e: text.escaped(e.now.engine), True),
    _Column("GEN", lambda e: str(e.now.generation)),
    _Column("REQ/S", lambda e: f"{e.requests:.1f}", True, "requests", "cyan"),
    _Column("STEERED/S", lambda e: f"{e.steered:.1f}", True, "steered", "green"),
    _Column("UNSTEERED/S", lambda e: f"{e.unsteered:.1f}", True, "unsteered", "yellow"),
    _Column("LIVE", lambda e: str(e.now.requests_live)),
    _Column("TOK/S", lambda e: f"{e.tokens:.0f}"),
    _Column("ROWS", lambda e: f"{e.now.rows_in_use}/{e.now.rows_capacity}"),
    _Column("SLOTS", lambda e: f"{e.now.slots_in_use}/{e.now.slots_capacity}"),
    _Column("FILL-US", lambda e: _fill(e.fill_us), True, "fill_us", "magenta"),
)
_SPARKS = sum(bool(column.past) for column in _COLUMNS)


class EngineTable:
    """A row for each engine, laid out anew for each width it is drawn at."""

    def __init__(self, engines: Sequence[EngineRates]) -> None:
        self._engines = engines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the table that has the most to show in the width there is."""
        endless = options.update_width(_ENDLESS)
        room = options.max_width - console.measure(self._table(0), options=endless).maximum
        if room < 0:
            yield self._table(0, narrow=True)
            return
        length = min(room // _SPARKS - _GAP, KEPT)
        yield self._table(length if length >= _SHORTEST else 0)

    def _table(self, length: int, *, narrow: bool = False) -> Table:
        """Returns the table with sparklines of that length, 0 for none."""
        columns = [c for c in _COLUMNS if c.needed or not narrow]
        sparks = [bool(c.past and length) for c in columns]
        titles = (t for c, s in zip(columns, sparks, strict=True) for t in [c.title, ""][: 1 + s])
        table = plain_table(titles, left={"ENGINE", ""})
        for e in self._engines:
            table.add_row(
                *(
                    cell
                    for c, s in zip(columns, sparks, strict=True)
                    for cell in [Text(c.value(e)), _spark(e, c, length)][: 1 + s]
                )
            )
        return table


def plain_table(titles: Iterable[str], left: Collection[str]) -> Table:
    """Returns a table without lines, its columns to the right but for those named in `left`."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title, justify="left" if title in left else "right", no_wrap=True)
    return table


def _fill(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds:.1f}"


def _spark(e: EngineRates, column: _Column, length: int) -> Text:
    past = e.history.get(column.past, ())
    return Text(sparkline(past[-length:]).rjust(length), style=column.style)
