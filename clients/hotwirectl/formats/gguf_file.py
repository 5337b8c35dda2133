"""Reads .gguf control vectors, as repeng and llama.cpp write them.

The gguf package believes the lengths in a file, and one that lies makes it fill the memory; this
reader takes of the format what a control vector needs, and every length is held against what is
there. A test compares it with that package's writer.
"""

import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotwirectl.formats.raw import (
    MAX_BYTES,
    RawVector,
    Rows,
    damaged,
    float32,
    read_bytes,
    refused,
    too_large,
)
from hotwirectl.formats.raw import stacked as stack
from hotwirectl.layer_bases import OUTPUT

FORMAT = "gguf"
ARCHITECTURE = "controlvector"
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST = 4096
_MOST_TEXT, _MOST_KEPT = 64 << 10, 1000
# The types of fields, by number, as struct writes them.
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# ggml's types of values that are plain floats.
_DTYPES = {0: "<f4", 1: "<f2", 28: "<f8", 30: "<u2"}
_DTYPE_NAMES = {0: "F32", 1: "F16", 28: "F64", 30: "BF16"}
_BF16 = 30
_PREFIX = "direction."
_NUMBER = re.compile(r"0|[1-9][0-9]{0,3}")


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def read(path: Path) -> RawVector:
    """Returns the control vector of a file: a tensor `direction.N` for each layer but layer 0.

    Raises CommandFailedError, which names the tensor at fault.
    """
    data = read_bytes(path)
    try:
        fields, tensors, start = _parsed(_Cursor(data))
    except (ValueError, struct.error) as error:
        raise damaged(path, f"it is no whole GGUF file: {error}") from error
    architecture = fields.get("general.architecture")
    if architecture != ARCHITECTURE:
        why = f"its architecture is {str(architecture)[:40]!r}, not {ARCHITECTURE!r}: no vector"
        raise damaged(path, why)
    # Tensors may lie over each other: the file's own size says nothing of what they come to.
    if (size := 4 * sum(math.prod(each.shape) for each in tensors)) > MAX_BYTES:
        raise too_large(path, "its tensors come to", size)
    body = memoryview(data)[start:]
    rows = {_number(path, each): _row(path, each, body) for each in tensors}
    if len(rows) != len(tensors) or not rows:
        raise damaged(path, "it has no tensor `direction.N`, or one twice")
    numbers, matrix = stack(path, rows)
    dtype = ",".join(sorted({_DTYPE_NAMES[each.kind] for each in tensors}))
    assumed = ("direction.i is added after block i, as llama.cpp and repeng do",)
    metadata = _metadata(fields)
    return RawVector(
        name=path.stem,
        format=FORMAT,
        rows=matrix,
        numbers=numbers,
        dtype=dtype,
        base=OUTPUT,
        metadata=metadata,
        assumed=assumed,
    )


class _Cursor:
    """Takes values off bytes, and never more than there are."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def skip(self, count: int) -> None:
        if count > len(self.data) - self.at:
            raise ValueError("it is cut short, or claims to be longer than it is")
        self.at += count

    def text(self) -> str:
        size = self.take("Q")
        if size > _MOST_TEXT:
            raise ValueError(f"a text claims {size} bytes")
        start = self.at
        self.skip(size)
        return self.data[start : self.at].decode()

    def count(self, what: str) -> int:
        number: int = self.take("Q")
        if number > _MOST:
            raise ValueError(f"it claims {number} {what}; {_MOST} is the most")
        return number


def _parsed(cursor: _Cursor) -> tuple[dict[str, Any], list[_Tensor], int]:
    """Returns the fields, the tensors, and where the tensors' bytes begin."""
    if cursor.data[:4] != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    cursor.at = 4
    if (version := cursor.take("I")) not in _VERSIONS:
        raise ValueError(f"its version is {version}; 2 and 3 are known")
    tensor_count, field_count = cursor.count("tensors"), cursor.count("fields")
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        key = cursor.text()
        if key in fields:
            raise ValueError("it has a field twice")
        fields[key] = _value(cursor, cursor.take("I"))
    tensors = [_tensor(cursor) for _ in range(tensor_count)]
    alignment = fields.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= _MOST_TEXT:
        raise ValueError("its alignment is no number of bytes")
    return fields, tensors, cursor.at + -cursor.at % alignment


def _value(cursor: _Cursor, kind: int) -> Any:
    """Returns a scalar or a text; None for an array, which is passed over."""
    if kind == _STRING:
        return cursor.text()
    if kind != _ARRAY:
        return cursor.take(_code(kind))
    item, count = cursor.take("I"), cursor.take("Q")
    if item == _STRING:
        for _ in range(min(count, len(cursor.data))):
            cursor.text()
    else:
        cursor.skip(count * struct.calcsize(_code(item)))
    return None


def _code(kind: int) -> str:
    if kind not in _SCALARS:
        raise ValueError(f"a field is of type {kind}, which is not known here")
    return _SCALARS[kind]


def _tensor(cursor: _Cursor) -> _Tensor:
    name = cursor.text()
    if (dimensions := cursor.take("I")) > 4:
        raise ValueError(f"a tensor claims {dimensions} dimensions")
    shape = tuple(cursor.take("Q") for _ in range(dimensions))
    return _Tensor(name, shape, cursor.take("I"), cursor.take("Q"))


def _number(path: Path, tensor: _Tensor) -> int:
    number = tensor.name.removeprefix(_PREFIX)
    if not tensor.name.startswith(_PREFIX) or not _NUMBER.fullmatch(number):
        raise damaged(path, f"tensor {tensor.name[:40]!r} is not named `direction.N`")
    if number == "0":
        why = "tensor 'direction.0' has no place: llama.cpp's layers begin with 1"
        raise refused(path, "LAYER_BASE_UNKNOWN", why, hint="write the file anew without it")
    return int(number)


def _row(path: Path, tensor: _Tensor, body: memoryview) -> Rows:
    name = tensor.name[:40]
    if tensor.kind not in _DTYPES:
        raise damaged(path, f"tensor {name!r} is quantised, or of a type that is no float")
    if len(tensor.shape) != 1 or not tensor.shape[0]:
        raise damaged(path, f"tensor {name!r} has shape {list(tensor.shape)}; wanted one row")
    dtype = np.dtype(_DTYPES[tensor.kind])
    size = tensor.shape[0] * dtype.itemsize
    if tensor.offset + size > len(body):
        raise damaged(path, f"tensor {name!r} reaches past the end of the file")
    raw = np.frombuffer(body[tensor.offset : tensor.offset + size], dtype)
    if tensor.kind == _BF16:
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return float32(raw)


def _metadata(fields: dict[str, Any]) -> dict[str, str]:
    """Returns the texts about the vector; the hint names a kind of model, and no model."""
    wanted = {
        "model_hint": f"{ARCHITECTURE}.model_hint",
        "description": "general.description",
        "source": "general.name",
    }
    found = {key: fields.get(at) for key, at in wanted.items()}
    return {key: text[:_MOST_KEPT] for key, text in found.items() if isinstance(text, str)}
