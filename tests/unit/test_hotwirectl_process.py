"""hotwirectl as a process: signals, pipes, and who else writes on stderr."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.fake_daemon import FakeDaemon, Fault, fake_daemon

# A test run in the background of a shell has Ctrl-C ignored, and its children inherit that.
_START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from hotwirectl.main import main
main()
"""
CLI = [sys.executable, "-c", _START]


@pytest.fixture
def fake(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A running stand-in that hotwirectl finds by its environment."""
    for name in ("HOTWIRE_TIMEOUT", "HOTWIRE_OUTPUT", "HOTWIRE_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    with fake_daemon(short_dir) as daemon:
        yield daemon


@pytest.mark.parametrize("output", ["table", "json"])
def test_stats_watch_ends_well_on_ctrl_c(fake: FakeDaemon, output: str) -> None:
    """Samples come at once, one line each with one title, and Ctrl-C ends it with 0."""
    command = [*CLI, "stats", "--watch", "--interval", "0.1", "-o", output]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline().decode() for _ in range(4)]
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 0
        assert process.stderr.read() == b""
    if output == "json":
        assert all(json.loads(line)["generation"] == "1" for line in lines)
    else:
        assert lines[0].split()[:2] == ["TIME", "ENGINE"]
        assert sum("TIME" in line for line in lines) == 1


def test_a_command_that_is_interrupted_ends_with_130(fake: FakeDaemon) -> None:
    """Ctrl-C during a call is one sentence, not a traceback."""
    fake.state.faults["Stats"] = Fault(delay_s=2)
    with subprocess.Popen([*CLI, "stats"], stderr=subprocess.PIPE) as process:
        while not fake.state.calls:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_a_reader_that_has_enough_is_no_failure(fake: FakeDaemon) -> None:
    """`hotwirectl stats --watch | head -1` ends quietly."""
    command = [*CLI, "stats", "--watch", "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(5) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_grpc_itself_writes_nothing_on_stderr(fake: FakeDaemon, short_dir: Path) -> None:
    """A failed connection is our lines alone, from the true process."""
    result = subprocess.run(
        [*CLI, "--server", f"unix:{short_dir}/none", "--timeout", "0.2", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 78
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["error", "hint"]
