"""Where sockets are, and which places are trusted."""

import os
import socket
from pathlib import Path

import pytest

from hotwired.errors import DirectoryUnsafe, SocketInvalid
from hotwired.run_dir import (
    check_socket_path,
    clear_stale,
    is_live,
    make_private,
    run_dir,
    socket_path,
)


def test_the_run_dir_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOTWIRE_RUN_DIR, then XDG_RUNTIME_DIR, then a folder in /tmp that is the user's own."""
    monkeypatch.setenv("HOTWIRE_RUN_DIR", "/a")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/b")
    assert run_dir() == Path("/a")
    monkeypatch.delenv("HOTWIRE_RUN_DIR")
    assert run_dir() == Path("/b/hotwire")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert run_dir() == Path(f"/tmp/hotwire-{os.getuid()}")


def test_a_sockets_name_tells_role_and_ranks() -> None:
    """The daemon finds nodes by these names."""
    path = socket_path(Path("/r"), "abc", "worker", 1, 2, 3)
    assert path == Path("/r/nodes/abc/worker-1-2-3.sock")


@pytest.mark.parametrize("instance_id", ["", "a/b", "..", ".hidden"])
def test_an_instance_id_stays_in_its_folder(instance_id: str) -> None:
    """It names a folder, not a path."""
    with pytest.raises(SocketInvalid):
        socket_path(Path("/r"), instance_id, "worker", 0, 0, 0)


def test_an_unknown_role_is_refused() -> None:
    """A misspelt role would be found by nobody."""
    with pytest.raises(SocketInvalid):
        socket_path(Path("/r"), "i", "wroker", 0, 0, 0)


def test_the_limit_of_a_path_is_107_bytes() -> None:
    """Bytes, not characters."""
    check_socket_path(Path("/" + "x" * 106))
    for path in ("/" + "x" * 107, "/" + "é" * 54):
        with pytest.raises(SocketInvalid, match="107"):
            check_socket_path(Path(path))


def test_a_private_directory_is_made_or_checked(short_dir: Path) -> None:
    """All that is made has mode 0700; what others can write to is refused."""
    deep = short_dir / "a" / "b"
    make_private(deep)
    assert (deep.stat().st_mode & 0o777, deep.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    make_private(deep)
    deep.chmod(0o750)
    make_private(deep)
    for mode in (0o770, 0o702):
        deep.chmod(mode)
        with pytest.raises(DirectoryUnsafe):
            make_private(deep)
    file = short_dir / "file"
    file.touch()
    with pytest.raises(DirectoryUnsafe):
        make_private(file)


def test_live_and_dead_sockets_are_told_apart(short_dir: Path) -> None:
    """Also when the listener's queue is full, and when the file is gone."""
    path = short_dir / "s"
    assert not is_live(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert not is_live(path)
        listener.listen(0)
        clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(str(path))
        assert is_live(path)
        for client in clients:
            client.close()
    assert not is_live(path)
    clear_stale(path)
    assert not path.exists()
    clear_stale(path)
