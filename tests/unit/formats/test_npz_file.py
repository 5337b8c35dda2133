"""What numpy saves is read back; what would run, burst or lie is refused before it is read."""

import io
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotwirectl.formats import npz_file, zip_file
from tests.support.vector_files import ROWS, refusal


class Marks:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def saved(path: Path, **arrays: Any) -> Path:
    """Writes a file with numpy."""
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_comes_back_exactly(tmp_path: Path, dtype: str, order: Any) -> None:
    """In every float type and both orders; compressed or not."""
    rows = np.asarray(ROWS.astype(dtype), order=order)
    found = npz_file.read(saved(tmp_path / "v.npz", vector=rows))
    assert np.array_equal(found.rows, ROWS)
    assert found.rows.dtype == np.float32
    assert (found.name, found.numbers, found.base) == ("v", None, None)
    assert found.assumed == ("array 'vector' is the vector",)
    np.savez_compressed(tmp_path / "w.npz", vector=rows)
    assert np.array_equal(npz_file.read(tmp_path / "w.npz").rows, ROWS)


def test_layers_and_model_are_taken_from_their_arrays(tmp_path: Path) -> None:
    """Rows go in the order of their numbers; what the numbers are is still to be said."""
    path = saved(tmp_path / "v.npz", v=ROWS, layers=np.array([9, 3, 5, 4]), model="org/m")
    found = npz_file.read(path)
    assert (found.numbers, found.base, found.metadata) == ((3, 4, 5, 9), None, {"model": "org/m"})
    assert np.array_equal(found.rows, ROWS[[1, 3, 2, 0]])


def test_an_array_for_each_layer(tmp_path: Path) -> None:
    """By names that say layer they are outputs; bare numbers say nothing."""
    path = saved(tmp_path / "v.npz", **{"layers.10": ROWS[0], "layers.2": ROWS[1]})
    found = npz_file.read(path)
    assert (found.numbers, found.base) == ((2, 10), "output")
    assert np.array_equal(found.rows, ROWS[[1, 0]])
    bare = npz_file.read(saved(tmp_path / "b.npz", **{"2": ROWS[1], "10": ROWS[0]}))
    assert (bare.numbers, bare.base) == ((2, 10), None)


def test_one_row_is_for_any_layer_or_for_that_of_its_name(tmp_path: Path) -> None:
    """Of shape [width]."""
    assert npz_file.read(saved(tmp_path / "v.npz", v=ROWS[0])).numbers == ()
    assert npz_file.read(saved(tmp_path / "w.npz", **{"layers.7": ROWS[0]})).numbers == (7,)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"W_enc": ROWS, "W_dec": ROWS}, "VECTOR_AMBIGUOUS"),
        ({"v": ROWS, "layers": np.array([1, 2, 3])}, "VECTOR_SHAPE_MISMATCH"),
        ({"v": ROWS, "layers": np.array([1, 2, 2, 3])}, "VECTOR_SHAPE_MISMATCH"),
        ({"v": ROWS, "layers": np.array([-1, 2, 4, 3])}, "VECTOR_SHAPE_MISMATCH"),
        ({"layers.1": ROWS[0], "layers.2": ROWS[0][:2]}, "VECTOR_SHAPE_MISMATCH"),
        ({"layers.1": ROWS[0], "layer_1": ROWS[0]}, "VECTOR_FORMAT_INVALID"),
        ({"layers.1": ROWS, "layers.2": ROWS}, "VECTOR_FORMAT_INVALID"),
        ({"v": np.ones((2, 2, 2))}, "VECTOR_FORMAT_INVALID"),
        ({"v": np.ones((2, 0))}, "VECTOR_FORMAT_INVALID"),
        ({"v": np.arange(4)}, "VECTOR_FORMAT_INVALID"),
        ({"v": np.ones((2, 2), complex)}, "VECTOR_FORMAT_INVALID"),
        ({"v": np.float32(1)}, "VECTOR_FORMAT_INVALID"),
        ({}, "VECTOR_AMBIGUOUS"),
    ],
)
def test_what_is_no_vector_is_refused(tmp_path: Path, arrays: Any, reason: str) -> None:
    """By what is wrong with it."""
    assert refusal(npz_file.read, saved(tmp_path / "v.npz", **arrays)).reason == reason


def test_a_pickle_in_an_array_does_not_run(tmp_path: Path) -> None:
    """The array is named, and the mark that it would leave is not there."""
    mark = tmp_path / "mark"
    objects = np.array([Marks(mark)], dtype=object)
    path = saved(tmp_path / "v.npz", vector=objects)
    found = refusal(npz_file.read, path)
    assert found.reason == "PICKLE_REFUSED"
    assert "'vector' holds pickled objects" in found.message
    assert not mark.exists()
    np.load(path, allow_pickle=True)["vector"]
    assert mark.exists(), "the pickle is a real one"


def test_a_zip_bomb_is_refused_by_what_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All members together, before one is unfolded."""
    monkeypatch.setattr(zip_file, "MAX_BYTES", 8 << 20)
    np.savez_compressed(tmp_path / "v.npz", **{f"layers.{n}": np.zeros(1 << 20) for n in range(2)})
    assert (tmp_path / "v.npz").stat().st_size < 1 << 20
    tracemalloc.start()
    found = refusal(npz_file.read, tmp_path / "v.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.reason == "VECTOR_TOO_LARGE"
    assert peak < 4 << 20


def test_too_many_members_are_refused_before_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of a zip file can be a bomb of its own."""
    monkeypatch.setattr(zip_file, "MAX_MEMBERS", 3)
    path = saved(tmp_path / "v.npz", **{f"layers.{n}": ROWS[0] for n in range(4)})
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert "more than 3 members" in refusal(npz_file.read, path).message


def member(name: str, data: bytes) -> bytes:
    """Returns a zip file of one member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, data)
    return stream.getvalue()


def npy(shape: str, descr: str = "'<f4'") -> bytes:
    """Returns an array's header with a shape of one's own, and eight bytes."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (64 - (10 + len(text)) % 64 - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04",
        b"\x80\x02}q\x00.",
        member("v.txt", b"text"),
        member("v.npy", b""),
        member("v.npy", b"\x93NUMPY\x09\x00"),
        member("v.npy", npy("(1099511627776, 4)")),
        member("v.npy", npy("(1,)")),
        member("v.npy", npy("(-1, 2)")),
        member("v.npy", npy("__import__('os').getpid()")),
        member("v.npy", npy("(2,)", "'no such'")),
        member("v.npy", npy("(2,)") + b"more"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, data: bytes) -> None:
    """Whatever of them is broken or a lie."""
    path = tmp_path / "v.npz"
    path.write_bytes(data)
    assert refusal(npz_file.read, path).reason == "VECTOR_FORMAT_INVALID"


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    """At every twentieth."""
    whole = saved(tmp_path / "v.npz", v=ROWS).read_bytes()
    for part in range(20):
        (tmp_path / "cut.npz").write_bytes(whole[: len(whole) * part // 20])
        assert refusal(npz_file.read, tmp_path / "cut.npz").reason == "VECTOR_FORMAT_INVALID"


def test_damage_within_is_found(tmp_path: Path) -> None:
    """By the zip file's own check."""
    path = saved(tmp_path / "v.npz", v=ROWS)
    data = bytearray(path.read_bytes())
    at = data.index(ROWS.tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert "damaged" in refusal(npz_file.read, path).message
