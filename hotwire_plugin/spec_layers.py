"""The keys "layer" and "scale" of a specification's entry. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hotwire_plugin.program import MAX_LAYER
from hotwire_plugin.spec_error import (
    LAYER_INVALID,
    SCALE_NOT_FINITE,
    SPEC_INVALID,
    SpecError,
    kind,
    shown,
)

Layers: TypeAlias = "tuple[int, ...] | None"
Scale: TypeAlias = "float | tuple[float, ...]"

_LAYER_RANGE = re.compile(r"\s*([0-9]{1,4})\s*(?:-\s*([0-9]{1,4})\s*)?", re.ASCII)
_LAYER_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)


def layers_and_scale(item: Mapping[str, object], key: str, default: float) -> tuple[Layers, Scale]:
    """Returns the layers, ascending, and the scale for all of them or one for each of them.

    key: what the scale is called here. A list goes with the layers in the order they are given,
    or with all that the vector has; an object names its layers itself.
    """
    named = _layers(item["layer"]) if "layer" in item else None
    value = item.get(key, default)
    if isinstance(value, Mapping):
        return _scale_map(value, named, key)
    if isinstance(value, list | tuple):
        return _scale_list(value, named, key)
    return (None if named is None else tuple(sorted(named))), _scale(value, key)


def number(value: object, key: str) -> float:
    """Returns a finite number. Raises SpecError."""
    return _scale(value, key)


def _scale_map(
    value: Mapping[object, object], named: Sequence[int] | None, key: str
) -> tuple[Layers, Scale]:
    scales = {_layer_key(layer): _scale(each, key) for layer, each in value.items()}
    if not scales or len(scales) != len(value):
        raise SpecError(LAYER_INVALID, f"{key} names no layer, or one twice")
    if named is not None and set(named) != set(scales):
        raise SpecError(LAYER_INVALID, f"{key} and layer name different layers")
    layers = tuple(sorted(scales))
    return layers, tuple(scales[layer] for layer in layers)


def _layer_key(text: object) -> int:
    if isinstance(text, str) and _LAYER_NUMBER.fullmatch(text):
        return _layer(int(text))
    return _layer(text)


def _scale_list(
    value: Sequence[object], named: Sequence[int] | None, key: str
) -> tuple[Layers, Scale]:
    if not value or len(value) > MAX_LAYER + 1:
        raise SpecError(SPEC_INVALID, f"{key} must have 1 to {MAX_LAYER + 1} numbers")
    scales = [_scale(each, key) for each in value]
    if named is None:
        return None, tuple(scales)
    if len(named) != len(scales):
        raise SpecError(SPEC_INVALID, f"{key} has {len(scales)} numbers for {len(named)} layers")
    pairs = sorted(zip(named, scales, strict=True))
    return tuple(layer for layer, _ in pairs), tuple(scale for _, scale in pairs)


def _scale(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(SPEC_INVALID, f"{key} must be a number, is {kind(value)}")
    try:
        scale = float(value)
    except OverflowError:
        scale = math.inf
    if not math.isfinite(scale):
        raise SpecError(SCALE_NOT_FINITE, f"{key} must be finite")
    return scale


def _layers(value: object) -> list[int]:
    """Returns distinct layers in the order given."""
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
    return layers


def _layer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(LAYER_INVALID, f"a layer must be an integer, is {kind(value)}")
    if not 0 <= value <= MAX_LAYER:
        raise SpecError(LAYER_INVALID, f"a layer must be in 0..{MAX_LAYER}")
    return int(value)


def _layers_of_text(text: str) -> list[int]:
    """Reads "10", "10-20" or "10,12-14"; both ends of a range count."""
    layers: list[int] = []
    for part in text.split(","):
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
