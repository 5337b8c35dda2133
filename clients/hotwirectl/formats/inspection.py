"""What can be said of a vector at a look: pure functions to facts, JSON and text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotwirectl import text
from hotwirectl.formats.layer_base import Vector
from hotwirectl.formats.raw import RawVector
from hotwired.vector_file import canonical_bytes, revision_of


@dataclass(frozen=True, slots=True)
class Inspection:
    """The facts of a vector.

    revision: of its canonical bytes. layers: the block of each row; empty for any, None if not
    known. numbers: what the rows are called where the blocks are not known. norms: the L2 norm of
    each row. doses: that over the residual stream's norm, None where no norm is known. problem: why
    the blocks are not known.
    """

    name: str
    format: str
    revision: str | None
    layers: tuple[int, ...] | None
    numbers: tuple[int, ...]
    width: int
    dtype: str
    norms: tuple[float, ...]
    doses: tuple[float | None, ...]
    metadata: Mapping[str, str]
    assumed: tuple[str, ...]
    problem: str = ""

    def form(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {
            "name": self.name,
            "format": self.format,
            "revision": self.revision,
            "layers": None if self.layers is None else list(self.layers),
            "any_layer": self.layers == (),
            "hidden_size": self.width,
            "source_dtype": self.dtype,
            "norms": list(self.norms),
            "relative_dose": list(self.doses),
            "total_relative_dose": total(self.doses),
            "metadata": dict(self.metadata),
            "assumed": list(self.assumed),
            "problem": self.problem or None,
        }


def of_vector(vector: Vector, reference: Mapping[int, float]) -> Inspection:
    """Returns the facts of a vector; reference: the residual stream's norm by layer."""
    data = vector.data
    doses = tuple(
        dose(norm, reference.get(layer))
        for norm, layer in zip(data.norms, data.layers or (-1,), strict=True)
    )
    return Inspection(
        name=vector.name,
        format=vector.format,
        revision=revision_of(canonical_bytes(data)),
        layers=data.layers,
        numbers=data.layers,
        width=data.hidden_size,
        dtype=data.source_dtype,
        norms=data.norms,
        doses=doses,
        metadata=data.metadata,
        assumed=vector.assumed,
    )


def of_raw(raw: RawVector, problem: str) -> Inspection:
    """Returns the facts of a vector whose rows' blocks are not known."""
    norms = tuple(float(norm) for norm in np.linalg.norm(raw.rows.astype(np.float64), axis=1))
    return Inspection(
        name=raw.name,
        format=raw.format,
        revision=None,
        layers=None,
        numbers=raw.numbers or tuple(range(len(raw.rows))),
        width=int(raw.rows.shape[1]),
        dtype=raw.dtype,
        norms=norms,
        doses=(None,) * len(norms),
        metadata=raw.metadata,
        assumed=raw.assumed,
        problem=problem,
    )


def dose(norm: float, reference: float | None) -> float | None:
    """Returns the relative dose at scale 1, None without a usable norm of the stream."""
    return norm / reference if reference is not None and reference > 0 else None


def total(doses: Sequence[float | None]) -> float | None:
    """Returns the dose over all layers, None unless that of each is known."""
    known = [each for each in doses if each is not None]
    return sum(known) if len(known) == len(doses) else None


def shown(i: Inspection) -> str:
    """The facts, then a line for each row."""
    head = text.fields(
        [
            ("name", i.name),
            ("format", i.format),
            ("revision", i.revision or "none yet: its layers are not known"),
            ("layers", _layers(i)),
            ("width", str(i.width)),
            ("dtype", i.dtype),
            ("norms", f"{text.sparkline(i.norms)}  {_range(i.norms)}"),
            ("dose at scale 1", _doses(i)),
            *((f"metadata.{text.escaped(k)}", i.metadata[k]) for k in sorted(i.metadata)),
        ]
    )
    names = [str(number) for number in i.numbers] or ["any"]
    rows = (
        (name, text.number(norm), _number(each))
        for name, norm, each in zip(names, i.norms, i.doses, strict=True)
    )
    title = "ROW" if i.layers is None else "LAYER"
    return f"{head}\n\n{text.columns((title, 'NORM', 'DOSE'), rows)}"


def listed(found: Sequence[Inspection]) -> str:
    """A line for each of several vectors."""
    titles = ("NAME", "LAYERS", "WIDTH", "DTYPE", "NORMS", "RANGE")
    rows = (
        (i.name, _short(i), str(i.width), i.dtype, text.sparkline(i.norms), _range(i.norms))
        for i in found
    )
    return text.columns(titles, rows)


def _layers(i: Inspection) -> str:
    return f"not known: {i.problem}" if i.layers is None else _short(i)


def _short(i: Inspection) -> str:
    if i.layers is None:
        return f"? ({len(i.norms)} rows)"
    return text.layers(i.layers) or "any"


def _range(norms: Sequence[float]) -> str:
    low, high = text.number(min(norms)), text.number(max(norms))
    zeros = sum(norm == 0 for norm in norms)
    return f"{low} to {high}" + (f", {zeros} rows of zeros" if zeros else "")


def _doses(i: Inspection) -> str:
    known = [each for each in i.doses if each is not None]
    if not known:
        return "not known: no reference norms"
    whole = total(i.doses)
    most = "" if whole is None else f", {text.number(whole)} over all layers"
    return f"{text.number(min(known))} to {text.number(max(known))} at a layer{most}"


def _number(value: float | None) -> str:
    return "-" if value is None else text.number(value)
