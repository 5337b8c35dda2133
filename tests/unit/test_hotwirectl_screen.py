"""`stats --watch` on a terminal of its own: it draws, follows, resizes, and leaves no trace."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotwired.v1.stats_pb2 import EngineStats
from tests.fakes.fake_daemon import FakeDaemon, fake_daemon
from tests.support.ctl import VARIABLES, environment

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"

# The terminal becomes the one that the process is controlled by, so that it sends Ctrl-C.
_START = """
import fcntl, signal, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
from hotwirectl.main import main
main()
"""


class Terminal:
    """A terminal in which hotwirectl runs."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.ours, self.its = pty.openpty()
        self.resize(30, 150)
        self.before = termios.tcgetattr(self.its)
        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, *arguments],
            stdin=self.its,
            stdout=self.its,
            stderr=self.its,
            start_new_session=True,
            env=environment(**{"TERM": "xterm-256color", "NO_COLOR": "", **variables}),
        )

    def resize(self, rows: int, columns: int) -> None:
        """Makes it another size."""
        fcntl.ioctl(self.its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, pattern: str, seconds: float = 10.0) -> str:
        """Returns what is printed up to the pattern."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            left = end - time.monotonic()
            ready = select.select([self.ours], [], [], max(left, 0))[0]
            assert ready, f"no {pattern!r} in {self.seen[-2000:]!r}"
            self.seen += os.read(self.ours, 65536).decode(errors="replace")
        before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return before

    def type(self, keys: bytes) -> None:
        """Types keys."""
        os.write(self.ours, keys)

    def rest(self) -> str:
        """Returns what is printed until the process has ended."""
        self.process.wait(10)
        while select.select([self.ours], [], [], 0.1)[0]:
            self.seen += os.read(self.ours, 65536).decode(errors="replace")
        return self.seen

    def close(self) -> None:
        """Ends the process if it runs."""
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.its)


@pytest.fixture
def fake(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A stand-in with one engine."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    with fake_daemon(short_dir) as daemon:
        daemon.state.engines = [EngineStats(engine="i/0", requests_total=1)]
        yield daemon


@pytest.fixture
def terminal(fake: FakeDaemon) -> Iterator[Terminal]:
    """A terminal with the live screen."""
    terminal = Terminal("stats", "--watch", "--interval", "0.1")
    yield terminal
    terminal.close()


def test_it_draws_follows_and_leaves_the_terminal_as_it_was(
    terminal: Terminal, fake: FakeDaemon
) -> None:
    """Ctrl-C ends it with 0: cursor, screen and the line's mode are as they were."""
    terminal.until(re.escape(ENTER))
    terminal.until(r"kill switch .*off.*REQ/S.*i/0.*Ctrl-C ends")
    fake.state.engines[0].requests_total += 100
    fake.state.engines[0].requests_unsteered_total["KILL_SWITCH"] = 7
    fake.state.policy.kill_switch = True
    terminal.until(r"ON, nothing is steered.*i/0.*[1-9]\d+\.\d.*█.*KILL_SWITCH +.*7")
    terminal.type(b"\x03")
    rest = terminal.rest()
    assert terminal.process.returncode == 0
    assert LEAVE in rest
    assert SHOW in rest
    assert HIDE not in rest[rest.index(LEAVE) :]
    assert "Traceback" not in rest
    assert termios.tcgetattr(terminal.its) == terminal.before


def test_it_follows_the_size_of_the_terminal(terminal: Terminal) -> None:
    """What is drawn after the terminal has become smaller fits it."""
    terminal.until("UNSTEERED/S")
    terminal.resize(5, 40)
    for _ in range(4):  # the first ones may be of the old size
        last = terminal.until(r"\x1b\[H")
    assert "kill switch" in last
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last).splitlines()
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 40


def test_a_daemon_that_goes_leaves_a_sentence_on_the_screen_before(
    terminal: Terminal, fake: FakeDaemon
) -> None:
    """The error is printed when the terminal is as it was."""
    terminal.until("Ctrl-C ends")
    fake.stop()
    rest = terminal.rest()
    assert terminal.process.returncode == 78
    assert "error: " in rest[rest.index(LEAVE) :]


def test_a_signal_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    """SIGTERM ends it as the shell expects, and the cursor is shown."""
    terminal.until("Ctrl-C ends")
    terminal.process.send_signal(signal.SIGTERM)
    rest = terminal.rest()
    assert terminal.process.returncode == 128 + signal.SIGTERM
    assert LEAVE in rest
    assert SHOW in rest


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [(["-o", "json"], {}), ([], {"TERM": "dumb"})],
)
def test_lines_where_no_screen_is_wanted(
    arguments: list[str], variables: dict[str, str], fake: FakeDaemon
) -> None:
    """Another format, or a terminal that cannot move its cursor."""
    terminal = Terminal("stats", "--watch", "--interval", "0.1", *arguments, **variables)
    try:
        seen = terminal.until(r"(i/0.*){2}\n")
    finally:
        terminal.close()
    assert "\x1b" not in seen
