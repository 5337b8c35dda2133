"""How single values look in a table: pure functions from values to text."""

import time
import unicodedata
from collections.abc import Iterable, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

NONE = "<none>"
_GAP = "   "
_BARS = "▁▂▃▄▅▆▇█"


def escaped(text: str) -> str:
    """Returns the text with everything that a terminal might act on as a backslash escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Columns:
    """Left-aligned columns, as wide as the widest value that they have had so far."""

    def __init__(self, titles: Sequence[str]) -> None:
        self._titles = titles
        self._widths = list(map(_width, titles))

    def head(self) -> str:
        """Returns the line of titles."""
        return self._line(self._titles)

    def lines(self, rows: Iterable[Sequence[str]]) -> list[str]:
        """Returns a line for each row, with every value escaped; the columns grow before."""
        table = [[escaped(value) or NONE for value in row] for row in rows]
        for row in table:
            self._widths = [max(w, _width(v)) for w, v in zip(self._widths, row, strict=True)]
        return list(map(self._line, table))

    def _line(self, row: Sequence[str]) -> str:
        cells = (_padded(v, w) for v, w in zip(row, self._widths, strict=True))
        return _GAP.join(cells).rstrip()


def columns(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns left-aligned columns under their titles, with every value escaped."""
    table = Columns(titles)
    lines = table.lines(rows)  # before the titles: they are as wide as the widest value
    return "\n".join([table.head(), *lines])


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns one `name  value` line for each pair, with the values aligned and escaped."""
    table = [(name, escaped(value) or NONE) for name, value in pairs]
    width = max((_width(name) for name, _ in table), default=0)
    return "\n".join(_padded(name, width) + _GAP + value for name, value in table)


def age(moment: Timestamp, now: float | None = None) -> str:
    """Returns the time since then in its largest unit, such as "5s", "3m", "2h" or "4d"."""
    if not moment.seconds:
        return NONE
    return duration((time.time() if now is None else now) - moment.seconds)


def duration(seconds: float) -> str:
    """Returns the seconds in their largest whole unit."""
    whole = max(int(seconds), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= length:
            return f"{whole // length}{unit}"
    return f"{whole}s"


def size(count: int) -> str:
    """Returns a number of bytes with a binary unit, such as "67.6KiB"."""
    if count < 1024:
        return f"{count}B"
    amount, units = count / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{amount:.1f}{units[0]}"


def layers(numbers: Sequence[int]) -> str:
    """Returns ascending numbers as ranges, such as "0-4,7,9-11"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def number(value: float) -> str:
    """Returns at most six significant digits."""
    return f"{value:.6g}"


def sparkline(values: Sequence[float]) -> str:
    """Returns a character for each value from 0 up, as high as it is beside the largest."""
    top = max(values, default=0.0)
    steps = len(_BARS) - 1
    return "".join(_BARS[round(steps * value / top) if top > 0 else 0] for value in values)


def yes(value: bool) -> str:  # noqa: FBT001 - it is the value itself
    """Returns "yes" or "no"."""
    return "yes" if value else "no"


def remaining(moment: Timestamp, now: float | None = None) -> str:
    """Returns the time until then in its largest unit, and "0s" once it has passed."""
    return duration(moment.seconds - (time.time() if now is None else now))


def moment(timestamp: Timestamp) -> str:
    """Returns the time in UTC to the second, with its age."""
    if not timestamp.seconds:
        return NONE
    utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(timestamp.seconds))
    return f"{utc} ({age(timestamp)} ago)"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))
