"""What torch saves is read by a process with limits; what would run code is refused."""

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotwirectl.formats import manifest, read, torch_file, zip_file
from tests.support.vector_files import ROWS, load_here, refusal, write_pt

CHILD = Path(torch_file.__file__).with_name("torch_child.py")


class Marks:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_every_form_comes_back_exactly(tmp_path: Path) -> None:
    """All by one process."""
    import torch

    rows = torch.from_numpy(ROWS)
    forms: dict[str, tuple[Any, Any, Any]] = {
        "f32": (rows, None, None),
        "bf16": (rows.bfloat16(), None, None),
        "f64": (rows.double().T.contiguous().T, None, None),
        "grad": (rows.clone().requires_grad_(), None, None),
        "keyed": ({"vector": rows, "model": "org/m", "alpha": 1.5}, None, None),
        "one": (rows[0], (), None),
        "at": ({"bias": rows[0], "layer": 17}, (17,), "output"),
        "map": (
            {"layer_activations": {3: rows[1], 2: rows[0]}, "layer_type": "x"},
            (2, 3),
            "output",
        ),
        "repeng": ({"directions": {"3": rows[1], "2": rows[0]}}, (2, 3), "output"),
        "bare": (dict(enumerate(rows)), (0, 1, 2, 3), None),
        "single": ({17: rows[0]}, (17,), None),
    }
    paths = [write_pt(tmp_path / f"{name}.pt", value) for name, (value, *_) in forms.items()]
    old = write_pt(tmp_path / "old.pth", rows, _use_new_zipfile_serialization=False)
    *found, legacy = torch_file.read_all([*paths, old])
    for each, (_, numbers, base) in zip(found, forms.values(), strict=True):
        assert (each.numbers, each.base) == (numbers, base), each.name
        assert np.array_equal(each.rows, ROWS[: len(each.rows)]), each.name
    by_name = {each.name: each for each in found}
    assert len(by_name["f64"].rows) == len(legacy.rows) == 4
    assert (by_name["bf16"].dtype, by_name["f64"].dtype) == ("bfloat16", "float64")
    assert by_name["keyed"].metadata == {"model": "org/m", "alpha": "1.5"}
    assert by_name["keyed"].assumed == ("its tensor 'vector' is the vector",)
    assert by_name["at"].assumed[1] == "it is for block 17, its 'layer'"
    assert np.array_equal(legacy.rows, ROWS)


def test_every_refusal_by_its_reason(tmp_path: Path) -> None:
    """By one process too, which goes on with the next file; no mark is left."""
    import torch

    mark = tmp_path / "mark"
    rows = torch.from_numpy(ROWS)
    wrong: dict[str, tuple[Any, str]] = {
        "marks": ({"v": rows, "x": Marks(mark)}, "PICKLE_REFUSED"),
        "numpy": ({1: ROWS}, "PICKLE_REFUSED"),
        "list": ([1.0, 2.0], "VECTOR_FORMAT_INVALID"),
        "empty": ({}, "VECTOR_FORMAT_INVALID"),
        "ints": (torch.arange(4), "VECTOR_FORMAT_INVALID"),
        "deep": (rows[None], "VECTOR_FORMAT_INVALID"),
        "none": (rows[:0], "VECTOR_FORMAT_INVALID"),
        "sparse": (rows.to_sparse(), "VECTOR_FORMAT_INVALID"),
        "meta": (torch.empty(2, 2, device="meta"), "VECTOR_FORMAT_INVALID"),
        "bomb": (torch.zeros(1).expand(1 << 20, 1 << 20), "VECTOR_TOO_LARGE"),
        "two": ({"a": rows, "b": rows}, "VECTOR_AMBIGUOUS"),
        "state": ({"a": rows[0], "b": {"c": 1}, "d": rows[0]}, "VECTOR_AMBIGUOUS"),
    }
    paths = [write_pt(tmp_path / f"{name}.pt", value) for name, (value, _) in wrong.items()]
    # A bare pickle, which torch.load takes for its old format.
    paths.append(tmp_path / "old.pt")
    paths[-1].write_bytes(pickle.dumps(Marks(mark), protocol=2))
    pairs = [(path, tmp_path / f"{path.stem}.out") for path in paths]
    said = torch_file._said(pairs, tmp_path / "request")
    assert {p.stem: s.get("reason") for p, s in zip(paths, said, strict=True)} == {
        name: reason for name, (_, reason) in wrong.items()
    } | {"old": "PICKLE_REFUSED"}
    assert not mark.exists()
    torch.load(paths[0], weights_only=False)
    assert mark.exists(), "the pickle is a real one"
    why = refusal(torch_file._result, *pairs[0], said[0])
    assert (why.reason, "posix.mkdir" in why.message) == ("PICKLE_REFUSED", True)
    assert "torch.save the bare tensor" in why.hint


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test that starts a process."""

    def run(*args: Any, **kwargs: Any) -> None:
        raise AssertionError(args)

    monkeypatch.setattr(torch_file.subprocess, "run", run)


@pytest.mark.usefixtures("no_process")
def test_sizes_are_checked_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are none, cut short, compressed or too large start no process."""
    whole = write_pt(tmp_path / "v.pt", {"v": 1}).read_bytes()
    path = tmp_path / "w.pt"
    for data in (b"", b"garbage", whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(data)
        assert refusal(torch_file.read, path).reason == "VECTOR_FORMAT_INVALID"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(1 << 20))
    assert "compressed" in refusal(torch_file.read, path).message
    monkeypatch.setattr(zip_file, "MAX_BYTES", 1 << 19)
    assert refusal(torch_file.read, path).reason == "VECTOR_TOO_LARGE"


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EXTRA_MISSING, found by the process itself."""
    path = write_pt(tmp_path / "v.pt", {})
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "torch.py").write_text("raise ImportError(\"No module named 'torch'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    found = refusal(torch_file.read, path)
    assert (found.reason, found.hint) == ("EXTRA_MISSING", "pip install 'hotwired[convert]'")


@pytest.mark.parametrize("body", ["time.sleep(60)", "os.abort()", "print('{}', end='')"])
def test_a_process_that_ends_or_hangs_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    """READER_FAILED, in time."""
    path = write_pt(tmp_path / "v.pt", {})
    child = tmp_path / "child.py"
    child.write_text(f"import os, time\n{body}\n")
    monkeypatch.setattr(torch_file, "_CHILD", child)
    monkeypatch.setattr(torch_file, "START_SECONDS", 0.5)
    monkeypatch.setattr(torch_file, "FILE_SECONDS", 0.5)
    assert refusal(torch_file.read, path).reason == "READER_FAILED"


def test_the_process_has_limits_on_memory_time_and_files(tmp_path: Path) -> None:
    """Each is met for real."""
    code = f"""
import importlib.util, resource, sys
spec = importlib.util.spec_from_file_location("child", {str(CHILD)!r})
child = importlib.util.module_from_spec(spec)
spec.loader.exec_module(child)
child.limit(1 << 20, 1.0)
try:
    bytearray(1 << 30)
except MemoryError:
    print("memory", flush=True)
try:
    import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open({str(tmp_path / "big")!r}, "wb") as file:
        file.write(bytes(3 << 20))
except OSError:
    print("file", flush=True)
while True:
    pass
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.split() == ["memory", "file"]
    assert done.returncode < 0


def test_the_client_never_imports_torch() -> None:
    """Not even to read a .pt; nor gguf for a .gguf."""
    code = """
import sys
import hotwirectl.main, hotwirectl.register, hotwirectl.formats.work
assert not {"torch", "gguf", "transformers"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_commands_wait_for_no_numpy() -> None:
    """Those that need it import it when they run."""
    code = "import sys, hotwirectl.main; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def directory(path: Path, **changes: Any) -> Path:
    """Writes a directory of two directions."""
    import json

    import torch

    path.mkdir()
    entry = {"shape": [4, 3], "dtype": "torch.bfloat16", "recommended_layer": 2}
    form = {
        "model": "Org/Model",
        "directions": [{"name": "v_a", **entry}, {"name": "v_b", **entry}],
        **changes,
    }
    (path / manifest.FILE).write_text(json.dumps(form))
    for factor, name in enumerate(("v_a", "v_b"), 1):
        torch.save(torch.from_numpy(ROWS * factor).bfloat16(), path / f"{name}.pt")
    return path


def test_a_directory_of_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them with what the manifest says; a file of it alone has the same."""
    load_here(monkeypatch)
    folder = directory(tmp_path / "d")
    a, b = read.read_all(folder)
    assert (a.name, b.name) == ("v_a", "v_b")
    assert np.array_equal(a.rows, ROWS)
    assert np.array_equal(b.rows, ROWS * 2)
    assert a.metadata == {"recommended_layer": "2", "model": "Org/Model"}
    assert a.assumed == ("it is for the model 'Org/Model', as its manifest says",)
    alone = read.read_one(folder / "v_b.pt")
    assert (alone.metadata, alone.numbers) == (b.metadata, None)
    found = refusal(read.read_one, folder)
    assert (found.reason, "v_a.pt" in found.hint) == ("VECTOR_AMBIGUOUS", True)


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize(
    "changes",
    [
        {"directions": []},
        {"directions": "v_a"},
        {"directions": [{"name": "../v_a"}]},
        {"directions": [{"name": "/etc/passwd"}]},
        {"directions": [{"name": "v\x1b[2J"}]},
        {"directions": ["v_a"]},
        {"directions": [{"name": "v_a"}, {"name": "v_a"}]},
        {"directions": [{"name": "v_c"}]},
    ],
)
def test_a_manifest_that_is_wrong_is_refused(tmp_path: Path, changes: Any) -> None:
    """Before anything is loaded, and no file outside is looked at."""
    folder = directory(tmp_path / "d", **changes)
    assert refusal(read.read_all, folder).reason == "VECTOR_FORMAT_INVALID"


@pytest.mark.usefixtures("no_process")
def test_a_directory_without_a_manifest_is_refused(tmp_path: Path) -> None:
    """And one whose manifest is no JSON, or has a key twice."""
    assert "manifest.json" in refusal(read.read_all, tmp_path).message
    for text in ("{", '{"model": 1, "model": 2}', "[" * 100_000, "[]"):
        (tmp_path / manifest.FILE).write_text(text)
        assert refusal(read.read_all, tmp_path).reason == "VECTOR_FORMAT_INVALID"


def test_a_shape_that_the_manifest_denies_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whichever file."""
    load_here(monkeypatch)
    entry = {"name": "v_a", "shape": [5, 3]}
    folder = directory(tmp_path / "d", directions=[entry])
    assert refusal(read.read_all, folder).reason == "VECTOR_SHAPE_MISMATCH"
