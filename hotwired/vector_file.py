"""A vector's bytes: from any upload to checked float32 rows, and to the canonical form.

The canonical form is one safetensors file for each content: its sha256 is the revision.
"""

import hashlib
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hotwired.errors import (
    DigestMismatch,
    VectorFormatInvalid,
    VectorNotFinite,
    VectorShapeMismatch,
    shown,
)
from hotwired.safetensors_file import MAX_HEADER, Tensor, bad_format, read

FORMAT = "hotwire.vector.v1"
ANY_LAYER = "*"
MAX_LAYER = 2047
"""No model has as many blocks, and a list of so many layers still fits into the metadata."""

Rows = npt.NDArray[np.float32]

_LAYER_NAME = re.compile(r"layers\.(0|[1-9][0-9]{0,8})")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_NUMPY_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# The least fp32 bits, without the sign, that round to infinity in bf16.
_BF16_OVERFLOW = 0x7F7F8000


@dataclass(frozen=True, slots=True)
class VectorData:
    """Checked rows of a vector.

    layers: the layer of each row, ascending; empty if any_layer. any_layer: there is one row, for
    any layer. rows: (len(layers) or 1, hidden_size) float32, C-contiguous, finite, writable.
    source_dtype: the safetensors dtype it came in. metadata: the file's.
    """

    layers: tuple[int, ...]
    any_layer: bool
    rows: Rows
    source_dtype: str
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def hidden_size(self) -> int:
        """The width of a row."""
        return int(self.rows.shape[1])

    @property
    def norms(self) -> tuple[float, ...]:
        """The L2 norm of each row, summed in float64."""
        squares = np.einsum("ij,ij->i", self.rows, self.rows, dtype=np.float64)
        return tuple(np.sqrt(squares).tolist())


def parse_upload(data: bytes | bytearray, *, max_header: int = MAX_HEADER) -> VectorData:
    """Returns the vector in a safetensors file of one of these forms.

    Tensors "layers.{i}" of shape [H]; or one tensor of any name: [L, H] (row i is for block i,
    unless the metadata's "layers" names them: "10,11,12"), or [H] (for any layer, unless "layers"
    names one). "layers": "*" says any layer. dtypes: F64, F32, F16, BF16.

    Raises VectorFormatInvalid, VectorNotFinite (also for an F64 too large for float32) or
    VectorShapeMismatch.
    """
    tensors, metadata = read(data, max_header)
    if not tensors:
        raise bad_format("the file holds no tensor")
    if any(_LAYER_NAME.fullmatch(tensor.name) for tensor in tensors):
        layers, blocks = _by_name(tensors, metadata)
    else:
        layers, blocks = _by_row(tensors, metadata)
    dtypes = sorted({tensor.dtype for tensor in tensors})
    rows, layers = _sorted_rows(blocks, layers)
    return VectorData(layers, not layers, rows, ",".join(dtypes), metadata)


def _by_name(
    tensors: Sequence[Tensor], metadata: dict[str, str]
) -> tuple[tuple[int, ...], list[Rows]]:
    layers = []
    for tensor in tensors:
        match = _LAYER_NAME.fullmatch(tensor.name)
        if match is None or len(tensor.shape) != 1:
            raise bad_format(
                f"tensor {shown(tensor.name)} of shape {list(tensor.shape)} is beside tensors "
                'named "layers.{i}" of shape [H]'
            )
        layers.append(_checked_layer(match[1]))
    widths = {tensor.shape[0] for tensor in tensors}
    if len(widths) != 1:
        raise _bad_shape(f"the layers have different widths: {shown(str(sorted(widths)))}")
    named = metadata.get("layers")
    if named is not None and sorted(_layer_list(named)) != sorted(layers):
        raise _bad_shape('the metadata\'s "layers" are not the layers of the tensors')
    labels = [f"layer {layer}" for layer in layers]
    blocks = [_floats(tensor, [label]) for tensor, label in zip(tensors, labels, strict=True)]
    return tuple(layers), blocks


def _by_row(
    tensors: Sequence[Tensor], metadata: dict[str, str]
) -> tuple[tuple[int, ...], list[Rows]]:
    if len(tensors) != 1:
        names = ", ".join(tensor.name for tensor in tensors[:4])
        raise bad_format(f"the file holds {len(tensors)} tensors: {shown(names)}; wanted one")
    (tensor,) = tensors
    layers = _row_layers(tensor, metadata.get("layers"))
    return layers, [_floats(tensor, [f"layer {layer}" for layer in layers] or ["the row"])]


def _row_layers(tensor: Tensor, named: str | None) -> tuple[int, ...]:
    count = tensor.shape[0] if len(tensor.shape) == 2 else 1
    if named is None:
        return () if len(tensor.shape) == 1 else tuple(_checked_layer(i) for i in range(count))
    if named == ANY_LAYER:
        if count != 1:
            raise _bad_shape(f"a vector for any layer has one row, not {count}")
        return ()
    layers = _layer_list(named)
    if len(layers) != count:
        raise _bad_shape(
            f'the metadata\'s "layers" names {len(layers)} layers for {count} rows',
            expected=str(count),
            actual=str(len(layers)),
        )
    return layers


def _layer_list(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        raise bad_format(f'the metadata\'s "layers" is {shown(text)}; wanted "10,11,12"')
    layers = tuple(_checked_layer(part) for part in parts)
    if len(set(layers)) != len(layers):
        raise _bad_shape('the metadata\'s "layers" names a layer twice')
    return layers


def _checked_layer(layer: str | int) -> int:
    if int(layer) > MAX_LAYER:
        raise _bad_shape(f"layer {layer} is over {MAX_LAYER}", layer=str(layer))
    return int(layer)


def _floats(tensor: Tensor, labels: list[str]) -> Rows:
    """Returns a tensor as (len(labels), H) float32, checked finite before and after the cast."""
    raw = np.frombuffer(tensor.data, _NUMPY_DTYPES[tensor.dtype]).reshape(len(labels), -1)
    if tensor.dtype == "BF16":
        raw = (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    _check_finite(np.isfinite(raw), labels, "NaN or infinite")
    with np.errstate(over="ignore"):
        rows = raw.astype(np.float32)
    _check_finite(np.isfinite(rows), labels, "too large for float32")
    return rows


def _check_finite(finite: npt.NDArray[np.bool_], labels: Sequence[str], problem: str) -> None:
    if finite.all():
        return
    row, index = (int(i) for i in np.argwhere(~finite)[0])
    message = f"the value at {labels[row]}, index {index} is {problem}"
    raise VectorNotFinite(
        message,
        metadata={"where": labels[row], "index": str(index)},
        violations=(("chunk", message),),
    )


def _sorted_rows(blocks: Sequence[Rows], layers: tuple[int, ...]) -> tuple[Rows, tuple[int, ...]]:
    rows = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    order = sorted(range(len(layers)), key=layers.__getitem__)
    if order != list(range(len(layers))):
        rows = rows[order]
    return np.ascontiguousarray(rows), tuple(sorted(layers))


def _bad_shape(message: str, **metadata: str) -> VectorShapeMismatch:
    return VectorShapeMismatch(message, metadata=metadata, violations=(("chunk", message),))


def canonical_bytes(v: VectorData) -> bytes:
    """Returns the one safetensors file of this content: one tensor "vector", F32, [L, H].

    Its metadata are {"format": "hotwire.vector.v1", "layers": "0,1,2" or "*"} and nothing else,
    so that the same rows give the same revision whatever they were called.
    """
    header = _canonical_header(v.layers, v.rows.shape)
    # Joined, not added: a vector can have hundreds of MiB.
    return b"".join((header, v.rows.astype("<f4", copy=False).data.cast("B")))


def _canonical_header(layers: Sequence[int], shape: tuple[int, ...]) -> bytes:
    header = {
        "__metadata__": {"format": FORMAT, "layers": ",".join(map(str, layers)) or ANY_LAYER},
        "vector": {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [0, shape[0] * shape[1] * 4],
        },
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def revision_of(canonical: bytes) -> str:
    """Returns the sha256 of canonical bytes, 64 lower-case hex digits."""
    return hashlib.sha256(canonical).hexdigest()


def check_revision(revision: str, canonical: bytes) -> None:
    """Raises DigestMismatch if these are not the bytes of the revision."""
    actual = revision_of(canonical)
    if actual != revision:
        message = f"the bytes have sha256 {actual}, not {shown(revision)}"
        raise DigestMismatch(message, metadata={"expected": revision, "actual": actual})


def parse_canonical(data: bytes) -> VectorData:
    """Returns the vector in canonical bytes. Raises as parse_upload, also if not canonical."""
    vector = parse_upload(data)
    header = _canonical_header(vector.layers, vector.rows.shape)
    if vector.source_dtype != "F32" or data[: len(header)] != header:
        raise VectorFormatInvalid(f"the bytes are not of the form {FORMAT}")
    return vector


def check_fits(v: VectorData, *, hidden_size: int, num_layers: int, dtype: str) -> None:
    """Checks that a model can use the vector.

    hidden_size: the width of its residual stream. num_layers: the number of its blocks. dtype:
    of the residual stream, "float16", "bfloat16" or "float32"; of another, no cast is checked.
    Raises VectorShapeMismatch, or VectorNotFinite if a value is infinite in that dtype.
    """
    check_shape(v.hidden_size, v.layers, hidden_size=hidden_size, num_layers=num_layers)
    labels = [f"layer {layer}" for layer in v.layers] or ["the row"]
    _check_finite(_finite_as(v.rows, dtype), labels, f"too large for {dtype}")


def check_shape(width: int, layers: Sequence[int], *, hidden_size: int, num_layers: int) -> None:
    """Raises VectorShapeMismatch if a vector of this width and these layers doesn't fit a model."""
    if width != hidden_size:
        raise _bad_shape(
            f"the vector is {width} wide; the model's hidden size is {hidden_size}",
            expected=str(hidden_size),
            actual=str(width),
        )
    if layers and layers[-1] >= num_layers:
        shifted = tuple(layers) == tuple(range(num_layers + 1))
        hint = "; leave out the row of the embeddings" if shifted else ""
        raise _bad_shape(
            f"the vector has layer {layers[-1]}; the model has layers 0 to {num_layers - 1}{hint}",
            expected=str(num_layers),
            actual=str(layers[-1]),
        )


def _finite_as(rows: Rows, dtype: str) -> npt.NDArray[np.bool_]:
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return np.isfinite(rows.astype(np.float16))
    if dtype == "bfloat16":
        return (rows.view(np.uint32) & np.uint32(0x7FFFFFFF)) < _BF16_OVERFLOW
    return np.isfinite(rows)
