"""Reads safetensors bytes that anyone may have made: nothing is believed, little is allocated.

The safetensors library takes headers of up to 100 MB and tells neither duplicate keys nor the
metadata; this reader takes what it takes (a test compares them), within limits of our own.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from hotwired.errors import VectorFormatInvalid, shown

MAX_HEADER = 1 << 20
"""The bytes of JSON that a header may have."""

MAX_TENSORS = 4096
MAX_METADATA = 16 << 10
"""The bytes of UTF-8 that all metadata keys and values may have together."""

DTYPE_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the file: its name, its safetensors dtype, its shape, and its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def bad_format(message: str, **metadata: str) -> VectorFormatInvalid:
    """Returns a VectorFormatInvalid that blames the file."""
    return VectorFormatInvalid(message, metadata=metadata, violations=(("chunk", message),))


def read(
    data: bytes | bytearray, max_header: int = MAX_HEADER
) -> tuple[list[Tensor], dict[str, str]]:
    """Returns the tensors, in the order of their names, and the metadata of a safetensors file.

    The tensors' data are views of `data`. Raises VectorFormatInvalid.
    """
    header, body = _split(data, max_header)
    fields = _json(header)
    metadata = _metadata(fields.pop("__metadata__", {}))
    if len(fields) > MAX_TENSORS:
        raise bad_format(f"the file has {len(fields)} tensors; the limit is {MAX_TENSORS}")
    spans = {name: _span(name, entry) for name, entry in fields.items()}
    _check_coverage(spans, len(body))
    return [_tensor(name, fields[name], body, spans[name]) for name in sorted(fields)], metadata


def _split(data: bytes | bytearray, max_header: int) -> tuple[bytes, memoryview]:
    if len(data) < 8:
        raise bad_format(f"the file has {len(data)} bytes; a header alone has more")
    (size,) = struct.unpack_from("<Q", data)
    if size > max_header:
        raise bad_format(f"the header claims {size} bytes; the limit is {max_header}")
    if size > len(data) - 8:
        raise bad_format(f"the header claims {size} bytes; {len(data) - 8} follow")
    return bytes(data[8 : 8 + size]), memoryview(data)[8 + size :]


def _json(header: bytes) -> dict[str, Any]:
    if not header.startswith(b"{"):
        raise bad_format("the header is not a JSON object")
    try:
        parsed: dict[str, Any] = json.loads(
            header.decode(), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except RecursionError:
        raise bad_format("the header's JSON is nested too deep") from None
    except ValueError as exc:
        raise bad_format(f"the header is not JSON: {shown(str(exc))}") from None
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    # A lone surrogate is JSON but no UTF-8, and nothing of ours could store it.
    "".join(found).encode()
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _metadata(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
        raise bad_format("__metadata__ is not an object of strings")
    try:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in raw.items())
    except UnicodeEncodeError:
        raise bad_format("__metadata__ holds text that is not Unicode") from None
    if size > MAX_METADATA:
        raise bad_format(f"the metadata has {size} bytes; the limit is {MAX_METADATA}")
    return dict(raw)


def _span(name: str, entry: Any) -> tuple[int, int]:
    if not isinstance(entry, Mapping) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise bad_format(f"tensor {shown(name)} is not described by dtype, shape, data_offsets")
    item = DTYPE_SIZES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if item is None:
        allowed = ", ".join(DTYPE_SIZES)
        raise bad_format(
            f"tensor {shown(name)} has dtype {shown(str(entry['dtype']))}; allowed: {allowed}"
        )
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise bad_format(f"tensor {shown(name)} has a malformed shape or malformed offsets")
    if not 1 <= len(shape) <= 2 or 0 in shape:
        raise bad_format(f"tensor {shown(name)} has shape {shown(str(shape))}; wanted [H] or [L,H]")
    if offsets[1] - offsets[0] != prod(shape) * item:
        raise bad_format(f"tensor {shown(name)} has offsets that don't match its shape")
    return offsets[0], offsets[1]


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
        for value in values
    )


def _check_coverage(spans: Mapping[str, tuple[int, int]], size: int) -> None:
    end = 0
    for name, (start, stop) in sorted(spans.items(), key=lambda item: item[1]):
        if start != end:
            raise bad_format(f"tensor {shown(name)} leaves a hole in the data or overlaps another")
        end = stop
    if end != size:
        raise bad_format(f"the tensors have {end} bytes; {size} follow the header")


def _tensor(name: str, entry: Any, body: memoryview, span: tuple[int, int]) -> Tensor:
    return Tensor(name, entry["dtype"], tuple(entry["shape"]), body[span[0] : span[1]])
