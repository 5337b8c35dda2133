"""The places that containers have: volumes that belong to root and that others may write to."""

from pathlib import Path

from tests.daemon.harness import Daemon, Fleet, failed_start


def test_folders_within_shared_volumes(short_dir: Path) -> None:
    """An emptyDir is 0777, a claim 2775: a folder of one's own in it is private."""
    (short_dir / "d").mkdir()
    (short_dir / "d").chmod(0o2777)
    daemon = Daemon(short_dir / "d")
    try:
        daemon.start()
        assert daemon.register("joy").vector.name == "joy"
        assert daemon.run_dir.stat().st_mode & 0o777 == 0o750
        assert daemon.state_dir.stat().st_mode & 0o777 == 0o700
        assert daemon.stop() == 0
        assert daemon.start().names() == ["joy"]
    finally:
        daemon.close()


def test_a_state_that_the_kubelet_opened_to_a_group(fleet: Fleet) -> None:
    """What fsGroup does without OnRootMismatch: refused, and the mode is named."""
    daemon = fleet.daemon()
    daemon.stop()
    daemon.state_dir.chmod(0o2770)
    message = failed_start(daemon)
    assert "DIRECTORY_UNSAFE" in message
    assert "mode 2770" in message
