"""What a service manager is told, over a real datagram socket, by a real daemon."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotwired.server import SERVICE
from tests.daemon.harness import Daemon, Fleet, eventually

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy" / "systemd"

# The daemon, but for a round of its loop that blocks or fails for as long as a file is there.
STUCK = """
import sys, time
from pathlib import Path
from hotwired import main, reconcile, server

server.STUCK_SECONDS = 0.5
flag, how = Path(sys.argv.pop(1)), sys.argv.pop(1)
step = reconcile.Reconciler.step

def stuck(self):
    while flag.exists():
        if how == "fails":
            raise RuntimeError("a planted fault")
        time.sleep(0.02)
    step(self)

reconcile.Reconciler.step = stuck
main.main()
"""


class Manager:
    """The service manager's end of the socket. heard: all lines, in order."""

    def __init__(self, address: str) -> None:
        self.heard: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(address)

    def lines(self) -> list[str]:
        """Returns all that was heard until now."""
        while True:
            try:
                self.heard += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self.heard

    def count(self, line: str) -> int:
        """Returns how often a line was heard."""
        return self.lines().count(line)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


@pytest.fixture
def manager(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """A manager that started this test's daemons, with a watchdog of one second."""
    made = Manager(str(short_dir / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(short_dir / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    yield made
    made.close()


def test_from_ready_to_stopping(manager: Manager, fleet: Fleet) -> None:
    """READY once callers can connect, then the state in words and signs of life, then STOPPING."""
    daemon = fleet.daemon(start=False)
    daemon.process = daemon.spawn()
    eventually(lambda: "READY=1" in manager.lines(), 20)
    assert daemon.health() == "SERVING"
    daemon.register("joy")
    fleet.instance()
    eventually(lambda: "STATUS=generation 2, 1 vectors, 3 of 3 nodes converged" in manager.lines())
    eventually(lambda: manager.count("WATCHDOG=1") >= 2)
    assert "STOPPING=1" not in manager.heard
    assert daemon.stop() == 0
    assert manager.lines()[-2:] == ["STOPPING=1", "STATUS=stopping"]


def test_an_abstract_socket(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    """An `@` stands for the zero byte of its name."""
    name = f"hotwired-test-{time.monotonic_ns()}"
    manager = Manager(f"\0{name}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    fleet.daemon()
    assert manager.count("READY=1") == 1
    manager.close()


def test_a_manager_that_is_gone_harms_nobody(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    """The daemon serves without anybody to tell."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(short_dir / "nobody"))
    assert fleet.daemon().health() == "SERVING"


def test_a_daemon_that_cannot_start_is_never_ready(manager: Manager, fleet: Fleet) -> None:
    """A damaged store ends it before it has said anything."""
    daemon = fleet.daemon(start=False)
    daemon.state_dir.mkdir(mode=0o700)
    (daemon.state_dir / "registry.db").write_bytes(b"x" * 4096)
    process = daemon.spawn()
    process.communicate(timeout=20)
    assert process.returncode == 1
    assert manager.lines() == []


@pytest.mark.parametrize("how", ["blocks", "fails"])
def test_a_loop_that_is_stuck_feeds_no_watchdog(
    manager: Manager, fleet: Fleet, short_dir: Path, how: str
) -> None:
    """While its rounds block or fail, no WATCHDOG comes; when they pass again, it does.

    A daemon that can still answer says that it isn't well.
    """
    flag = short_dir / "stuck"
    daemon = Daemon(short_dir)
    daemon.entry = ("-c", STUCK, str(flag), how)
    try:
        daemon.start()
        eventually(lambda: manager.count("WATCHDOG=1"))
        flag.touch()
        time.sleep(0.3)  # a round that has begun may still end
        before = manager.count("WATCHDOG=1")
        time.sleep(1.2)
        assert manager.count("WATCHDOG=1") == before
        if how == "fails":
            assert daemon.health() == daemon.health(SERVICE) == "NOT_SERVING"
        flag.unlink()
        eventually(lambda: manager.count("WATCHDOG=1") > before)
        eventually(lambda: daemon.health() == daemon.health(SERVICE) == "SERVING")
    finally:
        flag.unlink(missing_ok=True)
        daemon.close()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_unit_is_valid(tmp_path: Path) -> None:
    """By systemd itself, its command and the drop-in of vLLM's unit included."""
    hotwired = Path(sys.executable).with_name("hotwired")
    text = (DEPLOY / "hotwired.service").read_text()
    (tmp_path / "hotwired.service").write_text(
        text.replace("/opt/hotwired/bin/hotwired", str(hotwired))
    )
    (tmp_path / "vllm.service").write_text("[Service]\nExecStart=/bin/true\n")
    (tmp_path / "vllm.service.d").mkdir()
    shutil.copy(DEPLOY / "vllm-hotwire.conf", tmp_path / "vllm.service.d")
    units = [str(tmp_path / name) for name in ("hotwired.service", "vllm.service")]
    result = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_both_units_share_user_and_directory() -> None:
    """Sockets are private to one user, and in a directory that outlives either service."""

    def settings(name: str) -> set[str]:
        wanted = ("User=", "Group=", "RuntimeDirectory", "Environment=HOTWIRE_RUN_DIR")
        lines = (DEPLOY / name).read_text().splitlines()
        return {line for line in lines if line.startswith(wanted)}

    assert settings("hotwired.service") == settings("vllm-hotwire.conf")
    assert "RuntimeDirectoryPreserve=yes" in settings("hotwired.service")


def test_the_unit_asks_for_what_the_daemon_tells() -> None:
    """Also where there is no systemd to check it."""
    lines = set((DEPLOY / "hotwired.service").read_text().splitlines())
    assert {"Type=notify", "WatchdogSec=10s", "StateDirectory=hotwired"} <= lines
    keys = [line.partition("=")[0] for line in lines if "=" in line and line[0] != "#"]
    assert all(key.isalpha() for key in keys)
