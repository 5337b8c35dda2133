"""Standalone mode: the variables and files of hotwire-vllm 0.1.2, good and bad."""

import json
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from hotwire_plugin.admission import Admission
from hotwire_plugin.program import SPEC_KEY
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import SnapshotHolder
from hotwire_plugin.standalone import Standalone, from_environment
from hotwired.dose import DoseMode, DosePolicy
from hotwired.vector_file import canonical_bytes, parse_canonical, revision_of


def load(vectors: Path, **environ: object) -> Standalone:
    """Reads the environment with HOTWIRE_VECTORS and the other variables given, by short name."""
    names = {
        "norms": "HOTWIRE_H_NORMS",
        "limit": "HOTWIRE_MAX_REL_DOSE",
        "mode": "HOTWIRE_REL_DOSE_MODE",
    }
    given = {names[key]: str(value) for key, value in environ.items()}
    standalone = from_environment({"HOTWIRE_VECTORS": str(vectors), **given})
    assert standalone is not None
    return standalone


def dose(tmp_path: Path, **environ: object) -> DosePolicy:
    """Returns the dose policy of an environment without vectors."""
    return load(tmp_path, **environ).snapshot.policy.dose


def save(path: Path, value: object) -> Path:
    """Writes what a .pt file holds."""
    torch.save(value, path)
    return path


@pytest.mark.parametrize("environ", [{}, {"HOTWIRE_VECTORS": ""}, {"HOTWIRE_H_NORMS": "x"}])
def test_without_vectors_there_is_no_standalone_mode(environ: dict[str, str]) -> None:
    """A daemon is expected then."""
    assert from_environment(environ) is None


def test_a_folder_of_files(tmp_path: Path) -> None:
    """Each .pt file is a vector by its file's name; other files are none of them."""
    save(tmp_path / "joy.pt", torch.ones(4, 8))
    save(tmp_path / "calm.v2.pt", torch.full((8,), 2.0))
    (tmp_path / "notes.txt").write_text("x")
    standalone = load(tmp_path)
    assert list(standalone.vectors) == ["calm.v2", "joy"]
    joy, calm = standalone.vectors["joy"], standalone.vectors["calm.v2"]
    assert (joy.layers, joy.any_layer, joy.rows.shape) == ((0, 1, 2, 3), False, (4, 8))
    assert (calm.layers, calm.any_layer, calm.rows.shape) == ((), True, (1, 8))
    assert standalone.snapshot.generation == 1
    assert standalone.snapshot.vectors["joy"].norms == pytest.approx([8**0.5] * 4)


def test_a_single_file(tmp_path: Path) -> None:
    """HOTWIRE_VECTORS may name one file, whatever its ending."""
    assert list(load(save(tmp_path / "joy.pt", torch.ones(8))).vectors) == ["joy"]
    assert list(load(save(tmp_path / "calm.bin", torch.ones(8))).vectors) == ["calm"]


def test_the_first_tensor_of_a_dict_counts(tmp_path: Path) -> None:
    """Whatever else is in it."""
    content = OrderedDict(note="x", first=torch.ones(2, 4), second=torch.zeros(3, 4))
    rows = load(save(tmp_path / "joy.pt", content)).vectors["joy"].rows
    assert rows.shape == (2, 4)
    assert rows.all()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32]
)
def test_rows_are_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    """Whatever they were; the source dtype is kept for the record."""
    data = load(save(tmp_path / "joy.pt", torch.arange(8).reshape(2, 4).to(dtype))).vectors["joy"]
    assert data.rows.dtype == np.float32
    assert data.rows.flags.c_contiguous
    assert data.rows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert data.source_dtype == str(dtype).removeprefix("torch.")


def test_views_are_copied(tmp_path: Path) -> None:
    """A transposed tensor, or one that needs a gradient, loads as what it shows."""
    tensor = torch.arange(8.0).reshape(4, 2).T.requires_grad_()
    data = load(save(tmp_path / "joy.pt", tensor)).vectors["joy"]
    assert data.rows.flags.c_contiguous
    assert data.rows.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_the_revision_is_that_of_the_canonical_bytes(tmp_path: Path) -> None:
    """So that workers, which hold blobs by revision, find what programs name."""
    standalone = load(save(tmp_path / "joy.pt", torch.randn(3, 8)))
    data, meta = standalone.vectors["joy"], standalone.snapshot.vectors["joy"]
    assert meta.revision == revision_of(canonical_bytes(data))
    back = parse_canonical(canonical_bytes(data))
    assert (back.rows == data.rows).all()
    assert (meta.layers, meta.norms, meta.any_layer) == (data.layers, data.norms, False)


class Hostile:
    """Unpickling it would touch a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.target,)


def test_a_bad_file_is_left_out_and_the_others_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One error for each, naming the file; nothing in a pickle is run."""
    touched, folder = tmp_path / "touched", tmp_path / "vectors"
    folder.mkdir()
    (folder / "pickle.pt").write_bytes(pickle.dumps(Hostile(touched), protocol=2))
    save(folder / "object.pt", {"x": Hostile(touched)})
    save(folder / "nan.pt", torch.tensor([1.0, float("nan")]))
    save(folder / "overflow.pt", torch.tensor([1e300], dtype=torch.float64))
    save(folder / "rank0.pt", torch.tensor(1.0))
    save(folder / "rank3.pt", torch.ones(2, 2, 2))
    save(folder / "empty.pt", torch.ones(0, 4))
    save(folder / "bool.pt", torch.ones(4, dtype=torch.bool))
    save(folder / "complex.pt", torch.ones(4, dtype=torch.complex64))
    save(folder / "sparse.pt", torch.ones(4, 4).to_sparse())
    save(folder / "none.pt", {"note": "no tensor"})
    (folder / "cut.pt").write_bytes((folder / "nan.pt").read_bytes()[:100])
    (folder / "zero.pt").write_bytes(b"")
    (folder / "folder.pt").mkdir()
    bad = {path.name for path in folder.iterdir()}
    save(folder / "good.pt", torch.ones(4))
    assert list(load(folder).vectors) == ["good"]
    assert not touched.exists()
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == len(bad)
    assert all(any(name in error for error in errors) for name in bad)


def test_a_path_that_is_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Still standalone, with no vectors, and one error."""
    assert load(tmp_path / "nowhere").vectors == {}
    assert len(caplog.records) == 1


def test_no_limit_unless_one_is_set(tmp_path: Path) -> None:
    """A table alone limits nothing, and isn't even read."""
    assert not dose(tmp_path).limited
    assert not dose(tmp_path, norms=tmp_path / "nowhere").limited


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_table_and_a_limit(tmp_path: Path, *, wrapped: bool) -> None:
    """Both forms of the table; reject is the default mode."""
    table = {"20": 54.9, "21": 55}
    norms = tmp_path / "norms.json"
    norms.write_text(json.dumps({"h_norms": table, "model": "m"} if wrapped else table))
    policy = dose(tmp_path, norms=norms, limit="1.5")
    assert policy == DosePolicy(DoseMode.REJECT, 1.5, None, True, {20: 54.9, 21: 55.0})


@pytest.mark.parametrize(
    ("limit", "mode", "expected", "value"),
    [
        ("1.5", "clamp", DoseMode.CLAMP, 1.5),
        ("1.5", "reject", DoseMode.REJECT, 1.5),
        ("1.5", "", DoseMode.REJECT, 1.5),
        ("1.5", "klamp", DoseMode.REJECT, 1.5),
        ("0", "clamp", DoseMode.CLAMP, 0.0),
        ("warn", "clamp", DoseMode.WARN, 0.0),
        ("inf", "reject", DoseMode.REJECT, None),
        ("nan", "clamp", DoseMode.REJECT, 0.0),
        ("-1", "clamp", DoseMode.REJECT, 0.0),
        ("lots", "clamp", DoseMode.REJECT, 0.0),
        ("", "clamp", DoseMode.REJECT, 0.0),
    ],
)
def test_limits_and_modes(
    tmp_path: Path, limit: str, mode: str, expected: DoseMode, value: float | None
) -> None:
    """A limit that can't be read lets nothing through."""
    policy = dose(tmp_path, limit=limit, mode=mode)
    assert (policy.mode, policy.max_relative_dose) == (expected, value)


def test_a_missing_norm_is_unmonitored(tmp_path: Path) -> None:
    """Without a table, or without an entry, requests run."""
    norms = tmp_path / "norms.json"
    norms.write_text('{"0": 10.0}')
    assert dose(tmp_path, limit="1").allow_unmonitored
    assert dose(tmp_path, limit="1", norms=norms).allow_unmonitored


@pytest.mark.parametrize(
    "text", ["{", "[1]", "7", '{"a": 1}', '{"1": "x"}', '{"1": null}', "[" * 9999]
)
def test_a_table_that_cannot_be_read_fails_closed(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator meant to limit, so nothing is steered until the table is mended."""
    norms = tmp_path / "norms.json"
    norms.write_text(text)
    policy = dose(tmp_path, limit="1", norms=norms)
    assert not policy.allow_unmonitored
    assert policy.reference_norms == {}
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_requests_of_a_hotwire_user(tmp_path: Path) -> None:
    """The request forms of hotwire-vllm, by files and variables of it, get their programs."""
    save(tmp_path / "joy.pt", torch.ones(4, 16))
    norms = tmp_path / "norms.json"
    norms.write_text('{"1": 8.0}')
    standalone = load(tmp_path, norms=norms, limit="1.0")
    admission = Admission(SnapshotHolder(standalone.snapshot), ModelShape(4), lambda: None)
    single = admission.decide({SPEC_KEY: '{"id": "joy", "layer": 1, "scale": 1.5}'}, "r")
    assert (single.reason, single.dose_outcome) == (None, "allowed")
    several = '[{"id": "joy", "layer": 1}, {"id": "joy", "layer": 2, "decode_only": true}]'
    assert admission.decide({SPEC_KEY: several}, "r").dose_outcome == "unmonitored"
    assert (
        admission.decide({SPEC_KEY: '{"id": "joy", "layer": 1, "scale": 2.1}'}, "r").reason
        == "DOSE_EXCEEDED"
    )
