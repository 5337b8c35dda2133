"""Control vectors as the gguf package writes them, and files that lie about their lengths."""

import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotwirectl.formats import gguf_file
from tests.support.vector_files import ROWS, refusal, write_gguf


def directions(first: int = 1, dtype: str = "f4") -> dict[str, Any]:
    """Returns ROWS as tensors."""
    return {f"direction.{first + n}": row.astype(dtype) for n, row in enumerate(ROWS)}


@pytest.mark.parametrize(("dtype", "name"), [("f4", "F32"), ("f2", "F16"), ("f8", "F64")])
def test_directions_come_back_by_layer(tmp_path: Path, dtype: str, name: str) -> None:
    """Direction i is for block i; layer 0 is absent, as the writers have it."""
    path = write_gguf(tmp_path / "joy.gguf", directions(dtype=dtype), description="glad")
    found = gguf_file.read(path)
    assert np.array_equal(found.rows, ROWS)
    assert (found.name, found.numbers, found.base) == ("joy", (1, 2, 3, 4), "output")
    assert (found.firm, found.dtype) == (False, name)
    assert found.metadata == {"model_hint": "llama", "description": "glad"}
    assert found.assumed == ("direction.i is added after block i, as llama.cpp and repeng do",)


def test_the_order_in_the_file_does_not_matter(tmp_path: Path) -> None:
    """Ten comes after nine."""
    tensors = {f"direction.{n}": ROWS[n - 9] for n in (10, 12, 9, 11)}
    found = gguf_file.read(write_gguf(tmp_path / "v.gguf", tensors))
    assert found.numbers == (9, 10, 11, 12)
    assert np.array_equal(found.rows, ROWS)


@pytest.mark.parametrize(
    ("tensors", "reason", "said"),
    [
        ({"direction.x": ROWS[0]}, "VECTOR_FORMAT_INVALID", "direction.x"),
        ({"direction.01": ROWS[0]}, "VECTOR_FORMAT_INVALID", "direction.01"),
        ({"direction.": ROWS[0]}, "VECTOR_FORMAT_INVALID", "direction."),
        ({"direction." + "9" * 50: ROWS[0]}, "VECTOR_FORMAT_INVALID", "direction.999"),
        ({"blk.0.attn_q.weight": ROWS[0]}, "VECTOR_FORMAT_INVALID", "blk.0.attn_q.weight"),
        ({"direction.0": ROWS[0]}, "LAYER_BASE_UNKNOWN", "direction.0"),
        ({"direction.3": ROWS}, "VECTOR_FORMAT_INVALID", "direction.3"),
        ({"direction.3": ROWS[0].astype("i4")}, "VECTOR_FORMAT_INVALID", "direction.3"),
        ({}, "VECTOR_FORMAT_INVALID", "no tensor"),
        ({"direction.1": ROWS[0], "direction.2": ROWS[0][:2]}, "VECTOR_SHAPE_MISMATCH", "[2, 3]"),
    ],
)
def test_tensors_at_fault_are_named(
    tmp_path: Path, tensors: dict[str, Any], reason: str, said: str
) -> None:
    """By name, with what is wrong."""
    found = refusal(gguf_file.read, write_gguf(tmp_path / "v.gguf", tensors))
    assert found.reason == reason
    assert said in found.message


def test_a_model_is_no_vector(tmp_path: Path) -> None:
    """Its architecture is named."""
    path = write_gguf(tmp_path / "v.gguf", directions(), architecture="llama")
    found = refusal(gguf_file.read, path)
    assert "architecture is 'llama'" in found.message


def header(tensors: int, fields: int, rest: bytes = b"") -> bytes:
    """Returns the begin of a file."""
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + rest


def field(kind: int, value: bytes) -> bytes:
    """Returns a field `k`."""
    return struct.pack("<Q", 1) + b"k" + struct.pack("<I", kind) + value


HUGE = 1 << 60


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GGUF",
        b"NOPE" + bytes(40),
        b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
        header(HUGE, 0),
        header(0, HUGE),
        header(0, 2, field(4, bytes(4)) * 2),
        header(0, 1, struct.pack("<Q", HUGE)),
        header(0, 1, field(99, bytes(8))),
        header(0, 1, field(8, struct.pack("<Q", HUGE))),
        header(0, 1, field(8, struct.pack("<Q", 2) + b"\xff\xfe")),
        header(0, 1, field(9, struct.pack("<IQ", 0, HUGE))),
        header(0, 1, field(9, struct.pack("<IQ", 8, HUGE))),
        header(0, 1, field(9, struct.pack("<IQ", 9, HUGE))),
        header(1, 0, struct.pack("<Q", 1) + b"d" + struct.pack("<I", 1 << 30)),
    ],
)
def test_lengths_that_lie_are_refused_at_once(tmp_path: Path, data: bytes) -> None:
    """Nothing is allocated or counted for them."""
    path = tmp_path / "v.gguf"
    path.write_bytes(data)
    before = time.monotonic()
    assert refusal(gguf_file.read, path).reason == "VECTOR_FORMAT_INVALID"
    assert time.monotonic() - before < 1


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    """At every twentieth, and one byte before the end of its last row."""
    whole = write_gguf(tmp_path / "v.gguf", directions()).read_bytes().rstrip(b"\0")
    cuts = [len(whole) * part // 20 for part in range(20)] + [len(whole) - 1]
    for cut in cuts:
        (tmp_path / "cut.gguf").write_bytes(whole[:cut])
        assert refusal(gguf_file.read, tmp_path / "cut.gguf").reason == "VECTOR_FORMAT_INVALID"


def test_bf16_is_read(tmp_path: Path) -> None:
    """As the upper half of float32."""
    path = write_gguf(tmp_path / "v.gguf", {"direction.1": ROWS[0], "direction.2": ROWS[1]})
    data = path.read_bytes()
    kind = struct.pack("<QIQ", len(ROWS[0]), 0, 0)
    assert data.count(kind) == 1
    bf16 = (ROWS[0].view(np.uint32) >> 16).astype("<u2").tobytes()
    data = data.replace(kind, struct.pack("<QIQ", len(ROWS[0]), 30, 0))
    path.write_bytes(data.replace(ROWS[0].tobytes(), bf16.ljust(12, b"\0")))
    found = gguf_file.read(path)
    assert np.array_equal(found.rows, ROWS[:2])
    assert found.dtype == "BF16,F32"


def test_tensors_that_lie_over_each_other_fill_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they come to is counted, not the file's own size."""
    monkeypatch.setattr(gguf_file, "MAX_BYTES", 4 * ROWS.size - 1)
    path = write_gguf(tmp_path / "v.gguf", directions())
    assert refusal(lambda: gguf_file.read(path)).reason == "VECTOR_TOO_LARGE"
