"""Watching what the daemon has: asked at intervals, and printed where something has changed."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import click
from google.protobuf.message import Message

from hotwirectl import text
from hotwirectl.listings import Listing
from hotwirectl.precedence import Settings
from hotwirectl.printers import stdio
from hotwirectl.printers.json_form import to_dict

DEFAULT_INTERVAL = 2.0

M = TypeVar("M", bound=Message)
F = TypeVar("F", bound=Callable[..., Any])


class Event(NamedTuple, Generic[M]):
    """Something that has changed: how, its name as `-o name` prints it, and what it is now."""

    change: str
    name: str
    item: M

    def form(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {"type": self.change, "object": to_dict(self.item)}


class Shape(Protocol[M]):
    """How events look to people."""

    def none(self) -> str:
        """Returns what is said if there is nothing yet; may be empty."""

    def expect(self, events: Sequence[Event[M]]) -> None:
        """Makes ready for events whose text is wanted next."""

    def text(self, event: Event[M]) -> str:
        """Returns the lines of one event."""


def options(*, default: float = DEFAULT_INTERVAL) -> Callable[[F], F]:
    """Returns the options --watch and --interval, which `seconds` understands."""
    watch = click.option("-w", "--watch", is_flag=True, help="Print what changes, until Ctrl-C.")
    interval = click.option(
        "--interval",
        metavar="SECONDS",
        type=click.FloatRange(0.1, 3600),
        help=f"The time between two looks, with --watch.  [default: {default:g}]",
    )
    return lambda command: watch(interval(command))


def seconds(
    interval: float | None, *, watch: bool, default: float = DEFAULT_INTERVAL
) -> float | None:
    """Returns the seconds between two looks, None for only one look.

    Raises:
        click.UsageError: There is an interval and nothing to watch.
    """
    if interval is not None and not watch:
        raise click.UsageError("--interval needs --watch")
    return (interval or default) if watch else None


def follow(
    settings: Settings,
    look: Callable[[], Mapping[str, M]],
    shape: Shape[M],
    interval: float,
    *,
    mark: Callable[[M], object],
) -> None:
    """Prints what there is, then what changes, until Ctrl-C; a look is taken every `interval` s.

    look: returns all there is, by name.
    mark: what tells two states of one thing apart.

    Raises:
        HotwireError: A look fails.
        stdio.OutputClosedError: Nobody reads any longer.
    """
    printer = settings.printer()
    with contextlib.suppress(KeyboardInterrupt):
        found = look()
        marks = {name: mark(item) for name, item in found.items()}
        events = [Event("ADDED", name, item) for name, item in found.items()]
        if not events and shape.none():
            printer.note(shape.none())
        while True:
            shape.expect(events)
            for event in events:
                printer.sample(event.form(), partial(shape.text, event), names=[event.name])
            stdio.wait(interval)
            before, found = found, look()
            marks_before, marks = marks, {name: mark(item) for name, item in found.items()}
            events = [*_changes(found, marks_before, marks), *_gone(before, found)]


def by_name(kind: str, items: Iterable[M]) -> dict[str, M]:
    """Returns the items by their names as `-o name` prints them."""
    return {f"{kind}/{item.name}": item for item in items}  # type: ignore[attr-defined]


def whole(item: Message) -> object:
    """Marks an item by all that it holds."""
    return item.SerializeToString(deterministic=True)


def _changes(
    found: Mapping[str, M], before: Mapping[str, object], now: Mapping[str, object]
) -> Iterator[Event[M]]:
    for name, item in found.items():
        if name not in before:
            yield Event("ADDED", name, item)
        elif before[name] != now[name]:
            yield Event("MODIFIED", name, item)


def _gone(before: Mapping[str, M], found: Mapping[str, M]) -> Iterator[Event[M]]:
    return (Event("DELETED", name, item) for name, item in before.items() if name not in found)


class Rows(Generic[M]):
    """Events as rows under titles that are printed once; what is gone has that as its STATE."""

    def __init__(self, listing: Listing[M], *, wide: bool) -> None:
        self._listing = listing
        self._wide = wide
        self._titles = listing.all_titles(wide=wide)
        self._columns = text.Columns(self._titles)
        self._titled = False

    def none(self) -> str:
        """Returns the listing's own sentence."""
        return self._listing.none

    def expect(self, events: Sequence[Event[M]]) -> None:
        """Makes the columns as wide as the rows need."""
        self._columns.lines(map(self._cells, events))

    def text(self, event: Event[M]) -> str:
        """Returns the row, after the titles if it is the first."""
        head = [] if self._titled else [self._columns.head()]
        self._titled = True
        return "\n".join([*head, *self._columns.lines([self._cells(event)])])

    def _cells(self, event: Event[M]) -> list[str]:
        cells = self._listing.cells(event.item, wide=self._wide)
        if event.change == "DELETED":
            cells[self._titles.index("STATE")] = "deleted"
        return cells


class Blocks(Generic[M]):
    """Events as what `show` prints, with an empty line between two."""

    def __init__(self, view: Callable[[M], str]) -> None:
        self._view = view
        self._gap = ""

    def none(self) -> str:
        """Returns nothing: what is not there is an error for `show`."""
        return ""

    def expect(self, events: Sequence[Event[M]]) -> None:
        """Needs nothing."""

    def text(self, event: Event[M]) -> str:
        """Returns the block, or a line for what is gone."""
        gap, self._gap = self._gap, "\n"
        gone = event.change == "DELETED"
        return gap + (text.escaped(f"{event.name} deleted") if gone else self._view(event.item))
