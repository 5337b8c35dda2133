"""Says which block each row of a vector is for, and never guesses it.

A matrix of n rows may begin with the output of block 0, or with the embedding, as transformers'
tuple of hidden states does: then it has one row more than the model has blocks. Which it is, a
file, its format, the user or the model's depth says; if none does, the vector is refused.
"""

from dataclasses import dataclass

import numpy as np

from hotwirectl.formats.raw import RawVector, Rows, refused
from hotwirectl.formats.told import Depth, Told
from hotwirectl.layer_bases import HIDDEN_STATES, OUTPUT
from hotwired.vector_file import MAX_LAYER, VectorData

_HOW = "say --layer-base output or --layer-base hidden-states"


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector whose rows' blocks are known.

    name: the file's stem. format: that of the file. data: its rows by block, and its metadata.
    assumed: in sentences, what was taken for granted.
    """

    name: str
    format: str
    data: VectorData
    assumed: tuple[str, ...] = ()


def settled(raw: RawVector, told: Told) -> Vector:
    """Returns a vector with the block of each row.

    Raises CommandFailedError: LAYER_BASE_UNKNOWN, LAYER_BASE_CONTRADICTED, NUM_LAYERS_UNKNOWN,
    VECTOR_SHAPE_MISMATCH or VECTOR_NOT_FINITE.
    """
    _check_finite(raw)
    if raw.numbers == ():
        assumed = (*raw.assumed, *_any(raw))
        return Vector(raw.name, raw.format, _data(raw, (), raw.rows), assumed)
    if raw.firm and told.base not in (None, raw.base):
        why = f"the file says that its rows are the outputs of blocks, not {told.base}"
        raise refused(raw.name, "LAYER_BASE_CONTRADICTED", why)
    base, assumed = _base(raw, told)
    if base == HIDDEN_STATES:
        layers, rows, more = _shifted(raw, told)
    else:
        layers, rows, more = _numbers(raw), raw.rows, ()
        _check_depth(raw, layers, told)
    return Vector(raw.name, raw.format, _data(raw, layers, rows), (*assumed, *more))


def _numbers(raw: RawVector) -> tuple[int, ...]:
    return tuple(range(len(raw.rows))) if raw.numbers is None else raw.numbers


def _base(raw: RawVector, told: Told) -> tuple[str, tuple[str, ...]]:
    """Returns what a row's number means, and what was assumed for it."""
    if told.base is not None:
        # What the format alone suggested is not assumed where the user said it.
        kept = () if raw.base is not None else raw.assumed
        meaning = "the output of block i" if told.base == OUTPUT else "hidden state i"
        return told.base, (*kept, f"row i is {meaning}, as told")
    if raw.base is not None:
        return raw.base, raw.assumed
    return OUTPUT, (*raw.assumed, _by_count(raw, told))


def _by_count(raw: RawVector, told: Told) -> str:
    """Returns why a file's rows are the outputs of blocks: they are as many."""
    count, depth = len(raw.rows), told.depth
    if _numbers(raw) != tuple(range(count)):
        why = f"nothing says whether layer {_numbers(raw)[0]} is block {_numbers(raw)[0]}'s output "
        why += f"or hidden state {_numbers(raw)[0]}, which is that of the block before"
        raise refused(raw.name, "LAYER_BASE_UNKNOWN", why, hint=_HOW)
    if depth is None:
        why = (
            f"nothing says whether row 0 of {count} is the output of block 0 or the embedding: the "
            "model's number of layers is not known"
        )
        hint = f"say --num-layers N; or, if you know it, {_HOW}"
        raise refused(raw.name, "LAYER_BASE_UNKNOWN", why, hint=hint, rows=count)
    if count == depth.layers + 1:
        why = (
            f"it has {count} rows, one more than the model has layers ({depth.source}): row 0 is "
            "the embedding, or the vector is of another model"
        )
        hint = "if it is the embedding, say --layer-base hidden-states"
        raise refused(raw.name, "LAYER_BASE_UNKNOWN", why, hint=hint, rows=count)
    if count != depth.layers:
        raise _misfit(raw, f"it has {count} rows; the model has {depth.layers} layers", depth)
    return f"row i is the output of block i: there are {count} of each ({depth.source})"


def _shifted(raw: RawVector, told: Told) -> tuple[tuple[int, ...], Rows, tuple[str, ...]]:
    """Returns the blocks and rows of hidden states, without the embedding's."""
    depth = told.depth
    if depth is None:
        why = "hidden states need the model's number of layers, which nobody says"
        raise refused(raw.name, "NUM_LAYERS_UNKNOWN", why, hint="say --num-layers N")
    numbers = _numbers(raw)
    if raw.numbers is None and len(numbers) != depth.layers + 1:
        why = f"it has {len(numbers)} rows; the model has {depth.layers + 1} hidden states"
        raise _misfit(raw, why, depth)
    if numbers[-1] > depth.layers:
        why = f"it has hidden state {numbers[-1]}; the model's are 0 to {depth.layers}"
        raise _misfit(raw, why, depth)
    kept = [place for place, number in enumerate(numbers) if number > 0]
    if not kept:
        raise _misfit(raw, "it has no row but the embedding's", depth)
    said = ["row 0 is left out: it is the embedding"] if len(kept) < len(numbers) else []
    if numbers[-1] == depth.layers:
        said.append(
            f"row {depth.layers} is for block {depth.layers - 1}, though transformers takes its "
            "last hidden state behind the final norm"
        )
    layers = tuple(numbers[place] - 1 for place in kept)
    return layers, np.ascontiguousarray(raw.rows[kept]), tuple(said)


def _check_depth(raw: RawVector, layers: tuple[int, ...], told: Told) -> None:
    """Holds the layers against a depth that was stated; the daemon's own it checks itself."""
    if layers[-1] > MAX_LAYER:
        raise refused(raw.name, "VECTOR_SHAPE_MISMATCH", f"layer {layers[-1]} is over {MAX_LAYER}")
    if told.num_layers is None or layers[-1] < told.num_layers:
        return
    extra = len(layers) == told.num_layers + 1 and raw.numbers is None and told.base is None
    if extra:
        _by_count(raw, told)
    why = f"it has layer {layers[-1]}; the model has layers 0 to {told.num_layers - 1}"
    raise _misfit(raw, why, Depth(told.num_layers, ""))


def _misfit(raw: RawVector, why: str, depth: Depth) -> Exception:
    hint = "name the model's own with --num-layers" if depth.source.startswith("as the") else ""
    return refused(
        raw.name, "VECTOR_SHAPE_MISMATCH", why, hint=hint, rows=len(raw.rows), layers=depth.layers
    )


def _check_finite(raw: RawVector) -> None:
    finite = np.isfinite(raw.rows)
    if finite.all():
        return
    row, index = (int(i) for i in np.argwhere(~finite)[0])
    where = f"row {row if not raw.numbers else raw.numbers[row]}, index {index}"
    why = f"the value at {where} is NaN, infinite or too large for float32"
    raise refused(raw.name, "VECTOR_NOT_FINITE", why, where=where)


def _any(raw: RawVector) -> list[str]:
    return [] if raw.firm else ["its one row is for any layer: the file names none"]


def _data(raw: RawVector, layers: tuple[int, ...], rows: Rows) -> VectorData:
    return VectorData(layers, not layers, np.ascontiguousarray(rows), raw.dtype, raw.metadata)
