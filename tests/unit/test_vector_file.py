"""Uploads: what is read, what is refused, and that the canonical form is one."""

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from hotwired.errors import (
    HotwireError,
    VectorFormatInvalid,
    VectorNotFinite,
    VectorShapeMismatch,
)
from hotwired.safetensors_file import MAX_METADATA, read
from hotwired.vector_file import (
    VectorData,
    canonical_bytes,
    check_fits,
    parse_canonical,
    parse_upload,
    revision_of,
)

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def save(tensors: Mapping[str, np.ndarray], **metadata: str) -> bytes:
    """Returns a safetensors file as the library writes it."""
    return safetensors.numpy.save(dict(tensors), metadata or None)


def raw(header: Any, data: bytes = b"") -> bytes:
    """Returns a file with any header, a string or something for JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    """Returns a tensor's description."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_tensors_named_by_layer() -> None:
    """Each layer's tensor is its row, in the order of the layers, whatever order they came in."""
    v = parse_upload(save({"layers.10": ROWS[0], "layers.2": ROWS[1]}, model="m"))
    assert (v.layers, v.any_layer, v.hidden_size) == ((2, 10), False, 4)
    np.testing.assert_array_equal(v.rows, ROWS[[1, 0]])
    assert v.metadata == {"model": "m"}


def test_one_matrix_is_layers_from_zero() -> None:
    """Row i is for block i."""
    v = parse_upload(save({"anything": ROWS}))
    assert v.layers == (0, 1, 2)
    np.testing.assert_array_equal(v.rows, ROWS)


def test_metadata_names_the_layers_of_a_matrix() -> None:
    """Rows follow their layers when those are sorted."""
    v = parse_upload(save({"v": ROWS}, layers="12, 10,11"))
    assert v.layers == (10, 11, 12)
    np.testing.assert_array_equal(v.rows, ROWS[[1, 2, 0]])


def test_one_row_is_for_any_layer_unless_named() -> None:
    """A vector of one dimension fits everywhere; metadata can pin it."""
    v = parse_upload(save({"v": ROWS[0]}))
    assert (v.layers, v.any_layer, v.rows.shape) == ((), True, (1, 4))
    assert parse_upload(save({"v": ROWS[0]}, layers="7")).layers == (7,)
    assert parse_upload(save({"v": ROWS[:1]}, layers="*")).any_layer


def bf16(values: np.ndarray) -> bytes:
    """Returns float32 values as bf16 bytes, truncated."""
    return (values.view(np.uint32) >> 16).astype("<u2").tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_dtypes_become_float32(dtype: type) -> None:
    """The rows are float32, contiguous and writable whatever came."""
    v = parse_upload(save({"v": ROWS.astype(dtype)}))
    assert v.rows.dtype == np.float32
    assert v.rows.flags.c_contiguous
    assert v.rows.flags.writeable
    np.testing.assert_array_equal(v.rows, ROWS)


def test_bf16_is_read() -> None:
    """The upper half of a float32 is what bf16 is."""
    v = parse_upload(raw({"v": entry("BF16", [3, 4], [0, 24])}, bf16(ROWS)))
    np.testing.assert_array_equal(v.rows, ROWS)
    assert v.source_dtype == "BF16"


def test_norms_are_of_float32_rows_in_float64() -> None:
    """The square of a large float32 does not overflow."""
    v = parse_upload(save({"v": np.full((1, 4), 1e38, np.float32)}))
    assert v.norms == pytest.approx((2e38,))


FORMAT_FAULTS = {
    "empty": b"",
    "shorter than a length": b"1234567",
    "length beyond the file": struct.pack("<Q", 100) + b"{}",
    "length of 2**64-1": b"\xff" * 8 + b"{}",
    "header over the cap": struct.pack("<Q", (1 << 20) + 1) + b"{" + b" " * (1 << 20) + b"}",
    "no JSON": raw(b"{nonsense}"),
    "not UTF-8": raw(b'{"\xff": 1}'),
    "a list": raw([]),
    "no tensor": raw({}),
    "only metadata": raw({"__metadata__": {"a": "b"}}),
    "metadata not strings": raw({"__metadata__": {"a": 1}, "v": entry()}, b"0" * 8),
    "metadata a list": raw({"__metadata__": [], "v": entry()}, b"0" * 8),
    "metadata too long": raw(
        {"__metadata__": {"a": "x" * (MAX_METADATA + 1)}, "v": entry()}, b"0" * 8
    ),
    "a lone surrogate": raw(b'{"__metadata__":{"a":"\\ud800"},"v":{}}'),
    "a lone surrogate as a name": raw(b'{"\\ud800":{}}'),
    "a duplicate key": raw(
        b'{"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        b'"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        b"0" * 8,
    ),
    "NaN in JSON": raw(b'{"v":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}', b"0" * 8),
    "nested 10,000 deep": raw(b'{"v":' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
    "a huge number": raw(b'{"v":' + b"9" * 10_000 + b"}"),
    "an entry that is a list": raw({"v": []}),
    "an extra key": raw({"v": {**entry(), "extra": 1}}, b"0" * 8),
    "int dtype": raw({"v": entry("I32")}, b"0" * 8),
    "fp8 dtype": raw({"v": entry("F8_E4M3", [8])}, b"0" * 8),
    "dtype no string": raw({"v": {"dtype": 3, "shape": [2], "data_offsets": [0, 8]}}, b"0" * 8),
    "rank 0": raw({"v": entry(shape=[], offsets=[0, 4])}, b"0" * 4),
    "rank 3": raw({"v": entry(shape=[1, 1, 2])}, b"0" * 8),
    "zero size": raw({"v": entry(shape=[0], offsets=[0, 0])}),
    "negative size": raw({"v": entry(shape=[-2])}, b"0" * 8),
    "bool size": raw({"v": entry(shape=[True], offsets=[0, 4])}, b"0" * 4),
    "size product over 2**64": raw({"v": entry(shape=[2**40, 2**40])}, b"0" * 8),
    "offsets beyond the data": raw({"v": entry(shape=[4], offsets=[0, 16])}, b"0" * 8),
    "offsets backwards": raw({"v": entry(offsets=[8, 0])}, b"0" * 8),
    "three offsets": raw({"v": entry(offsets=[0, 4, 8])}, b"0" * 8),
    "offsets that don't match": raw({"v": entry(offsets=[0, 4])}, b"0" * 4),
    "a hole": raw({"v": entry(offsets=[4, 12])}, b"0" * 12),
    "bytes left over": raw({"v": entry()}, b"0" * 9),
    "an overlap": raw({"layers.0": entry(), "layers.1": entry()}, b"0" * 8),
    "two matrices": save({"a": ROWS, "b": ROWS}),
    "a stranger among layers": save({"layers.0": ROWS[0], "other": ROWS[0]}),
    "a matrix among layers": save({"layers.0": ROWS}),
    "layers no numbers": save({"v": ROWS}, layers="1,two,3"),
    "layers in Arabic digits": save({"v": ROWS[0]}, layers="\u0663"),
    "layers empty": save({"v": ROWS}, layers=""),
    "too many tensors": raw(
        {f"layers.{i}": entry(shape=[1], offsets=[4 * i, 4 * i + 4]) for i in range(5000)},
        b"0" * 20_000,
    ),
}


@pytest.mark.parametrize("case", FORMAT_FAULTS)
def test_malformed_files_are_refused(case: str) -> None:
    """Each gets VECTOR_FORMAT_INVALID that blames the file, and nothing else."""
    with pytest.raises(VectorFormatInvalid) as caught:
        parse_upload(FORMAT_FAULTS[case])
    assert caught.value.violations[0][0] == "chunk"
    assert len(caught.value.message) < 400


SHAPE_FAULTS = {
    "different widths": save({"layers.0": ROWS[0], "layers.1": ROWS[0, :3]}),
    "too few layers named": save({"v": ROWS}, layers="1,2"),
    "a layer named twice": save({"v": ROWS}, layers="1,2,1"),
    "names and metadata differ": save({"layers.0": ROWS[0]}, layers="1"),
    "any layer for three rows": save({"v": ROWS}, layers="*"),
    "a layer no model has": save({"layers.99999999": ROWS[0]}),
    "more rows than any model has layers": save({"v": np.zeros((3000, 1), np.float32)}),
}


@pytest.mark.parametrize("case", SHAPE_FAULTS)
def test_contradicting_shapes_are_refused(case: str) -> None:
    """Each gets VECTOR_SHAPE_MISMATCH."""
    with pytest.raises(VectorShapeMismatch):
        parse_upload(SHAPE_FAULTS[case])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_not_finite_is_named_by_layer_and_index(bad: float, dtype: type) -> None:
    """The message says where, so that one can look."""
    rows = ROWS.astype(dtype)
    rows[1, 2] = bad
    with pytest.raises(VectorNotFinite, match="layer 1, index 2"):
        parse_upload(save({"v": rows}))


def test_bf16_not_finite_is_refused() -> None:
    """A bf16 NaN is one too."""
    rows = ROWS.copy()
    rows[2, 0] = np.nan
    with pytest.raises(VectorNotFinite, match="layer 2, index 0"):
        parse_upload(raw({"v": entry("BF16", [3, 4], [0, 24])}, bf16(rows)))


def test_float64_too_large_for_float32_is_refused() -> None:
    """It would become infinite by our own cast."""
    rows = ROWS.astype(np.float64)
    rows[0, 3] = 1e39
    with pytest.raises(VectorNotFinite, match="layer 0, index 3 is too large for float32"):
        parse_upload(save({"v": rows}))


def test_a_file_cut_anywhere_is_refused() -> None:
    """A half-written file, cut at every twentieth, is never taken for a whole one."""
    whole = save({"layers.3": ROWS[0], "layers.4": ROWS[1]}, model="m")
    for twentieth in range(20):
        with pytest.raises(VectorFormatInvalid):
            parse_upload(whole[: len(whole) * twentieth // 20])
    parse_upload(whole)


def vectors() -> st.SearchStrategy[VectorData]:
    """Any vector."""

    def build(layers: set[int], width: int, seed: int) -> VectorData:
        rows = np.random.default_rng(seed).normal(size=(max(1, len(layers)), width))
        return VectorData(tuple(sorted(layers)), not layers, rows.astype(np.float32), "F32")

    return st.builds(
        build, st.sets(st.integers(0, 2047), max_size=5), st.integers(1, 9), st.integers(0, 99)
    )


@given(vectors())
def test_canonical_bytes_round_trip(vector: VectorData) -> None:
    """What is written is read back to the bit, is canonical again, and the library reads it."""
    data = canonical_bytes(vector)
    back = parse_canonical(data)
    assert (back.layers, back.any_layer) == (vector.layers, vector.any_layer)
    np.testing.assert_array_equal(back.rows, vector.rows)
    assert canonical_bytes(back) == data
    assert canonical_bytes(parse_upload(data)) == data
    np.testing.assert_array_equal(safetensors.numpy.load(data)["vector"], vector.rows)


def test_the_revision_is_of_the_content_alone() -> None:
    """Name, other metadata, dtype and form of the file make no difference; rows and layers do."""
    same = [
        save({"v": ROWS}),
        save({"other": ROWS.astype(np.float16)}, model="m", note="n"),
        save({f"layers.{i}": row for i, row in enumerate(ROWS)}),
    ]
    revisions = {revision_of(canonical_bytes(parse_upload(data))) for data in same}
    assert len(revisions) == 1
    for other in (save({"v": ROWS}, layers="1,2,3"), save({"v": ROWS + 1})):
        assert revision_of(canonical_bytes(parse_upload(other))) not in revisions


def test_canonical_must_be_canonical() -> None:
    """A file of the same content in another form is no canonical one."""
    for data in (save({"v": ROWS}), save({"vector": ROWS}, format="hotwire.vector.v1")):
        with pytest.raises(VectorFormatInvalid):
            parse_canonical(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_vector_or_a_refusal(data: bytes) -> None:
    """Nothing but our own errors comes out."""
    _parse(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["__metadata__", "layers.0", "v", "dtype", "shape", "data_offsets", "layers"]
                ),
                inner | st.just("F32") | st.just([1]) | st.just([0, 4]),
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    st.binary(max_size=16),
)
def test_any_header_is_a_vector_or_a_refusal(header: object, data: bytes) -> None:
    """Nothing but our own errors comes out, whatever JSON the header is."""
    _parse(raw(header, data))


@given(st.data())
def test_a_flipped_byte_is_a_vector_or_a_refusal(data: st.DataObject) -> None:
    """A file damaged in transit never crashes the reader."""
    file = bytearray(save({"layers.1": ROWS[0], "layers.2": ROWS[1]}, layers="1,2"))
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    _parse(bytes(file))


def _parse(data: bytes) -> None:
    """Parses; what is accepted must be accepted by the library, with the same bytes."""
    try:
        vector = parse_upload(data)
    except HotwireError:
        return
    assert np.isfinite(vector.rows).all()
    theirs = {name: bytes(tensor["data"]) for name, tensor in safetensors.deserialize(data)}
    assert {tensor.name: bytes(tensor.data) for tensor in read(data)[0]} == theirs


def fitting(value: float, layers: tuple[int, ...] = (0,)) -> VectorData:
    """Returns a vector four wide."""
    return VectorData(layers, not layers, np.full((max(1, len(layers)), 4), value, "f4"), "F32")


def test_a_vector_must_fit_the_model() -> None:
    """Width and layers are checked; an any-layer vector has no layer to check."""
    check_fits(fitting(1.0, (0, 3)), hidden_size=4, num_layers=4, dtype="bfloat16")
    check_fits(fitting(1.0, ()), hidden_size=4, num_layers=1, dtype="bfloat16")
    with pytest.raises(VectorShapeMismatch, match="4 wide"):
        check_fits(fitting(1.0), hidden_size=5, num_layers=4, dtype="float32")
    with pytest.raises(VectorShapeMismatch, match="layers 0 to 3") as caught:
        check_fits(fitting(1.0, (4,)), hidden_size=4, num_layers=4, dtype="float32")
    assert caught.value.metadata == {"expected": "4", "actual": "4"}


def test_a_row_for_the_embeddings_is_pointed_out() -> None:
    """The layout with one row more than there are layers is refused with what to do."""
    with pytest.raises(VectorShapeMismatch, match="embeddings"):
        check_fits(fitting(1.0, (0, 1, 2)), hidden_size=4, num_layers=2, dtype="float32")


@pytest.mark.parametrize(
    ("dtype", "largest", "too_large"),
    [
        ("float16", 65504.0, 65520.0),
        ("bfloat16", 3.3895e38, 3.3962e38),
        ("float32", 3.4028e38, None),
        ("float8_e4m3fn", 1e10, None),
    ],
)
def test_the_cast_to_the_models_dtype_stays_finite(
    dtype: str, largest: float, too_large: float | None
) -> None:
    """The largest number of the dtype passes; what rounds to infinity doesn't."""
    for value in (largest, -largest):
        check_fits(fitting(value), hidden_size=4, num_layers=1, dtype=dtype)
    for value in (too_large, -too_large) if too_large else ():
        with pytest.raises(VectorNotFinite, match=f"layer 0, index 0 is too large for {dtype}"):
            check_fits(fitting(value), hidden_size=4, num_layers=1, dtype=dtype)
