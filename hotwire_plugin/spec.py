"""What a client asks for: the request key "hotwire", read and checked.

A specification is an object or a list of objects, as JSON text or already decoded:

    {"id": "joy", "layer": "10-14", "scale": 1.5, "op": "add", "scope": "generated", "strict": true}

Reading it needs no snapshot, so names are not looked up here. Pure: standard library only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from hotwire_plugin.spec_entry import SpecEntry, read_entry
from hotwire_plugin.spec_error import (
    LAYER_INVALID,
    SPEC_INVALID,
    SPEC_NOT_JSON,
    SPEC_TOO_LARGE,
    TOO_MANY_ENTRIES,
    SpecError,
    shown,
)

MAX_SPEC_BYTES = 16 * 1024
MAX_ENTRIES = 64
# Over all entries: a short text can name many, and reading it must stay quick.
MAX_LAYERS_NAMED = 4096


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole specification: entries in the order given, and whether any of them is strict."""

    entries: tuple[SpecEntry, ...]
    strict: bool


def parse(raw: object) -> Spec:
    """Reads a specification. Raises SpecError, and nothing else, if it is not one."""
    loaded, duplicate = _load(raw) if isinstance(raw, str) else (raw, None)
    items = list(loaded[: MAX_ENTRIES + 1]) if isinstance(loaded, list | tuple) else [loaded]
    strict = any(isinstance(item, dict) and item.get("strict") is True for item in items)
    try:
        return Spec(_entries(items, duplicate), strict)
    except SpecError as exc:
        exc.strict = strict
        raise


def _load(text: str) -> tuple[object, str | None]:
    """Returns the decoded JSON and a key that some object holds twice, if any does."""
    if len(text) > MAX_SPEC_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_SPEC_BYTES:
        raise SpecError(SPEC_TOO_LARGE, f"larger than {MAX_SPEC_BYTES} bytes")
    duplicates: list[str] = []

    def collect(pairs: list[tuple[str, object]]) -> dict[str, object]:
        seen: dict[str, object] = {}
        for key, value in pairs:
            if key in seen:
                duplicates.append(key)
            seen[key] = value
        return seen

    try:
        loaded = json.loads(text, object_pairs_hook=collect)
    except RecursionError:
        raise SpecError(SPEC_INVALID, "nested too deeply") from None
    except ValueError as exc:
        where = f" at character {exc.pos}" if isinstance(exc, json.JSONDecodeError) else ""
        raise SpecError(SPEC_NOT_JSON, f"not JSON{where}") from None
    return loaded, (duplicates[0] if duplicates else None)


def _entries(items: list[object], duplicate: str | None) -> tuple[SpecEntry, ...]:
    if duplicate is not None:
        raise SpecError(SPEC_INVALID, f"key {shown(duplicate)} is given twice")
    if len(items) > MAX_ENTRIES:
        raise SpecError(TOO_MANY_ENTRIES, f"more than {MAX_ENTRIES} entries")
    entries: list[SpecEntry] = []
    named = 0
    for item in items:
        entries.append(read_entry(item))
        named += len(entries[-1].layers or ())
        if named > MAX_LAYERS_NAMED:
            raise SpecError(LAYER_INVALID, f"more than {MAX_LAYERS_NAMED} layers over all entries")
    return tuple(entries)
