"""Where the daemon lives: its socket and directories are its own, private, and nobody else's."""

from pathlib import Path

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
    """Socket 0600, directories 0700; a directory that others can write to is refused."""
    daemon = fleet.daemon()
    assert daemon.socket.stat().st_mode & 0o777 == 0o600
    for directory in (daemon.run_dir, daemon.state_dir, daemon.state_dir / "blobs"):
        assert directory.stat().st_mode & 0o777 == 0o700
    daemon.stop()
    daemon.run_dir.chmod(0o777)
    assert "DIRECTORY_UNSAFE" in failed_start(daemon)


def test_a_socket_path_too_long_is_named(fleet: Fleet) -> None:
    """Before anything is made."""
    daemon = fleet.daemon(start=False)
    assert "107" in failed_start(daemon, "--listen", "unix:/tmp/" + "x" * 120)
    assert not daemon.state_dir.exists()
