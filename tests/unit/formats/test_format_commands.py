"""register, convert, inspect, export and diff as they are run, on files of every format."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from hotwire_client import Client
from hotwirectl.main import run
from hotwired.v1.node_pb2 import NODE_STATE_CONVERGED, NODE_STATE_RECONCILING
from tests.fakes.fake_daemon import FakeDaemon, Fault, fake_daemon, node, write_vector
from tests.support.vector_files import ROWS, write_gguf, write_pt

Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    """Runs hotwirectl in this process."""
    for name in ("HOTWIRE_TIMEOUT", "HOTWIRE_OUTPUT", "HOTWIRE_SERVER"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def fake(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A stand-in whose node serves a model of four layers."""
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    with fake_daemon(short_dir) as daemon:
        daemon.state.nodes = [node("i/engine-0-0-0", num_layers=4, hidden_size=3, model="m")]
        yield daemon


@pytest.fixture
def nobody(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon runs."""
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    monkeypatch.setattr("hotwirectl.formats.options.ASK_SECONDS", 0.1)


def npz(path: Path, rows: Any = ROWS, **more: Any) -> Path:
    """Writes rows with numpy."""
    np.savez(path, vector=rows, **more)
    return path


def rows_of(fake: FakeDaemon, name: str) -> dict[int, list[float]]:
    """Returns what is registered under a name, by layer."""
    with Client(fake.address) as client:
        found = client.download_vector(name)
    from safetensors.numpy import load

    rows = load(found.data)["vector"].tolist()
    return dict(zip(found.vector.layers, rows, strict=True))


BY_LAYER = dict(enumerate(ROWS.tolist()))


def test_files_of_every_format_are_registered(ctl: Ctl, fake: FakeDaemon, tmp_path: Path) -> None:
    """By the names of their files, in one command; what is assumed is said, and kept."""
    import torch

    files = [
        write_vector(tmp_path / "own.safetensors", ROWS),
        write_pt(tmp_path / "torch.pt", torch.from_numpy(ROWS).bfloat16()),
        write_gguf(tmp_path / "gguf.gguf", {f"direction.{n}": ROWS[n] for n in (1, 2, 3)}),
        npz(tmp_path / "numpy.npz"),
    ]
    code, out, err = ctl("register", *files)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        f"vector/{name}" for name in ("own", "torch", "gguf", "numpy")
    ]
    for name in ("own", "torch", "numpy"):
        assert rows_of(fake, name) == BY_LAYER
    assert rows_of(fake, "gguf") == {n: BY_LAYER[n] for n in (1, 2, 3)}
    by_count = "row i is the output of block i: there are 4 of each (as the nodes say)"
    assert err.splitlines() == [
        f"assumed: torch: {by_count}",
        "assumed: gguf: direction.i is added after block i, as llama.cpp and repeng do",
        "assumed: numpy: array 'vector' is the vector",
        f"assumed: numpy: {by_count}",
    ]
    kept = dict(fake.state.vectors["torch"].metadata)
    assert (kept["source_format"], kept["source_dtype"]) == ("torch", "bfloat16")
    assert kept["assumed"] == by_count
    revisions = {fake.state.vectors[name].revision for name in ("own", "torch", "numpy")}
    assert len(revisions) == 1, "the same rows are the same vector"


def test_several_as_json_are_a_line_each(ctl: Ctl, fake: FakeDaemon, tmp_path: Path) -> None:
    """And stderr is empty: what was assumed is in the metadata."""
    code, out, err = ctl("register", npz(tmp_path / "a.npz"), npz(tmp_path / "b.npz"), "-o", "json")
    assert (code, err) == (0, "")
    forms = [json.loads(line) for line in out.splitlines()]
    assert [form["vector"]["name"] for form in forms] == ["a", "b"]
    assert "as the nodes say" in forms[0]["vector"]["metadata"]["assumed"]


def test_names_of_several_are_their_files(ctl: Ctl, fake: FakeDaemon, tmp_path: Path) -> None:
    """--name is for one; two of one stem are refused; nothing is sent."""
    a, b = npz(tmp_path / "a.npz"), write_vector(tmp_path / "a.safetensors", ROWS)
    assert ctl("register", a, "--name", "c")[0] == 0
    assert rows_of(fake, "c") == BY_LAYER
    fake.state.calls.clear()
    for arguments in ((a, b, "--name", "c"), (a, b)):
        code, out, err = ctl("register", *arguments)
        assert (code, out) == (2, "")
        assert "--name" in err
    assert {method for method, *_ in fake.state.calls} <= {"ListNodes"}


def test_one_row_more_needs_the_base(ctl: Ctl, fake: FakeDaemon, tmp_path: Path) -> None:
    """The node's depth makes it plain; with the base the embedding is left out."""
    more = npz(tmp_path / "v.npz", np.vstack([np.zeros((1, 3), np.float32), ROWS]))
    code, out, err = ctl("register", more)
    assert (code, out) == (2, "")
    assert "5 rows, one more than the model has layers" in err
    assert "(LAYER_BASE_UNKNOWN)\nhint: if it is the embedding, say --layer-base hidden" in err
    assert "v" not in fake.state.vectors
    assert ctl("register", more, "--layer-base", "hidden-states")[0] == 0
    assert rows_of(fake, "v") == BY_LAYER
    own = write_vector(tmp_path / "own.safetensors", np.vstack([ROWS[:1], ROWS]))
    assert ctl("register", own, "--layer-base", "hidden-states")[0] == 0
    assert rows_of(fake, "own") == BY_LAYER
    code, _, err = ctl("register", own, "--num-layers", 4)
    assert (code, "LAYER_BASE_UNKNOWN" in err) == (2, True)


def test_one_that_is_refused_stops_all_before_any(
    ctl: Ctl, fake: FakeDaemon, tmp_path: Path
) -> None:
    """Files are read before the first is sent; what the daemon refuses names those before it."""
    good, bad = npz(tmp_path / "a.npz"), npz(tmp_path / "b.npz", ROWS[:3])
    code, _, err = ctl("register", good, bad)
    assert (code, "VECTOR_SHAPE_MISMATCH" in err) == (2, True)
    assert fake.state.vectors == {}
    odd = npz(tmp_path / "No Name.npz")
    code, out, err = ctl("register", good, odd)
    assert code == 67
    assert out.startswith("vector/a registered")
    assert "note: No Name was refused; registered before it: a\n" in err


def test_a_dry_run_and_the_model_are_for_all(ctl: Ctl, fake: FakeDaemon, tmp_path: Path) -> None:
    """--model goes before the file's own; the depth is that of its nodes."""
    fake.state.nodes.append(node("j/engine-0-0-0", num_layers=9, hidden_size=3, model="n"))
    file = npz(tmp_path / "v.npz", model="other")
    assert "LAYER_BASE_UNKNOWN" in ctl("register", file)[2]
    code, out, _ = ctl("register", file, "--model", "m", "--dry-run")
    assert (code, out.startswith("vector/v valid")) == (0, True)
    assert fake.state.vectors == {}
    ctl("register", file, "--model", "m")
    assert fake.state.vectors["v"].model == "m"


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [((), 10), (("--wait",), 60 / 0.9), (("--wait=90s",), 100), (("--timeout", "20"), 20)],
)
def test_wait_is_the_time_that_the_daemon_has(
    ctl: Ctl, fake: FakeDaemon, tmp_path: Path, arguments: tuple[str, ...], seconds: float
) -> None:
    """It answers once nine tenths of the call's time are over, or every node uses the vector."""
    file = write_vector(tmp_path / "v.safetensors", ROWS)
    assert ctl("register", *arguments, file)[0] == 0
    ((_, _, remaining),) = [c for c in fake.state.calls if c[0] == "RegisterVector"]
    assert remaining == pytest.approx(seconds, abs=1)


def test_what_has_not_converged_in_time_ends_with_3(
    ctl: Ctl, fake: FakeDaemon, tmp_path: Path
) -> None:
    """After all were sent."""
    fake.state.converged = False
    fake.state.nodes = [
        node("i/engine-0-0-0", NODE_STATE_CONVERGED),
        node("i/worker-0-0-0", NODE_STATE_RECONCILING),
    ]
    files = [write_vector(tmp_path / f"{name}.safetensors", ROWS) for name in "ab"]
    code, out, err = ctl("register", *files, "--wait=1s")
    assert (code, len(out.splitlines())) == (3, 2)
    assert "(NOT_CONVERGED)" in err
    assert set(fake.state.vectors) == {"a", "b"}
    assert ctl("register", *files, "--wait=soon")[0] == 2


@pytest.mark.usefixtures("nobody")
def test_convert_needs_no_daemon(ctl: Ctl, tmp_path: Path) -> None:
    """What is asked for then is said; the file is what the daemon takes, with what was assumed."""
    source, out = npz(tmp_path / "joy.npz", model="org/m"), tmp_path / "out.safetensors"
    code, _, err = ctl("convert", source, out)
    assert code == 2
    assert "the model's number of layers is not known (LAYER_BASE_UNKNOWN)" in err
    assert "hint: say --num-layers N" in err
    assert not out.exists()
    code, said, err = ctl("convert", source, out, "--num-layers", 4)
    assert code == 0
    pattern = r"vector/joy converted \(layers 0-3, width 3, revision [0-9a-f]{8}\) to \S+\n"
    assert re.fullmatch(pattern, said)
    assert "assumed: joy: row i is the output of block i: there are 4 of each (as --num" in err
    assert np.array_equal(load_file(out)["vector"], ROWS)
    with safe_open(out, "np") as file:
        metadata = file.metadata()
    assert metadata["layers"] == "0,1,2,3"
    assert (metadata["model"], metadata["source_format"]) == ("org/m", "npz")
    assert "as --num-layers says" in metadata["assumed"]
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    assert ctl("convert", source, tmp_path / "out.pt", "--num-layers", 4)[0] == 2
    assert ctl("convert", source, tmp_path / "no" / "o.safetensors", "--num-layers", 4)[0] == 2
    assert ctl("convert", tmp_path / "no.npz", out)[0] == 2


@pytest.mark.usefixtures("nobody")
def test_metadata_that_the_daemon_would_not_take_is_refused(ctl: Ctl, tmp_path: Path) -> None:
    """Before a file is written."""
    file = npz(tmp_path / "v.npz", model="m" * 20_000)
    code, _, err = ctl("convert", file, tmp_path / "o.safetensors", "--num-layers", 4)
    assert (code, "METADATA_TOO_LARGE" in err) == (2, True)
    assert not (tmp_path / "o.safetensors").exists()


@pytest.mark.usefixtures("nobody")
def test_a_file_is_inspected(ctl: Ctl, tmp_path: Path) -> None:
    """Norms as a line and by layer, doses against a table, metadata, and the revision."""
    rows = np.array([[0, 0, 0], [3, 4, 0], [6, 8, 0], [0, 0, 5]], np.float32)
    file = write_vector(tmp_path / "joy.safetensors", rows, **{"model": "m", "x\x1b[2J": "y"})
    norms = tmp_path / "norms.json"
    norms.write_text("[10, 10, 20, 50]")
    code, out, err = ctl("inspect", file, "--reference-norms", norms)
    assert code == 0
    facts, table = out.split("\n\n")
    assert "norms               ▁▅█▅  0 to 10, 1 rows of zeros" in facts
    assert "dose at scale 1     0 to 0.5 at a layer, 1.1 over all layers" in facts
    assert r"metadata.x\x1b[2J   y" in facts
    assert [line.split() for line in table.splitlines()] == [
        ["LAYER", "NORM", "DOSE"], ["0", "0", "0"], ["1", "5", "0.5"], ["2", "10", "0.5"],
        ["3", "5", "0.1"],
    ]  # fmt: skip
    assert err == "assumed: joy: row i is for block i: the rows have no numbers\n"
    form = json.loads(ctl("inspect", file, "-o", "json")[1])
    assert (form["norms"], form["layers"]) == ([0.0, 5.0, 10.0, 5.0], [0, 1, 2, 3])
    assert form["relative_dose"] == [None] * 4
    assert (form["total_relative_dose"], form["problem"]) == (None, None)
    assert "not known: no reference norms" in ctl("inspect", file)[1]


@pytest.mark.usefixtures("nobody")
def test_a_file_whose_layers_nobody_knows_is_inspected_by_row(ctl: Ctl, tmp_path: Path) -> None:
    """So that one can find out; other refusals stay."""
    code, out, _ = ctl("inspect", npz(tmp_path / "v.npz"))
    assert code == 0
    assert "not known: nothing says whether row 0 of 4 is the output of block 0" in out
    assert "\nROW" in out
    form = json.loads(ctl("inspect", tmp_path / "v.npz", "-o", "json")[1])
    assert (form["layers"], form["revision"]) == (None, None)
    assert form["problem"].startswith("nothing says")
    nan = npz(tmp_path / "nan.npz", ROWS * np.nan)
    assert "(VECTOR_NOT_FINITE)" in ctl("inspect", nan, "--num-layers", 4)[2]


def test_a_registered_vector_is_inspected_and_exported(
    ctl: Ctl, fake: FakeDaemon, tmp_path: Path
) -> None:
    """Its doses are by the policy; its file has the same revision, its model and metadata."""
    fake.state.policy.reference_norms.update({0: 10.0, 1: 10.0})
    joy = write_vector(tmp_path / "joy.safetensors", [[3, 4], [0, 2]], mood="glad", format="x")
    ctl("register", joy, "--model", "some/model")
    revision = fake.state.vectors["joy"].revision
    form = json.loads(ctl("inspect", "joy", "-o", "json")[1])
    assert (form["revision"], form["format"]) == (revision, "registered")
    assert form["relative_dose"] == [0.5, 0.2]
    assert form["total_relative_dose"] == pytest.approx(0.7)
    out = tmp_path / "out.safetensors"
    code, said, _ = ctl("export", "joy", out)
    assert (code, f"revision {revision[:8]}) to {out}" in said) == (0, True)
    with safe_open(out, "np") as file:
        assert file.metadata()["model"] == "some/model"
        assert file.metadata()["mood"] == "glad"
        assert file.metadata()["format"] == "hotwire.vector.v1"
    assert ctl("register", out, "--name", "again")[0] == 0
    assert fake.state.vectors["again"].revision == revision
    assert fake.state.vectors["again"].model == "some/model"
    assert ctl("export", "nobody", out)[0] == 69
    assert ctl("inspect", "nobody")[0] == 69
    assert ctl("inspect", tmp_path / "nothing.safetensors")[0] == 2


def test_damage_in_the_store_is_told(ctl: Ctl, fake: FakeDaemon, tmp_path: Path) -> None:
    """With what to do; no file is left."""
    ctl("register", write_vector(tmp_path / "joy.safetensors", ROWS))
    fake.state.faults["DownloadVector"] = Fault(
        grpc.StatusCode.DATA_LOSS, "BLOB_CORRUPT", "blob is damaged"
    )
    code, _, err = ctl("export", "joy", tmp_path / "o.safetensors")
    assert (code, "hint: register the vector again" in err) == (79, True)
    assert not (tmp_path / "o.safetensors").exists()


def test_a_name_goes_before_a_file_that_is_none(
    ctl: Ctl, fake: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory `joy` does not hide the vector joy; `./joy` is the directory."""
    ctl("register", write_vector(tmp_path / "joy.safetensors", ROWS))
    (tmp_path / "joy").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "registered" in ctl("inspect", "joy")[1]
    assert "manifest.json" in ctl("inspect", "./joy")[2]


def test_two_vectors_are_compared(ctl: Ctl, fake: FakeDaemon, tmp_path: Path) -> None:
    """By layer: a file and a name; layers that one lacks are listed."""
    a = np.array([[1, 0], [1, 0], [1, 0], [0, 0]], np.float32)
    b = np.array([[2, 0], [0, 3], [-1, 1], [1, 1]], np.float32)
    ctl("register", write_vector(tmp_path / "a.safetensors", a))
    file = tmp_path / "b.safetensors"
    save_file({"v": b}, file, {"layers": "0,1,2,7"})
    code, out, err = ctl("diff", "a", file)
    assert (code, err) == (0, "")
    table, only_a, only_b = out.strip().split("\n\n")
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["0", "1.0000", "2.0000"],
        ["1", "0.0000", "3.0000"],
        ["2", "-0.7071", "1.4142"],
    ]
    assert (only_a, only_b) == ("only the first has layers 3", "only the second has layers 7")
    form = json.loads(ctl("diff", "a", file, "-o", "json")[1])
    assert form["layers"][2]["cosine"] == pytest.approx(-(0.5**0.5))
    assert (form["only_a"], form["only_b"], form["identical"]) == ([3], [7], False)
    code, out, _ = ctl("diff", "a", tmp_path / "a.safetensors")
    assert "the two are identical" in out
    zero = next(line for line in out.splitlines() if line.startswith("3"))
    assert zero.split() == ["3", "-", "-"]


@pytest.mark.usefixtures("nobody")
def test_what_cannot_be_compared_is_refused(ctl: Ctl, tmp_path: Path) -> None:
    """Other widths, no layer in common; a row for any layer goes with each."""
    four = write_vector(tmp_path / "four.safetensors", ROWS)
    wide = write_vector(tmp_path / "wide.safetensors", np.ones((4, 5)))
    assert "(VECTOR_SHAPE_MISMATCH)" in ctl("diff", four, wide)[2]
    save_file({"v": ROWS}, tmp_path / "far.safetensors", {"layers": "10,11,12,13"})
    assert "has no layer that far has" in ctl("diff", four, tmp_path / "far.safetensors")[2]
    save_file({"v": ROWS[0]}, tmp_path / "any.safetensors")
    form = json.loads(ctl("diff", tmp_path / "any.safetensors", four, "-o", "json")[1])
    assert [each["layer"] for each in form["layers"]] == [0, 1, 2, 3]
    assert form["layers"][0]["cosine"] == pytest.approx(1)
    twice = json.loads(ctl("diff", *[tmp_path / "any.safetensors"] * 2, "-o", "json")[1])
    assert (twice["layers"][0]["layer"], twice["identical"]) == (None, True)
    assert "(LAYER_BASE_UNKNOWN)" in ctl("diff", four, npz(tmp_path / "v.npz"))[2]
