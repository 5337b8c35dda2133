"""Holds two vectors against each other, layer by layer: pure functions to facts, JSON and text."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hotwirectl import text
from hotwirectl.formats.layer_base import Vector
from hotwirectl.formats.raw import refused
from hotwired.vector_file import canonical_bytes, revision_of


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """Two rows of one layer, None if both are for any.

    cosine: of the angle between them; None if one is zero. norm_ratio: the second's L2 norm over
    the first's; None if that is zero.
    """

    layer: int | None
    cosine: float | None
    norm_ratio: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two vectors' rows where both have one, the layers that only one has, and their revisions."""

    layers: tuple[LayerDifference, ...]
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]
    revision_a: str
    revision_b: str

    def form(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {
            "identical": self.revision_a == self.revision_b,
            "revision_a": self.revision_a,
            "revision_b": self.revision_b,
            "layers": [
                {"layer": each.layer, "cosine": each.cosine, "norm_ratio": each.norm_ratio}
                for each in self.layers
            ],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
        }


def compare(a: Vector, b: Vector) -> Comparison:
    """Returns how two vectors differ; a row for any layer is held against each of the other's.

    Raises CommandFailedError (VECTOR_SHAPE_MISMATCH) if they differ in width or share no layer.
    """
    if a.data.hidden_size != b.data.hidden_size:
        why = f"it is {a.data.hidden_size} wide, and {b.name} is {b.data.hidden_size}"
        raise refused(a.name, "VECTOR_SHAPE_MISMATCH", why)
    rows_a, rows_b = _rows(a), _rows(b)
    pairs = _pairs(a, b)
    if not pairs:
        raise refused(a.name, "VECTOR_SHAPE_MISMATCH", f"it has no layer that {b.name} has")
    return Comparison(
        layers=tuple(_difference(layer, rows_a, rows_b) for layer in pairs),
        only_a=tuple(n for n in a.data.layers if n not in pairs),
        only_b=tuple(n for n in b.data.layers if n not in pairs),
        revision_a=revision_of(canonical_bytes(a.data)),
        revision_b=revision_of(canonical_bytes(b.data)),
    )


def shown(found: Comparison) -> str:
    """A line for each layer, then what only one has."""
    rows = (
        ("any" if d.layer is None else str(d.layer), _number(d.cosine), _number(d.norm_ratio))
        for d in found.layers
    )
    parts = [text.columns(("LAYER", "COSINE", "NORM-RATIO"), rows)]
    if found.revision_a == found.revision_b:
        parts.append("the two are identical")
    if found.only_a:
        parts.append(f"only the first has layers {text.layers(found.only_a)}")
    if found.only_b:
        parts.append(f"only the second has layers {text.layers(found.only_b)}")
    return "\n\n".join(parts)


_Rows = dict[int | None, "np.ndarray[Any, np.dtype[np.float64]]"]


def _rows(vector: Vector) -> _Rows:
    layers: tuple[int | None, ...] = vector.data.layers or (None,)
    return dict(zip(layers, vector.data.rows.astype(np.float64), strict=True))


def _pairs(a: Vector, b: Vector) -> tuple[int | None, ...]:
    if a.data.any_layer:
        return b.data.layers or (None,)
    if b.data.any_layer:
        return a.data.layers
    return tuple(layer for layer in a.data.layers if layer in b.data.layers)


def _difference(layer: int | None, rows_a: _Rows, rows_b: _Rows) -> LayerDifference:
    a = rows_a.get(layer, rows_a.get(None))
    b = rows_b.get(layer, rows_b.get(None))
    assert a is not None  # noqa: S101 - both have the layer, or a row for any
    assert b is not None  # noqa: S101
    norm_a, norm_b = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    cosine = float(a @ b) / (norm_a * norm_b) if norm_a and norm_b else None
    return LayerDifference(layer, cosine, norm_b / norm_a if norm_a else None)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
