"""The parts of hotwirectl verify: distances, places, plots, what is scrubbed, the throwaway."""

import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from hotwirectl.main import cli, run
from hotwirectl.verify import command, cost, costs, plots, throwaway
from hotwirectl.verify.answers import Answer, Top, distance
from hotwirectl.verify.machine import facts, scrubbed
from hotwirectl.verify.results import Timing
from hotwirectl.verify.run import CHECKS
from hotwirectl.verify.tap_checks import tapped_layers


def _answer(*tops: tuple[str, dict[str, float]]) -> Answer:
    return Answer("id", "", tuple(Top(*top) for top in tops))


def test_distance() -> None:
    """The largest difference up to where tokens part; a near tie is small, a new token is not."""
    one = _answer(("a", {"a": -1.0, "b": -1.01}), ("c", {"c": -0.5}))
    assert distance(one, one) == 0.0
    shifted = _answer(("a", {"a": -1.25, "b": -1.01}), ("c", {"c": -0.5}))
    assert distance(one, shifted) == 0.25
    tie = _answer(("b", {"b": -1.0, "a": -1.01}), ("z", {"z": -0.5}))
    assert distance(one, tie) == pytest.approx(0.01)
    other = _answer(("x", {"x": -0.1, "y": -4.0}))
    assert distance(one, other) == distance(other, one) == pytest.approx(3.0)
    assert distance(one, _answer(("a", {}))) == math.inf


def test_distance_of_texts_alone() -> None:
    """Without log-probabilities, texts are equal or not."""
    assert distance(Answer("1", "a"), Answer("2", "a")) == 0.0
    assert distance(Answer("1", "a"), Answer("2", "b")) == math.inf


@pytest.mark.parametrize(
    ("layers", "stages", "quick", "wanted"),
    [
        (30, 1, False, [0, 15, 29]),
        (30, 1, True, [15]),
        (32, 4, True, [4, 12, 20, 28]),
        (32, 2, False, [0, 8, 24, 31]),
        (1, 1, False, [0]),
    ],
)
def test_every_stage_has_a_layer(layers: int, stages: int, quick: bool, wanted: list[int]) -> None:  # noqa: FBT001
    """The middle of each, and both ends of the model."""
    assert tapped_layers(layers, stages, quick=quick) == wanted


def test_paths_are_scrubbed_and_nothing_else() -> None:
    """Only the last part of an absolute path is left; node names and shares are no paths."""
    assert scrubbed("no blocks in /home/ada/m-1/x.py, 3/4") == "no blocks in x.py, 3/4"
    assert scrubbed("7f3a9/worker-0-0-0 at 10.5 tokens/s") == "7f3a9/worker-0-0-0 at 10.5 tokens/s"


def test_the_facts_name_no_host() -> None:
    """Device, kernel and versions are there."""
    found = facts()
    assert found["python"] == sys.version.split()[0]
    assert os.uname().release in found["kernel"]
    assert "cores" in found["device"]
    assert os.uname().nodename not in " ".join(found.values()).split()


@pytest.mark.parametrize(
    "svg",
    [
        plots.lines([(1.0, 0.01), (4.0, 0.2)], 1e-4, "scale", "nats"),
        plots.lines([(1.0, 0.0), (4.0, math.inf)], 1e-4, "scale", "nats"),
        plots.bars({"layer 3 & <post>": 0.2, "none": 0.0, "far": math.inf}, "nats"),
        plots.strips({"a": [1.0, 2.0, 3.0], "b": []}, "ms"),
        plots.strips({}, "ms"),
    ],
)
def test_plots_are_well_formed(svg: str) -> None:
    """With any figures, and whatever stands in a name; nothing is drawn outside."""
    root = ET.fromstring(svg)
    width, height = (float(n) for n in root.attrib["viewBox"].split()[2:])
    for mark in root.iter():
        x, y = mark.attrib.get("cx", mark.attrib.get("x")), mark.attrib.get("cy")
        assert x is None or 0 <= float(x) <= width
        assert y is None or 0 <= float(y) <= height


def test_longer_is_higher_in_a_plot() -> None:
    """The greater of two values has the longer bar, by the ratio that a log scale gives."""
    root = ET.fromstring(plots.bars({"a": 0.1, "b": 1.0, "c": 10.0}, "nats"))
    widths = [float(rect.attrib["width"]) for rect in root.iter("rect")]
    assert widths[2] == pytest.approx(2 * widths[1], rel=0.01)
    assert widths[0] < widths[1]


def test_the_document_has_every_check_and_option() -> None:
    """docs/verify.md names what run.CHECKS has, in its order, and each option of the command."""
    document = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
    rows = re.findall(r"^\| (.*?) \|", document.partition("## What it shows")[2], re.MULTILINE)
    assert rows[1 : 1 + len(CHECKS)] == [name for name, _ in CHECKS]
    common = {o for p in cli.params for o in p.opts}
    flags = {o for p in command.verify.params for o in p.opts if o.startswith("-")} - common
    assert all(f"`{flag}" in document for flag in flags), flags


def test_quantiles_and_pairs() -> None:
    """As numpy has them; what is paired is paired round by round."""
    assert cost.quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert cost.quantile([1.0], 0.9) == 1.0
    more = cost.paired(Timing("a", (2.0, 3.0)), Timing("b", (1.0, 2.0)))
    assert more == [1.0, 0.5]


def test_an_idle_cost_within_what_bare_runs_differ_by_is_not_claimed() -> None:
    """Two bare runs 10 % apart tell nothing of 3 %, and something of 30 %."""
    bare = [
        Timing(f"{cost.BARE}, {when}", (ms,)) for when, ms in (("before", 9.5), ("after", 10.5))
    ]
    for ms, more, told in ((10.3, 0.03, False), (13.0, 0.3, True)):
        timings = [Timing(cost.UNSTEERED, (ms,)), *bare]
        assert costs.idle_cost(timings) == {
            "more": pytest.approx(more),
            "bare_apart": pytest.approx(0.1),
        }
        assert ("no cost is told" in costs.table(timings)) != told
    assert costs.idle_cost([Timing(cost.UNSTEERED, (1.0,)), cost.NO_BARE]) is None


def test_bare_vllm_keeps_the_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """This one alone is left out."""
    points = [type("Point", (), {"name": name}) for name in ("lora", "hotwire_plugin", "fp")]
    monkeypatch.setattr(throwaway.metadata, "entry_points", lambda **_: points)
    assert throwaway.bare_plugins() == "fp,lora"


def test_without_vllm_there_is_no_throwaway(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage error that says so, with a directory and no daemon."""
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    monkeypatch.setenv("PATH", str(short_dir))
    monkeypatch.setattr(throwaway.sys, "executable", str(short_dir / "python"))
    monkeypatch.setattr("hotwirectl.precedence.DEFAULT_CONNECT_TIMEOUT", 0.1)
    assert run(["verify", "--model", str(short_dir)]) == 2
    assert "there is no `vllm` here to start" in capsys.readouterr().err


def test_a_vllm_that_ends_at_once_is_reported_and_nothing_is_left(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 4 with the end of its log; the directory and the daemon are gone."""
    for name, script in (("vllm", "echo it is broken; exit 3"), ("hotwired", "exec sleep 60")):
        (short_dir / name).write_text(f"#!/bin/sh\necho $$ >> {short_dir}/pids\n{script}\n")
        (short_dir / name).chmod(0o700)
    monkeypatch.setattr(throwaway.sys, "executable", str(short_dir / "python"))
    monkeypatch.setattr(throwaway.tempfile, "mkdtemp", lambda **_: _made(short_dir / "own"))
    code = run(["verify", "--throwaway", "--quick", "--model", str(short_dir)])
    said = capsys.readouterr().err
    assert code == 4, said
    assert "vllm ended with 3" in said
    assert "it is broken" in said
    assert not (short_dir / "own").exists()
    for pid in map(int, (short_dir / "pids").read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _made(path: Path) -> str:
    path.mkdir()
    return str(path)


def test_a_process_that_will_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    """SIGTERM is ignored by both: the session is killed."""
    throwaway_stop = 0.2
    script = "import os,signal,time; signal.signal(15, 1); os.fork(); os.write(1, b'up\\n'); time.sleep(60)"  # noqa: E501
    log = tmp_path / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(throwaway, "_STOP_SECONDS", throwaway_stop)
        command = [sys.executable, "-c", script]
        with throwaway._process(command, log, os.environ) as process:
            throwaway._wait(lambda: len(log.read_text().split()) == 2, (process,), 10)
    assert process.popen.returncode == -signal.SIGKILL
    running = subprocess.run(["ps", "-o", "stat=", "-g", str(process.popen.pid)],
                             capture_output=True, text=True, check=False).stdout  # fmt: skip
    assert all(line.strip().startswith("Z") for line in running.splitlines())
