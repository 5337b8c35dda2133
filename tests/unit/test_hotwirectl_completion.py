"""Completion, as a real bash does it with the script that `completion` prints."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grpc
import pytest

from hotwire_client import Client
from tests.fakes.fake_daemon import FakeDaemon, Fault, fake_daemon, node, write_vector
from tests.support.ctl import VARIABLES, environment

BASH = """
eval "$SCRIPT"
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMPREPLY=()
_hotwirectl_completion hotwirectl
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def fake(short_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDaemon]:
    """A stand-in with vectors, a node and contexts; `hotwirectl` is on the PATH."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    script = short_dir / "bin" / "hotwirectl"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hotwirectl "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    config = tmp_path / "config.toml"
    config.write_text("[contexts.prod]\n[contexts.play]\n[contexts.staging]\n")
    monkeypatch.setenv("HOTWIRE_CONFIG", str(config))
    with fake_daemon(short_dir) as daemon, Client(daemon.address) as client:
        file = write_vector(tmp_path / "v.safetensors")
        for name in ("joy", "jolt", "calm"):
            client.register_vector(file, name=name)
        daemon.state.nodes = [node("i/engine-0-0-0")]
        yield daemon


@cache
def script() -> str:
    """Returns what `hotwirectl completion bash` prints."""
    command = [sys.executable, "-m", "hotwirectl", "completion", "bash"]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=True
    ).stdout


def completed(line: str) -> list[str]:
    """Returns what bash offers at the end of the line."""
    result = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", *line.split(" ")],
        env=environment(SCRIPT=script()),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert result.stderr == ""
    return [word for word in result.stdout.split("\n") if word]


def test_vectors(fake: FakeDaemon) -> None:
    """The registered names that begin so."""
    assert sorted(completed("hotwirectl show j")) == ["jolt", "joy"]


@pytest.mark.parametrize(("shell", "at"), [("zsh", "2"), ("fish", "j")])
def test_what_the_scripts_of_other_shells_ask(shell: str, at: str, fake: FakeDaemon) -> None:
    """The same names, in the form that the script of each takes apart."""
    asked = {"COMP_WORDS": "hotwirectl show j", "COMP_CWORD": at}
    result = subprocess.run(
        ["hotwirectl"],
        env=environment(_HOTWIRECTL_COMPLETE=f"{shell}_complete", **asked),
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"jolt", "joy"} <= set(result.stdout.replace(",", "\n").split("\n"))
    assert "calm" not in result.stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("hotwirectl delete vector/c", ["vector/calm"]),
        ("hotwirectl vector set ca", ["calm"]),
        ("hotwirectl nodes i", ["i/engine-0-0-0"]),
        ("hotwirectl context use p", ["play", "prod"]),
        ("hotwirectl --context s", ["staging"]),
        ("hotwirectl list --context p", ["play", "prod"]),
        ("hotwirectl policy set --mode re", ["reject"]),
        ("hotwirectl list -o y", ["yaml"]),
        ("hotwirectl vers", ["version"]),
        ("hotwirectl stats --wa", ["--watch"]),
    ],
)
def test_what_else_is_completed(line: str, offered: list[str], fake: FakeDaemon) -> None:
    """Contexts, nodes, words and options."""
    assert sorted(completed(line)) == offered


def test_a_daemon_that_is_slow_or_fails_is_silent(fake: FakeDaemon) -> None:
    """After a second at the most, with nothing to offer."""
    fake.state.faults["ListVectors"] = Fault(delay_s=4)
    start = time.monotonic()
    assert completed("hotwirectl show j") == []
    assert time.monotonic() - start < 3.5  # two starts of the command in it
    fake.state.faults["ListVectors"] = Fault(grpc.StatusCode.INTERNAL, "INTERNAL", "broken")
    assert completed("hotwirectl show j") == []


def test_a_broken_configuration_is_silent(
    fake: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither names nor contexts, and no words of error in the prompt."""
    broken = tmp_path / "broken.toml"
    broken.write_text("[contexts")
    monkeypatch.setenv("HOTWIRE_CONFIG", str(broken))
    assert completed("hotwirectl show j") == []
    assert completed("hotwirectl --context p") == []
    assert completed("hotwirectl vers") == ["version"]
