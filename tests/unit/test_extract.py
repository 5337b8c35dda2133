"""hotwirectl extract: a known direction comes back, on a tiny model and on the demo's."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from hotwirectl.extract import contrast
from hotwirectl.main import run
from hotwirectl.terms import parse_layers
from tests.support.engine_models import LAYERS, SMOLLM2, TINY_LAYERS, TINY_WIDTH, smollm2
from tests.support.tiny_lm import make_tiny_lm

POSITIVE, NEGATIVE = "w1 w2 w3\nw4 w5\nw6 w7 w8 w9\n", "w11 w12\nw13 w14 w15\nw16 w17\n"

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


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with a tokenizer that splits at spaces."""
    return make_tiny_lm(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def command(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The command with its model and prompts."""
    (tmp_path / "glad.txt").write_text(POSITIVE)
    (tmp_path / "sad.txt").write_text(NEGATIVE)
    monkeypatch.chdir(tmp_path)
    return ["extract", "--model", tiny, "--positive", "glad.txt", "--negative", "sad.txt"]


def states(tiny: Path, prompts: str) -> list[np.ndarray[Any, Any]]:
    """Returns the hidden states behind all blocks but the last: [layers, tokens, width]."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny).eval()
    ids = [[int(word[1:]) for word in line.split()] for line in prompts.splitlines()]
    with torch.no_grad():
        found = [model(torch.tensor([i]), output_hidden_states=True).hidden_states for i in ids]
    return [torch.stack(each[1:-1])[:, 0].numpy() for each in found]


@pytest.mark.parametrize("position", ["last", "mean"])
def test_the_difference_of_means_is_that_of_the_hidden_states(
    ctl: Ctl, tiny: Path, command: list[Any], position: str
) -> None:
    """At the last token, or over all but the first; row i is behind block i."""
    code, out, err = ctl(*command, "--position", position)
    assert (code, err) == (0, "")
    assert re.fullmatch(
        r"vector/glad extracted \(layers 0-3, width 128, 3 positive and 3 negative prompts, "
        r"revision [0-9a-f]{8}\) to glad.safetensors\n",
        out,
    )

    def pooled(prompts: str) -> Any:
        take = (lambda s: s[:, -1]) if position == "last" else (lambda s: s[:, 1:].mean(1))
        return np.mean([take(s) for s in states(tiny, prompts)], 0)

    rows = load_file("glad.safetensors")["vector"]
    assert rows.shape == (TINY_LAYERS, TINY_WIDTH)
    expected = pooled(POSITIVE) - pooled(NEGATIVE)
    np.testing.assert_allclose(rows[:-1], expected, rtol=1e-3, atol=1e-4)


def test_what_a_vector_says_of_itself(ctl: Ctl, command: list[Any]) -> None:
    """Model, method, position and prompts; --layers and --out are heeded."""
    code, out, _ = ctl(*command, "--layers", "1,3", "--out", "v.safetensors", "-o", "json")
    form = json.loads(out)
    assert (code, form["layers"], form["file"]) == (0, [1, 3], "v.safetensors")
    with safe_open("v.safetensors", "np") as file:
        metadata = file.metadata()
    assert (metadata["layers"], metadata["model"]) == ("1,3", "tiny")
    assert (metadata["method"], metadata["position"]) == ("mean", "last")
    assert re.fullmatch(r"3, sha256 [0-9a-f]{64}", metadata["positive_prompts"])
    everything = load_file("v.safetensors")["vector"]
    ctl(*command, "--out", "all.safetensors")
    assert np.array_equal(everything, load_file("all.safetensors")["vector"][[1, 3]])


def test_pca_takes_pairs(ctl: Ctl, command: list[Any]) -> None:
    """It leans to the mean difference; sets that are no pairs are refused."""
    assert ctl(*command, "--method", "pca", "--out", "p.safetensors")[0] == 0
    assert ctl(*command, "--out", "m.safetensors")[0] == 0
    pca, mean = (load_file(f"{name}.safetensors")["vector"] for name in "pm")
    assert (np.einsum("ij,ij->i", pca, mean) > 0).all()
    Path("glad.txt").write_text("w1 w2\n")
    code, out, err = ctl(*command, "--method", "pca")
    assert (code, out) == (2, "")
    assert "pca takes pairs, and there are 1 positive prompts and 3 negative ones" in err


def test_wrong_ways_to_ask(ctl: Ctl, command: list[Any], tmp_path: Path) -> None:
    """A layer that the model has not, prompts without a token, no model, another suffix."""
    assert "layer 4 is not in 0 to 3" in ctl(*command, "--layers", "2-4")[2]
    assert ctl(*command, "--layers", "4-2")[0] == 2
    assert ctl(*command, "--out", "v.pt")[0] == 2
    assert "(MODEL_UNREADABLE)" in ctl(*command, "--model", tmp_path)[2]
    Path("sad.txt").write_text("w1\n")
    assert "it has too few tokens" in ctl(*command, "--position", "mean")[2]
    assert not Path("glad.safetensors").exists()


def test_without_its_libraries(
    ctl: Ctl, command: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXTRA_MISSING, with what to install."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, _, err = ctl(*command)
    assert (code, "`extract` needs what is not installed" in err) == (2, True)
    assert "hint: pip install 'hotwired[norms]'" in err


def test_a_planted_direction_is_found() -> None:
    """By both methods: the mean exactly, the component along it, with its length."""
    random = np.random.default_rng(5)
    planted = random.standard_normal((2, 16))
    noise = random.standard_normal((2, 40, 2, 16)) * 0.1
    strengths = random.uniform(0.5, 2.0, 40)
    negative = noise[0].astype(np.float32)
    positive = (noise[1] + strengths[:, None, None] * planted).astype(np.float32)
    mean = contrast.direction(positive, negative, "mean")
    np.testing.assert_allclose(mean, positive.mean(0) - negative.mean(0), atol=1e-5)
    pca = contrast.direction(positive, negative, "pca")
    for layer in range(2):
        cosine = pca[layer] @ planted[layer]
        cosine /= np.linalg.norm(pca[layer]) * np.linalg.norm(planted[layer])
        assert cosine > 0.999
        length = np.linalg.norm(pca[layer]) / np.linalg.norm(planted[layer])
        assert length == pytest.approx(strengths.mean(), rel=0.02)


def test_layers_are_parsed() -> None:
    """Numbers and ranges; nothing else."""
    assert parse_layers("12") == (12,)
    assert parse_layers("20,3-5,4") == (3, 4, 5, 20)
    for bad in ("", "a", "1-", "-1", "1,,2", "5-3", "1 2", "99999"):
        with pytest.raises(ValueError, match=r"list of layers|ends before"):
            parse_layers(bad)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_model_tells_glad_from_sad(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle layers a vector of six pairs leans to what sentences held out differ in."""
    from bench.demo import data
    from hotwirectl.norms.eager import Eager

    smollm2()
    monkeypatch.chdir(tmp_path)
    pairs = data.pairs()
    for name, side in (("glad", 0), ("sad", 1)):
        Path(f"{name}.txt").write_text("\n".join(pair[side] for pair in pairs[:6]))
    command = ("extract", "--model", SMOLLM2, "--positive", "glad.txt", "--negative", "sad.txt")
    assert ctl(*command, "--position", "mean")[0] == 0
    rows = load_file("glad.safetensors")["vector"]
    assert len(rows) == LAYERS
    eager = Eager(SMOLLM2)
    for layer in (12, 16, 20):
        leanings = [
            (eager.pooled(glad, last=False) - eager.pooled(sad, last=False))[layer] @ rows[layer]
            for glad, sad in pairs[10:12]
        ]
        assert min(leanings) > 0
