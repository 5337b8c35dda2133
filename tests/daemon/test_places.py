"""Where the daemon lives: its socket and directories are its own, private, and nobody else's."""

import os
import socket
from pathlib import Path

import pytest

from tests.daemon.harness import Fleet, failed_start
from tests.daemon.harness import fleet as make_fleet


def test_a_second_daemon_is_refused(fleet: Fleet) -> None:
    """Same socket, state or nodes: it says DAEMON_LOCKED, and the first one is unharmed."""
    daemon = fleet.daemon()
    daemon.register("joy")
    assert daemon.process is not None
    for options in (
        (),
        ("--state-dir", str(daemon.root / "other")),
        ("--listen", f"unix:{daemon.root}/other.sock"),
        ("--state-dir", str(daemon.root / "third"), "--listen", f"unix:{daemon.root}/third.sock"),
    ):
        message = failed_start(daemon, *options)
        assert "DAEMON_LOCKED" in message
        assert str(daemon.process.pid) in message
    assert daemon.names() == ["joy"]


def test_a_path_is_no_uri(short_dir: Path) -> None:
    """A run directory may hold what would be an escape, a query or a fragment in gRPC's address."""
    for fleet in make_fleet(short_dir / "a%41 b#?"):
        fleet.root.mkdir()
        daemon = fleet.daemon()
        fleet.instance()
        daemon.wait_for(3)
        assert daemon.register().converged


def test_a_stale_socket_is_replaced_and_anything_else_is_not(fleet: Fleet) -> None:
    """A crash leaves a socket; a file there is somebody's."""
    daemon = fleet.daemon()
    daemon.kill()
    assert daemon.socket.exists()
    daemon.start()
    daemon.stop()
    daemon.socket.write_text("mine")
    assert "SOCKET_INVALID" in failed_start(daemon)
    assert daemon.socket.read_text() == "mine"


def test_places_are_private(fleet: Fleet) -> None:
    """Socket 0660 in 0750, the state 0700; a directory that others can come into is refused."""
    daemon = fleet.daemon()
    assert daemon.socket.stat().st_mode & 0o777 == 0o660
    assert daemon.run_dir.stat().st_mode & 0o777 == 0o750
    for directory in (daemon.state_dir, daemon.state_dir / "blobs"):
        assert directory.stat().st_mode & 0o777 == 0o700
    daemon.stop()
    daemon.run_dir.chmod(0o777)
    assert "DIRECTORY_UNSAFE" in failed_start(daemon)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_the_group_may_connect_and_nobody_else(fleet: Fleet) -> None:
    """To the socket in a common run directory, as docs/security.md has it made."""
    fleet.root.chmod(0o755)
    run_dir = fleet.root / "run"
    run_dir.mkdir()
    os.chown(run_dir, 2001, 3000)
    run_dir.chmod(0o3770)
    daemon = fleet.daemon()
    found = daemon.socket.stat()
    assert (found.st_mode & 0o777, found.st_gid) == (0o660, 3000)
    assert connects(daemon.socket, 2002, 3000)
    assert not connects(daemon.socket, 2003, 4000)
    assert not connects(daemon.socket, 2003, 0)


def connects(path: Path, user: int, group: int) -> bool:
    """Whether a process of another user, with one group, can connect to a socket."""
    if (child := os.fork()) == 0:
        ending = 1
        try:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            socket.socket(socket.AF_UNIX).connect(str(path))
            ending = 0
        finally:
            os._exit(ending)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_socket_path_too_long_is_named(fleet: Fleet) -> None:
    """Before anything is made."""
    daemon = fleet.daemon(start=False)
    assert "107" in failed_start(daemon, "--listen", "unix:/tmp/" + "x" * 120)
    assert not daemon.state_dir.exists()
