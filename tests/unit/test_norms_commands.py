"""hotwirectl norms as it is run: on a tiny model, on files, on the policy in force."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hotwirectl.main import run
from hotwirectl.norms import view
from hotwirectl.norms.table import FirstTokens, LayerNorms, NormTable, write
from tests.fakes.fake_daemon import FakeDaemon, fake_daemon
from tests.support.engine_models import SMOLLM2, TINY_LAYERS, TINY_WIDTH, smollm2
from tests.support.tiny_lm import make_tiny_lm

PROMPTS = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12\n\nw20 w21 w22 w23 w24 w25 w26 w27 w28\n"
SHOWN = """\
model          tiny
fingerprint    2x8-0123456789abcdef
norms of       the residual stream after each block, float32
positions      1,200 positions, 3 prompts of 100-700 tokens
first tokens   1 of each prompt left out; up to 40 times a layer's mean
source         hotwirectl norms measure, cpu
bar            the mean, shaded from there to p95

LAYER   MEAN    P50     P95   MAX     FIRST   BAR
0       10      9       16    20.25   400     ████████░░░░░
1       20.25   20.12   40    1000    -       ████████████████▎░░░░░░░░░░░░░░░
"""
TABLE = NormTable(
    "tiny",
    "2x8-0123456789abcdef",
    {0: LayerNorms(10.0, 9.0, 16.0, 20.25, 1200), 1: LayerNorms(20.25, 20.125, 40.0, 1000.0, 1200)},
    FirstTokens(1, "as asked", {0: LayerNorms(400.0)}),
    "float32",
    {"count": 3, "shortest": 100, "longest": 700},
    {"tool": "hotwirectl norms measure", "device": "cpu"},
)

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
    """A stand-in that hotwirectl finds by its environment."""
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    with fake_daemon(short_dir) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with a tokenizer that splits at spaces."""
    return make_tiny_lm(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Two prompts, of 12 and 9 tokens."""
    path = tmp_path / "prompts.txt"
    path.write_text(PROMPTS)
    return path


def test_measured_norms_are_those_of_the_hidden_states(
    ctl: Ctl, tiny: Path, prompts: Path, tmp_path: Path
) -> None:
    """Against transformers' own tuple, but for its last, which is behind the final norm."""
    import torch
    from transformers import AutoModelForCausalLM

    out = tmp_path / "n.json"
    command = ("norms", "measure", "--model", tiny, "--prompts", prompts)
    code, said, note = ctl(*command, "--skip-first", 2, "--out", out)
    assert (code, said) == (0, f"norms/tiny measured (layers 0-3, 17 positions) to {out}\n")
    assert "note: the prompts are short (median 10.5 tokens)" in note
    model = AutoModelForCausalLM.from_pretrained(tiny).eval()
    ids = [list(range(1, 13)), list(range(20, 29))]
    with torch.no_grad():
        states = [model(torch.tensor([i]), output_hidden_states=True).hidden_states for i in ids]
    form = json.loads(out.read_text())
    for layer in range(TINY_LAYERS - 1):
        expected = np.concatenate([s[layer + 1][0, 2:].norm(dim=-1).numpy() for s in states])
        found = form["layers"][str(layer)]
        assert found["mean"] == pytest.approx(expected.mean(), rel=1e-5)
        assert found["p50"] == pytest.approx(np.percentile(expected, 50), rel=1e-5)
        assert (found["count"], form["first_tokens"]["layers"][str(layer)]["count"]) == (17, 4)


def test_what_a_measured_table_says_of_itself(ctl: Ctl, tiny: Path, prompts: Path) -> None:
    """Model, dtype, prompts and versions; --max-tokens cuts; without --out it is printed."""
    command = ("norms", "measure", "--model", tiny, "--prompts", prompts, "--max-tokens", 10)
    code, out, _ = ctl(*command, "-o", "json")
    form = json.loads(out)
    assert (code, form["schema"], form["dtype"]) == (0, "hotwire.norms/1", "float32")
    assert form["fingerprint"].startswith(f"{TINY_LAYERS}x{TINY_WIDTH}-")
    about = form["prompts"]
    assert (about["count"], about["tokens"], about["longest"]) == (2, 19, 10)
    assert form["first_tokens"]["skipped"] == 1
    assert {"hotwired", "torch", "transformers"} == form["source"]["versions"].keys()


def test_a_directory_without_a_model_is_refused(ctl: Ctl, tmp_path: Path, prompts: Path) -> None:
    """With a reason, before or after its configuration was read."""
    command = ("norms", "measure", "--model", tmp_path, "--prompts", prompts)
    assert ctl(*command)[0] == 2
    config = {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 9, "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, out, err = ctl(*command)
    assert (code, out) == (2, "")
    assert "(MODEL_UNREADABLE)" in err


@pytest.mark.parametrize("module", ["torch", "transformers"])
def test_measuring_without_its_libraries(
    module: str, ctl: Ctl, tiny: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXTRA_MISSING, with what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    code, out, err = ctl("norms", "measure", "--model", tiny, "--prompts", prompts)
    assert (code, out) == (2, "")
    assert "(EXTRA_MISSING)" in err
    assert "hint: pip install 'hotwired[norms]'" in err


def test_plotting_without_matplotlib(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same; no file is left."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write(TABLE, tmp_path / "n.json")
    code, out, err = ctl("norms", "show", tmp_path / "n.json", "--png", tmp_path / "n.png")
    assert (code, out) == (2, "")
    assert "hint: pip install 'hotwired[plot]'" in err
    assert not (tmp_path / "n.png").exists()


def test_a_table_is_shown(ctl: Ctl, tmp_path: Path) -> None:
    """As text, line by line, and as the JSON it was."""
    write(TABLE, tmp_path / "n.json")
    assert ctl("norms", "show", tmp_path / "n.json") == (0, SHOWN, "")
    shown = ctl("norms", "show", tmp_path / "n.json", "-o", "json")[1]
    assert json.loads(shown) == TABLE.form()


def test_bars_are_as_long_as_what_they_show() -> None:
    """In eighths, at least one, and shaded only past the mean."""
    assert view.bar(10, None, 10, width=4) == "████"
    assert view.bar(5.3, None, 10, width=4) == "██▏"
    assert view.bar(0.001, None, 10, width=4) == "▏"
    assert view.bar(5, 10, 10, width=4) == "██░░"
    assert view.bar(8, 5, 10, width=4) == "███▎"


def test_a_plot_is_a_png(ctl: Ctl, tmp_path: Path) -> None:
    """Beside the text."""
    write(TABLE, tmp_path / "n.json")
    assert ctl("norms", "show", tmp_path / "n.json", "--png", tmp_path / "n.png")[1] == SHOWN
    assert (tmp_path / "n.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert ctl("norms", "show", tmp_path / "n.json", "--png", tmp_path / "no" / "n.png")[0] == 2


def test_the_policys_norms_are_shown(ctl: Ctl, fake: FakeDaemon, tmp_path: Path) -> None:
    """What `policy set` took from a table, with its fingerprint."""
    assert ctl("norms", "show")[0] == 2
    write(TABLE, tmp_path / "n.json")
    assert ctl("policy", "set", "--reference-norms", tmp_path / "n.json")[0] == 0
    form = json.loads(ctl("norms", "show", "-o", "json")[1])
    assert form["fingerprint"] == TABLE.fingerprint
    assert [form["layers"][n]["mean"] for n in ("0", "1")] == [10.0, 20.25]
    assert f"reference_norms_fingerprint   {TABLE.fingerprint}" in ctl("policy", "show")[1]
    assert fake.state.policy.reference_norms[1] == 20.25


def test_import_says_what_it_assumed(ctl: Ctl, tiny: Path, tmp_path: Path) -> None:
    """And refuses a bare list until it is told."""
    file, out = tmp_path / "h.json", tmp_path / "n.json"
    file.write_text("[1, 2, 3, 4, 5]")
    code, _, err = ctl("norms", "import", file, "--model", tiny)
    assert code == 2
    assert "say so with --layer-base" in err
    told = ("--layer-base", "hidden-states", "--model", tiny, "--out", out)
    code, said, err = ctl("norms", "import", file, *told)
    assert (code, said) == (0, f"norms/tiny imported (layers 0-2) to {out}\n")
    assert err.count("note: ") == 3
    assert ctl("norms", "show", out)[0] == 0


@pytest.mark.slow
def test_the_demo_model_is_measured(ctl: Ctl, tmp_path: Path) -> None:
    """Its first token is a sink, apart from a table that covers all its layers."""
    smollm2()
    prompts = tmp_path / "p.txt"
    sentence = "The ferry left the harbour at six, with four cars on its deck and a dog. "
    prompts.write_text("\n\n".join(sentence * n for n in (6, 8, 10)))
    code, out, _ = ctl("norms", "measure", "--model", SMOLLM2, "--prompts", prompts, "-o", "json")
    form = json.loads(out)
    assert code == 0
    assert form["fingerprint"] == "30x576-0f86a13132d4ae6f"
    assert len(form["layers"]) == 30
    assert form["first_tokens"]["layers"]["16"]["mean"] > 20 * form["layers"]["16"]["mean"]
