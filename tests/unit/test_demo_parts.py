"""The demo's parts that need no model: its texts, its processes, its report, its requests."""

import json
import sys
import time
from pathlib import Path

import pytest

from bench.demo import data, report
from bench.demo.api import Steering
from bench.demo.processes import Process, ProcessDiedError, wait_until
from bench.demo.stage import Check
from bench.demo.text import repeated

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def _python(tmp_path: Path, code: str) -> Process:
    return Process("thing", [sys.executable, "-c", code], tmp_path / "logs" / "thing.log", {})


def _gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().split()[2] == "Z"


def test_texts_are_enough_and_distinct() -> None:
    """Promised: a few dozen pairs, 20 prompts or more, and no word on both lists."""
    pairs, prompts, words = data.pairs(), data.prompts(), data.words()
    assert len(pairs) >= 36
    assert len(prompts) >= 20
    assert all(joyful != gloomy for joyful, gloomy in pairs)
    assert not set(words.positive) & set(words.negative)


def test_prompts_hold_none_of_the_words() -> None:
    """Promised: the openings are neutral, so the margin is the model's own view."""
    words = data.words()
    listed = {*words.positive, *words.negative}
    assert not [prompt for prompt in data.prompts() if listed & set(prompt.lower().split())]


def test_steering_asks_in_the_request_key() -> None:
    """Promised: the request carries the specification as JSON text, and nothing if unsteered."""
    asked = Steering(1.5, layer=3, name="joy", strict=True).xargs()
    assert json.loads(asked["vllm_xargs"]["hotwire"]) == {
        "id": "joy",
        "layer": 3,
        "scale": 1.5,
        "strict": True,
    }
    assert Steering().xargs() == {}


@pytest.mark.parametrize(
    ("text", "share"), [("", 0.0), ("one two", 0.0), ("a b c d", 0.0), ("a b c a b c", 0.25)]
)
def test_repeated_is_the_share_of_runs_seen_before(text: str, share: float) -> None:
    """Promised: of the three-word runs, those that came before count; short texts have none."""
    assert repeated(text) == share


def test_process_is_stopped_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promised: leaving the context ends the process and whatever it started."""
    monkeypatch.setattr("bench.demo.processes.STOP_SECONDS", 1.0)
    with _python(tmp_path, PARENT) as process:
        wait_until(lambda: bool(process.log.read_text()), [process], 10, "no child")
        child = int(process.log.read_text())
    assert process.exit_code is not None
    wait_until(lambda: _gone(child), [], 5, "the child lives on")


def test_process_that_ignores_the_request_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promised: one that won't end is killed, and that is told."""
    monkeypatch.setattr("bench.demo.processes.STOP_SECONDS", 0.3)
    with _python(tmp_path, STUBBORN) as process:
        time.sleep(0.3)
    assert process.killed


def test_death_is_told_with_the_end_of_the_log(tmp_path: Path) -> None:
    """Promised: waiting ends as soon as a process has died, and says why it did."""
    process = _python(tmp_path, "raise SystemExit('no such model')")
    with process, pytest.raises(ProcessDiedError, match="no such model"):
        wait_until(lambda: False, [process], 10, "never")


def test_waiting_has_an_end() -> None:
    """Promised: what doesn't come true in time is a TimeoutError that names it."""
    with pytest.raises(TimeoutError, match="the moon"):
        wait_until(lambda: False, [], 0.01, "the moon")


def test_report_passes_only_if_every_check_did(tmp_path: Path) -> None:
    """Promised: the file names each check, its figures, device, date and versions."""
    checks = [Check("good", True, "yes", {"n": 1}), Check("bad", False, "no")]
    report.write(tmp_path / "report.json", checks, 12.34)
    form = json.loads((tmp_path / "report.json").read_text())
    assert not form["passed"]
    assert form["checks"][0] == {"name": "good", "passed": True, "seen": "yes", "figures": {"n": 1}}
    assert {"device", "date", "versions", "seconds"} <= form.keys()
    report.write(tmp_path / "report.json", checks[:1], 1.0)
    assert json.loads((tmp_path / "report.json").read_text())["passed"]
    report.write(tmp_path / "report.json", [], 1.0)
    assert not json.loads((tmp_path / "report.json").read_text())["passed"]


def test_table_shows_texts_margins_and_results() -> None:
    """Promised: a person sees the three texts, the margin by scale, and what failed."""
    texts = [{"prompt": "It was", "-": " grim", "0": " fine", "+": " glorious"}]
    checks = [
        Check("reads", True, "well", {"texts": texts}),
        Check("grows", False, "not", {"margin_by_scale": {"-1": -2.0, "+0": 0.0, "+1": 2.0}}),
    ]
    shown = report.table(checks)
    for part in ("... grim", "... glorious", "FAILED", "passed", "+2.00", "-2.00"):
        assert part in shown
