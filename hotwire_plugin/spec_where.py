"""The keys of a specification's entry that say where within a request it acts. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hotwire_plugin.positions import EVERYWHERE, SCOPES, Positions, Range
from hotwire_plugin.spec_error import (
    POSITIONS_INVALID,
    SPEC_INVALID,
    UNKNOWN_FIELD,
    SpecError,
    kind,
    shown,
)

MAX_RANGES = 256
MAX_POSITION = 2**31 - 1
WHERE_KEYS = (
    "scope",
    "decode_only",
    "positions",
    "skip_special_tokens",
    "from_generated",
    "to_generated",
)

_RANGE = re.compile(r"\s*([0-9]{1,10})\s*-\s*([0-9]{1,10})\s*", re.ASCII)


def scope_and_positions(item: Mapping[str, object]) -> tuple[str, Positions]:
    """Returns the scope, one of SCOPES, and which positions of it. Raises SpecError."""
    windowed = "from_generated" in item or "to_generated" in item
    scope = _scope(item, "generated" if windowed else "all")
    if windowed and scope not in ("all", "generated"):
        raise SpecError(SPEC_INVALID, f"scope {scope!r} has nothing generated to count")
    include, exclude = _lists(item.get("positions", {}))
    positions = Positions(
        include,
        exclude,
        _boolean(item, "skip_special_tokens"),
        _window(item) if windowed else (0, None),
    )
    return scope, EVERYWHERE if positions == EVERYWHERE else positions


def _scope(item: Mapping[str, object], default: str) -> str:
    decode_only = _boolean(item, "decode_only")
    if "scope" not in item:
        if "decode_only" in item:
            return "generated" if decode_only else "all"
        return default
    scope = item["scope"]
    if not isinstance(scope, str) or scope not in SCOPES:
        raise SpecError(SPEC_INVALID, f"scope must be one of {', '.join(SCOPES)}")
    if "decode_only" in item and decode_only != (scope == "generated"):
        raise SpecError(SPEC_INVALID, "decode_only and scope contradict each other")
    return scope


def _boolean(item: Mapping[str, object], key: str) -> bool:
    value = item.get(key, False)
    if not isinstance(value, bool):
        raise SpecError(SPEC_INVALID, f"{key} must be a boolean, is {kind(value)}")
    return value


def _lists(value: object) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    if not isinstance(value, Mapping):
        value = {"include": value}
    for key in value:
        if key not in ("include", "exclude"):
            raise SpecError(UNKNOWN_FIELD, f"unknown key {shown(key)} in positions")
    if "include" in value and value["include"] in ([], ()):
        raise SpecError(POSITIONS_INVALID, "positions to include are none at all")
    return _ranges(value.get("include", [])), _ranges(value.get("exclude", []))


def _ranges(value: object) -> tuple[Range, ...]:
    items = value if isinstance(value, list | tuple) else [value]
    if len(items) > MAX_RANGES:
        raise SpecError(POSITIONS_INVALID, f"more than {MAX_RANGES} positions or ranges")
    return tuple(sorted({_range(item) for item in items}, key=_order))


def _order(each: Range) -> tuple[int, float]:
    first, last = each
    return first, float("inf") if last is None else last


def _range(item: object) -> Range:
    """Reads 3, -1, "3-7", [3, 7], [-5, -1] or [3, null]; both ends count."""
    if isinstance(item, str) and (match := _RANGE.fullmatch(item)):
        item = [int(match[1]), int(match[2])]
    if isinstance(item, list | tuple):
        if len(item) != 2:
            raise SpecError(POSITIONS_INVALID, "a range of positions is [first, last]")
        first, last = _position(item[0]), None if item[1] is None else _position(item[1])
        if last is not None and (first < 0) == (last < 0) and last < first:
            raise SpecError(POSITIONS_INVALID, "a range of positions runs backwards")
        return first, last
    only = _position(item)
    return only, only


def _position(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(POSITIONS_INVALID, f"a position must be an integer, is {kind(value)}")
    if abs(value) > MAX_POSITION:
        raise SpecError(POSITIONS_INVALID, f"a position must be within ±{MAX_POSITION}")
    return int(value)


def _window(item: Mapping[str, object]) -> tuple[int, int | None]:
    start = _count(item.get("from_generated", 0), "from_generated")
    if item.get("to_generated") is None:
        return start, None
    stop = _count(item["to_generated"], "to_generated")
    if stop <= start:
        raise SpecError(POSITIONS_INVALID, "to_generated must be greater than from_generated")
    return start, stop


def _count(value: object, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_POSITION:
        raise SpecError(POSITIONS_INVALID, f"{key} must be an integer from 0 to {MAX_POSITION}")
    return int(value)
