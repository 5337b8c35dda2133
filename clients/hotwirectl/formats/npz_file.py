"""Reads .npz files: NumPy's archives of arrays, never their pickles."""

import io
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from hotwirectl.formats import zip_file
from hotwirectl.formats.names import layer_number, listed
from hotwirectl.formats.raw import RawVector, Rows, damaged, float32, read_bytes, refused, stacked
from hotwirectl.layer_bases import OUTPUT

FORMAT = "npz"
_SUFFIX = ".npy"
_LAYERS, _MODEL = "layers", "model"
_BROKEN = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, NotImplementedError)


def read(path: Path) -> RawVector:
    """Returns the vector of a file in one of these forms.

    One array [rows, width] or [width] of floats; or an array [width] for each layer, with its
    number in its name. An array of integers `layers` numbers the rows, a text `model` is kept.
    Raises CommandFailedError.
    """
    data = read_bytes(path)
    with zip_file.opened(path, data) as archive:
        arrays = {
            member.filename.removesuffix(_SUFFIX): _array(path, archive, member)
            for member in archive.infolist()
        }
    metadata = _taken_model(arrays)
    layers = _taken_layers(path, arrays)
    numbers, rows = _rows(path, arrays, layers)
    dtype = ",".join(sorted({str(array.dtype) for array in arrays.values()}))
    # Only numbers that are called layers are said to be such.
    named = bool(numbers) and layers is None and all("layer" in name for name in arrays)
    base = OUTPUT if named else None
    assumed = (f"array {next(iter(arrays))!r} is the vector",) if len(arrays) == 1 else ()
    if named:
        assumed = ("layer i of the arrays' names is the output of block i",)
    return RawVector(
        name=path.stem,
        format=FORMAT,
        rows=rows,
        numbers=numbers,
        dtype=dtype,
        base=base,
        metadata=metadata,
        assumed=assumed,
    )


def _array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """Returns one array, of which no byte is taken that its header does not account for."""
    if not member.filename.endswith(_SUFFIX):
        raise damaged(path, f"its member {member.filename[:40]!r} is no array")
    try:
        raw = archive.read(member)
    except (*_BROKEN, RuntimeError) as error:
        raise damaged(path, f"its member {member.filename[:40]!r} is damaged: {error}") from error
    try:
        stream = io.BytesIO(raw)
        shape, fortran, dtype = _header(stream)
    except (*_BROKEN, TypeError, SyntaxError) as error:
        raise damaged(path, f"{member.filename[:40]!r} has no array's header: {error}") from error
    if dtype.hasobject:
        why = f"array {member.filename.removesuffix(_SUFFIX)[:40]!r} holds pickled objects"
        hint = "a pickle can run code when it is read; save arrays of floats"
        raise refused(path, "PICKLE_REFUSED", why, hint=hint)
    if prod(shape) * dtype.itemsize != len(raw) - stream.tell():
        raise damaged(path, f"{member.filename[:40]!r} has not the size that its header claims")
    flat = np.frombuffer(raw, dtype, offset=stream.tell()) if prod(shape) else np.zeros(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(stream)  # type: ignore[no-untyped-call]
    reader = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if reader is None:
        raise ValueError(f"version {version} is not known")
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = reader(stream)  # type: ignore[no-untyped-call]
    return found


def _taken_model(arrays: dict[str, Any]) -> dict[str, str]:
    model = arrays.get(_MODEL)
    if model is None or model.shape != () or model.dtype.kind != "U":
        return {}
    return {_MODEL: str(arrays.pop(_MODEL))}


def _taken_layers(path: Path, arrays: dict[str, Any]) -> tuple[int, ...] | None:
    layers = arrays.get(_LAYERS)
    if layers is None or layers.dtype.kind not in "iu":
        return None
    del arrays[_LAYERS]
    numbers = tuple(int(number) for number in layers.reshape(-1))
    if len(set(numbers)) != len(numbers) or any(number < 0 for number in numbers):
        raise refused(path, "VECTOR_SHAPE_MISMATCH", "its 'layers' name one twice, or below 0")
    return numbers


def _rows(
    path: Path, arrays: dict[str, Any], layers: tuple[int, ...] | None
) -> tuple[tuple[int, ...] | None, Rows]:
    for name, array in arrays.items():
        if array.dtype.kind != "f" or array.ndim not in (1, 2) or array.size == 0:
            why = f"array {name[:40]!r} is {array.dtype} {list(array.shape)}, and no rows of floats"
            raise damaged(path, why)
    if len(arrays) == 1:
        (array,) = arrays.values()
        (name,) = arrays
        return _single(path, array, layers, layer_number(name))
    numbered = {name: layer_number(name) for name in arrays}
    if layers is None and arrays and None not in numbered.values():
        if any(array.ndim != 1 for array in arrays.values()):
            raise damaged(path, "an array of one layer is a matrix")
        if len(set(numbered.values())) != len(arrays):
            raise damaged(path, "it has a layer twice")
        return stacked(path, {numbered[n]: float32(a) for n, a in arrays.items()})  # type: ignore[misc]
    why = f"it holds {len(arrays)} arrays, and nothing says which is the vector: {listed(arrays)}"
    raise refused(path, "VECTOR_AMBIGUOUS", why, hint="save the vector's array alone")


def _single(
    path: Path, array: Any, layers: tuple[int, ...] | None, number: int | None
) -> tuple[tuple[int, ...] | None, Rows]:
    rows = float32(np.atleast_2d(array))
    if layers is not None and len(layers) != len(rows):
        why = f"its array 'layers' numbers {len(layers)} of {len(rows)} rows"
        raise refused(path, "VECTOR_SHAPE_MISMATCH", why)
    if layers is not None:
        return stacked(path, dict(zip(layers, rows, strict=True)))
    if array.ndim == 2:
        return None, rows
    return ((number,) if number is not None else ()), rows
