"""One entry of a specification: which vector, what is done with it, and where. Pure."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hotwire_plugin.positions import EVERYWHERE, Positions
from hotwire_plugin.program import MAX_STREAM, UNBOUNDED, to_fp32
from hotwire_plugin.shape import DEFAULT_SITE, SITES
from hotwire_plugin.spec_error import (
    OP_ARGUMENT_INVALID,
    OP_UNSUPPORTED,
    SITE_UNKNOWN,
    SPEC_INVALID,
    STREAM_INVALID,
    UNKNOWN_FIELD,
    SpecError,
    kind,
    shown,
)
from hotwire_plugin.spec_layers import Layers, Scale, layers_and_scale, number
from hotwire_plugin.spec_where import WHERE_KEYS, scope_and_positions

MAX_ID_CHARS = 256

_COMMON = ("id", "layer", "op", "site", "stream", "strict", *WHERE_KEYS)
_OWN_KEYS = {
    "add": ("scale",),
    "norm_add": ("scale", "cap"),
    "ablate": ("scale",),
    "scale_component": ("coefficient",),
    "clamp": ("scale", "min", "max"),
    "swap": ("scale", "to"),
}
_KEYS = tuple(dict.fromkeys((*_COMMON, *(key for own in _OWN_KEYS.values() for key in own))))


@dataclass(frozen=True, slots=True)
class SpecEntry:
    """One vector to apply.

    id: the vector's name. layers: ascending and distinct; None for all that the vector has.
    scale: finite in fp64; one for all layers, or one for each of them in ascending order.
    op: one of program.OPS ("scale_component" is an "ablate" of what it takes away).
    scope, positions: where in the request. site, stream: where in the model, stream None for all.
    bounds: of clamp. target: of swap, the other vector's name.
    """

    id: str
    layers: Layers
    scale: Scale
    op: str
    scope: str
    positions: Positions = EVERYWHERE
    site: str = DEFAULT_SITE
    stream: int | None = None
    bounds: tuple[float, float] = UNBOUNDED
    target: str = ""


def read_entry(item: object) -> SpecEntry:
    """Reads one decoded object. Raises SpecError."""
    if not isinstance(item, dict):
        raise SpecError(SPEC_INVALID, f"an entry must be an object, is {kind(item)}")
    op = _op(item.get("op", "add"))
    _check_keys(item, op)
    if not isinstance(item.get("strict", False), bool):
        raise SpecError(SPEC_INVALID, f"strict must be a boolean, is {kind(item['strict'])}")
    layers, scale = _strength(item, op)
    scope, positions = scope_and_positions(item)
    return SpecEntry(
        *(_name(item, "id"), layers, scale, "ablate" if op == "scale_component" else op),
        *(scope, positions, _site(item), _stream(item)),
        bounds=_bounds(item) if op == "clamp" else UNBOUNDED,
        target=_name(item, "to") if op == "swap" else "",
    )


def _op(value: object) -> str:
    if not isinstance(value, str):
        raise SpecError(SPEC_INVALID, f"op must be a string, is {kind(value)}")
    if value not in _OWN_KEYS:
        known = ", ".join(_OWN_KEYS)
        raise SpecError(OP_UNSUPPORTED, f"op {shown(value)} is not one of {known}")
    return value


def _check_keys(item: Mapping[str, object], op: str) -> None:
    for key in item:
        if key not in _KEYS:
            raise SpecError(UNKNOWN_FIELD, f"unknown key {shown(key)}{_near_key(key)}")
        if key not in _COMMON and key not in _OWN_KEYS[op]:
            raise SpecError(OP_ARGUMENT_INVALID, f"op {op!r} takes no {key!r}")


def _near_key(key: object) -> str:
    near = difflib.get_close_matches(key[:32], _KEYS, 1) if isinstance(key, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


def _name(item: Mapping[str, object], key: str) -> str:
    name = item.get(key)
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID_CHARS:
        raise SpecError(SPEC_INVALID, f"{key} must be a string of 1 to {MAX_ID_CHARS} characters")
    return name


def _strength(item: Mapping[str, object], op: str) -> tuple[Layers, Scale]:
    if op == "scale_component":
        if "coefficient" not in item:
            raise SpecError(OP_ARGUMENT_INVALID, "op 'scale_component' needs a coefficient")
        layers, kept = layers_and_scale(item, "coefficient", 1.0)
        return layers, _each(kept, lambda coefficient: 1.0 - coefficient)
    layers, scale = layers_and_scale(item, "scale", 1.0)
    if "cap" in item:
        cap = number(item["cap"], "cap")
        if cap < 0:
            raise SpecError(OP_ARGUMENT_INVALID, "cap must not be negative")
        scale = _each(scale, lambda each: math.copysign(min(abs(each), cap), each))
    return layers, scale


def _each(scale: Scale, change: Callable[[float], float]) -> Scale:
    return tuple(map(change, scale)) if isinstance(scale, tuple) else change(scale)


def _site(item: Mapping[str, object]) -> str:
    site = item.get("site", DEFAULT_SITE)
    if not isinstance(site, str) or site not in SITES:
        raise SpecError(SITE_UNKNOWN, f"site {shown(site)} is not one of {', '.join(SITES)}")
    return site


def _stream(item: Mapping[str, object]) -> int | None:
    stream = item.get("stream")
    if stream is None:
        return None
    if isinstance(stream, bool) or not isinstance(stream, int) or not 0 <= stream <= MAX_STREAM:
        raise SpecError(STREAM_INVALID, f"stream must be an integer from 0 to {MAX_STREAM}")
    return int(stream)


def _bounds(item: Mapping[str, object]) -> tuple[float, float]:
    if "min" not in item and "max" not in item:
        raise SpecError(OP_ARGUMENT_INVALID, "op 'clamp' needs min or max")
    low = _bound(item, "min", -math.inf)
    high = _bound(item, "max", math.inf)
    if low > high:
        raise SpecError(OP_ARGUMENT_INVALID, "min must not be greater than max")
    return low, high


def _bound(item: Mapping[str, object], key: str, default: float) -> float:
    if key not in item:
        return default
    try:
        return to_fp32(number(item[key], key)) + 0.0  # of the zeros, the positive one
    except OverflowError:
        raise SpecError(OP_ARGUMENT_INVALID, f"{key} overflows fp32") from None
