"""What a client asks for: the request key "hotwire", read and checked.

A specification is an object or a list of objects, as JSON text or already decoded:

    {"id": "joy", "layer": "10-14", "scale": 1.5, "op": "add", "scope": "generated", "strict": true}

Reading it needs no snapshot, so names are not looked up here. Pure: standard library only.
"""

import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hotwire_plugin.program import MAX_LAYER, OPS, SCOPES

MAX_SPEC_BYTES = 16 * 1024
MAX_ENTRIES = 64
# Over all entries: a short text can name many, and reading it must stay quick.
MAX_LAYERS_NAMED = 4096
MAX_ID_CHARS = 256

SPEC_TOO_LARGE = "SPEC_TOO_LARGE"
SPEC_NOT_JSON = "SPEC_NOT_JSON"
SPEC_INVALID = "SPEC_INVALID"
UNKNOWN_FIELD = "UNKNOWN_FIELD"
SCALE_NOT_FINITE = "SCALE_NOT_FINITE"
LAYER_INVALID = "LAYER_INVALID"
OP_UNSUPPORTED = "OP_UNSUPPORTED"
TOO_MANY_ENTRIES = "TOO_MANY_ENTRIES"
SPEC_REASONS = frozenset(
    {
        SPEC_TOO_LARGE,
        SPEC_NOT_JSON,
        SPEC_INVALID,
        UNKNOWN_FIELD,
        SCALE_NOT_FINITE,
        LAYER_INVALID,
        OP_UNSUPPORTED,
        TOO_MANY_ENTRIES,
    }
)

_KEYS = ("id", "layer", "scale", "op", "decode_only", "scope", "strict")
_LAYER_RANGE = re.compile(r"\s*([0-9]{1,4})\s*(?:-\s*([0-9]{1,4})\s*)?", re.ASCII)
_SHOWN_CHARS = 80


class SpecError(Exception):
    """A specification that can't be honoured.

    reason: one of SPEC_REASONS. message: safe to show and to log. strict: whether what could be
    read of it said "strict": true.
    """

    def __init__(self, reason: str, message: str, *, strict: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.strict = strict


@dataclass(frozen=True, slots=True)
class SpecEntry:
    """One vector to apply.

    id: the vector's name. layers: ascending and distinct; None for all that the vector has.
    scale: finite in fp64. op: one of OPS. scope: one of SCOPES.
    """

    id: str
    layers: tuple[int, ...] | None
    scale: float
    op: str
    scope: str


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


def shown(value: object) -> str:
    """Returns a value for a message: quoted, in ASCII without control characters, cut short."""
    if isinstance(value, str):
        text = ascii(value[: _SHOWN_CHARS + 1])
    else:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


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
        entries.append(_entry(item))
        named += len(entries[-1].layers or ())
        if named > MAX_LAYERS_NAMED:
            raise SpecError(LAYER_INVALID, f"more than {MAX_LAYERS_NAMED} layers over all entries")
    return tuple(entries)


def _entry(item: object) -> SpecEntry:
    if not isinstance(item, dict):
        raise SpecError(SPEC_INVALID, f"an entry must be an object, is {_kind(item)}")
    for key in item:
        if key not in _KEYS:
            raise SpecError(UNKNOWN_FIELD, f"unknown key {shown(key)}{_near_key(key)}")
    if not isinstance(item.get("strict", False), bool):
        raise SpecError(SPEC_INVALID, f"strict must be a boolean, is {_kind(item['strict'])}")
    return SpecEntry(
        id=_id(item),
        layers=_layers(item["layer"]) if "layer" in item else None,
        scale=_scale(item.get("scale", 1.0)),
        op=_op(item.get("op", "add")),
        scope=_scope(item),
    )


def _near_key(key: object) -> str:
    near = difflib.get_close_matches(key[:32], _KEYS, 1) if isinstance(key, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    names |= {int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), "something else")


def _id(item: Mapping[str, object]) -> str:
    name = item.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID_CHARS:
        raise SpecError(SPEC_INVALID, f"id must be a string of 1 to {MAX_ID_CHARS} characters")
    return name


def _scale(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(SPEC_INVALID, f"scale must be a number, is {_kind(value)}")
    try:
        scale = float(value)
    except OverflowError:
        scale = math.inf
    if not math.isfinite(scale):
        raise SpecError(SCALE_NOT_FINITE, "scale must be finite")
    return scale


def _op(value: object) -> str:
    if not isinstance(value, str):
        raise SpecError(SPEC_INVALID, f"op must be a string, is {_kind(value)}")
    if value not in OPS:
        raise SpecError(OP_UNSUPPORTED, f"op {shown(value)} is not supported, only 'add' is")
    return value


def _scope(item: Mapping[str, object]) -> str:
    decode_only = item.get("decode_only", False)
    if not isinstance(decode_only, bool):
        raise SpecError(SPEC_INVALID, f"decode_only must be a boolean, is {_kind(decode_only)}")
    if "scope" not in item:
        return "generated" if decode_only else "all"
    scope = item["scope"]
    if not isinstance(scope, str) or scope not in SCOPES:
        raise SpecError(SPEC_INVALID, "scope must be 'all', 'prompt' or 'generated'")
    if "decode_only" in item and decode_only != (scope == "generated"):
        raise SpecError(SPEC_INVALID, "decode_only and scope contradict each other")
    return scope


def _layers(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        layers = _layers_of_text(value)
    elif isinstance(value, list | tuple):
        layers = [_layer(item) for item in value[: MAX_LAYER + 2]]
    else:
        layers = [_layer(value)]
    if not layers:
        raise SpecError(LAYER_INVALID, "layer names no layer")
    if len(set(layers)) != len(layers):
        raise SpecError(LAYER_INVALID, "layer names a layer twice")
    return tuple(sorted(layers))


def _layer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(LAYER_INVALID, f"a layer must be an integer, is {_kind(value)}")
    if not 0 <= value <= MAX_LAYER:
        raise SpecError(LAYER_INVALID, f"a layer must be in 0..{MAX_LAYER}")
    return int(value)


def _layers_of_text(text: str) -> list[int]:
    """Reads "10", "10-20" or "10,12-14"; both ends of a range count."""
    layers: list[int] = []
    for part in text[:MAX_SPEC_BYTES].split(","):
        match = _LAYER_RANGE.fullmatch(part)
        if match is None:
            raise SpecError(LAYER_INVALID, f"layer {shown(text)} is not like '10', '10-20', '1,4'")
        first = _layer(int(match[1]))
        last = _layer(int(match[2])) if match[2] else first
        if last < first:
            raise SpecError(LAYER_INVALID, f"layer range {shown(part)} runs backwards")
        if len(layers) > MAX_LAYER:
            raise SpecError(LAYER_INVALID, "layer names a layer twice")
        layers.extend(range(first, last + 1))
    return layers
