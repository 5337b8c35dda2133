"""The options that say for how long, and for which requests, a vector is used."""

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from hotwirectl.settings import checked

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = r"(\d+(?:\.\d+)?)([smhd])"
_RANGE = r"([0-9]{1,4})(?:-([0-9]{1,4}))?"
# What a Duration holds: about ten thousand years.
_LONGEST = 315_576_000_000.0

F = TypeVar("F", bound=Callable[..., Any])


def parse_ttl(value: str) -> float:
    """Returns the seconds of a text such as "90s" or "1d12h"; raises ValueError for others."""
    if not re.fullmatch(f"(?:{_PART})+", value, re.ASCII):
        raise ValueError(f"{value} is no time such as 90s, 30m, 24h or 1d12h")
    seconds = sum(float(n) * _SECONDS[unit] for n, unit in re.findall(_PART, value))
    if not 0 < seconds <= _LONGEST:
        raise ValueError(f"{value} is not above 0, or longer than ten thousand years")
    return seconds


def parse_layers(value: str) -> tuple[int, ...]:
    """Returns the layers of a text such as "10-20,24", ascending; raises ValueError for others."""
    if not re.fullmatch(f"{_RANGE}(?:,{_RANGE})*", value, re.ASCII):
        raise ValueError(f"{value} is no list of layers such as 12 or 10-20,24")
    found: set[int] = set()
    for first, last in re.findall(_RANGE, value):
        if last and int(last) < int(first):
            raise ValueError(f"{first}-{last} ends before it begins")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def parse_percent(value: str) -> float:
    """Returns a share such as "5" or "2.5%"; raises ValueError unless 0 < it < 100."""
    percent = float(value.removesuffix("%"))
    if not (math.isfinite(percent) and 0 < percent < 100):
        raise ValueError(f"{value} is not above 0 and below 100")
    return percent


def ttl_option(*, help: str) -> Callable[[F], F]:  # noqa: A002 - as click has it
    """Returns the option --ttl, in seconds."""
    return click.option("--ttl", metavar="TIME", callback=checked(parse_ttl), help=help)


def canary_option(*, help: str) -> Callable[[F], F]:  # noqa: A002 - as click has it
    """Returns the option --canary, in percent."""
    return click.option("--canary", metavar="PERCENT", callback=checked(parse_percent), help=help)
