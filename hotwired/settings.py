"""What kinds of setting there are: how one is read from TOML, and how it is written there."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

_T = TypeVar("_T")
_N = TypeVar("_N", int, float)

_SIZE = re.compile(r"(\d+) ?(B|KiB|MiB|GiB|TiB)")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Kind(Generic[_T]):
    """What a setting may be.

    allowed: what is, for people. read: takes what TOML holds and raises ValueError if that is not
    allowed. write: returns a value as TOML has it.
    """

    allowed: str
    read: Callable[[object], _T]
    write: Callable[[_T], str]


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a setting: its kind, and what it does, for the sample file."""

    kind: Kind[Any]
    text: str


_KEY = "setting"


def setting(kind: Kind[_T], default: _T, text: str) -> _T:
    """Returns a dataclass's field for a setting. text: what it does, in whole sentences."""
    return field(default=default, metadata={_KEY: About(kind, text)})


def about(metadata: Any) -> About:
    """Returns what was said of a setting. metadata: that of its field."""
    return cast(About, metadata[_KEY])


def flag() -> Kind[bool]:
    """True or false."""
    return Kind("true or false", lambda value: _of(bool, value), lambda value: str(value).lower())


def whole(low: int, high: int) -> Kind[int]:
    """A whole number, both ends included."""

    def read(value: object) -> int:
        return _within(_whole(value), low, high)

    return Kind(f"a whole number from {low} to {high}", read, str)


def number(low: float, high: float) -> Kind[float]:
    """A number, both ends included."""

    def read(value: object) -> float:
        return _within(_real(value), low, high)

    return Kind(f"a number from {low:.10g} to {high:.10g}", read, repr)


def size(low: int, high: int) -> Kind[int]:
    """A number of bytes, which may be written with a unit."""

    def read(value: object) -> int:
        if isinstance(value, str):
            if (match := _SIZE.fullmatch(value)) is None:
                raise ValueError
            value = int(match[1]) * _UNITS[match[2]]
        return _within(_whole(value), low, high)

    def write(value: int) -> str:
        return quoted(shown_size(value)) if value else "0"

    ends = f"{shown_size(low) if low else 0} to {shown_size(high)}"
    return Kind(f'a size from {ends}, as "256 MiB" or in bytes', read, write)


def choice(*words: str) -> Kind[str]:
    """One of some words."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError
        return value

    return Kind("one of " + ", ".join(map(quoted, words)), read, quoted)


def text(pattern: str, allowed: str) -> Kind[str]:
    """A text that a pattern matches as a whole."""

    def read(value: object) -> str:
        if re.fullmatch(pattern, _of(str, value)) is None:
            raise ValueError
        return cast(str, value)

    return Kind(allowed, read, quoted)


def texts(pattern: str, allowed: str) -> Kind[tuple[str, ...]]:
    """A list of texts, each of which a pattern matches as a whole."""
    one = text(pattern, allowed)

    def read(value: object) -> tuple[str, ...]:
        return tuple(one.read(item) for item in _of(list, value))

    def write(value: tuple[str, ...]) -> str:
        return f"[{', '.join(map(quoted, value))}]"

    return Kind(f"a list, each {allowed}", read, write)


def checked(check: Callable[[str], str], allowed: str) -> Kind[str]:
    """A text that a function takes, which raises ValueError for others; none if empty."""

    def read(value: object) -> str:
        found = cast(str, _of(str, value))
        return check(found) if found else ""

    return Kind(allowed, read, quoted)


def place() -> Kind[Path | None]:
    """An absolute path; none if empty."""

    def read(value: object) -> Path | None:
        if not (found := _of(str, value)):
            return None
        if not Path(found).is_absolute() or "\0" in found:
            raise ValueError
        return Path(found)

    def write(value: Path | None) -> str:
        return quoted("" if value is None else str(value))

    return Kind('an absolute path, or ""', read, write)


def address() -> Kind[str]:
    """A host and a port to listen on; none if empty."""

    def read(value: object) -> str:
        found = _of(str, value)
        match = _HOST_PORT.fullmatch(found)
        if found and (match is None or int(match["port"]) > 65535):
            raise ValueError
        return cast(str, found)

    return Kind('"HOST:PORT", "[::1]:PORT", or ""', read, quoted)


def shown_size(value: int) -> str:
    """Returns a number of bytes in the largest unit that leaves it whole."""
    fits = [unit for unit, factor in _UNITS.items() if value and value % factor == 0]
    unit = fits[-1] if fits else "B"
    return f"{value // _UNITS[unit]} {unit}"


def quoted(value: str) -> str:
    """Returns a text as TOML has it: TOML's escapes are JSON's."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _of(wanted: type[_T], value: object) -> Any:
    if not isinstance(value, wanted):
        raise ValueError  # noqa: TRY004 -- one kind of failure, whatever is wrong
    return value


def _whole(value: object) -> int:
    # TOML's true is Python's 1.
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError  # noqa: TRY004 -- as above
    return value


def _real(value: object) -> float:
    return value if isinstance(value, float) else float(_whole(value))


def _within(value: _N, low: float, high: float) -> _N:
    if not math.isfinite(value) or not low <= value <= high:
        raise ValueError
    return value
