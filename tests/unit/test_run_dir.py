"""Where sockets are, and which places are trusted."""

import os
import socket
import stat
from pathlib import Path

import pytest

from hotwired.errors import DirectoryUnsafe, HotwireError, SocketInvalid
from hotwired.run_dir import (
    check_socket,
    check_socket_path,
    clear_stale,
    is_live,
    make_private,
    make_shared,
    make_socket_folders,
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


def mode(path: Path) -> int:
    """Returns a path's mode, special bits too."""
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_folder_for_sockets_is_the_groups_to_enter_and_nobodys_else(short_dir: Path) -> None:
    """0750 whatever the umask; open to anybody, writable by a group, or a link is refused."""
    before = os.umask(0o077)
    try:
        make_shared(short_dir / "a" / "b")
    finally:
        os.umask(before)
    assert (mode(short_dir / "a" / "b"), mode(short_dir / "a")) == (0o750, 0o750)
    folder = short_dir / "a"
    for bad in (0o755, 0o701, 0o770, 0o2770, 0o1777, 0o751):
        folder.chmod(bad)
        with pytest.raises(DirectoryUnsafe, match=f"{bad:04o}"):
            make_shared(folder)
    for good in (0o700, 0o750, 0o2750, 0o3770):
        folder.chmod(good)
        make_shared(folder)
    link = short_dir / "link"
    link.symlink_to(folder)
    with pytest.raises(DirectoryUnsafe, match="not a directory"):
        make_shared(link)


def test_a_common_folder_hands_its_group_down(short_dir: Path) -> None:
    """In a run directory with mode 3770, `nodes` is so too, and a node's own folder its alone."""
    run = short_dir / "run"
    run.mkdir()
    os.chown(run, -1, _another_group())
    run.chmod(0o3770)
    path = socket_path(run, "i1", "engine", 0, 0, 0)
    make_socket_folders(path)
    assert mode(path.parent.parent) == 0o3770
    assert mode(path.parent) == 0o2750
    assert {folder.stat().st_gid for folder in path.parents[:3]} == {run.stat().st_gid}
    make_socket_folders(path)


def _another_group() -> int:
    others = [group for group in os.getgroups() if group != os.getegid()]
    return 12345 if os.geteuid() == 0 else (others or [os.getegid()])[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
@pytest.mark.parametrize("common", [True, False])
def test_another_user_of_a_common_group_may_add_its_node(short_dir: Path, common: bool) -> None:  # noqa: FBT001
    """Under a run directory with mode 3770, and under no other; a stranger gets in nowhere."""
    run = short_dir / "run"
    run.mkdir()
    short_dir.chmod(0o755)
    os.chown(run, 2001, 3000)
    run.chmod(0o3770 if common else 0o750)
    path = socket_path(run, "i1", "engine", 0, 0, 0)
    made, stranger = _as_user(2002, 3000, path), _as_user(2003, 4000, path)
    assert (made, stranger) == ((0, 1) if common else (1, 1))
    if common:
        assert (path.parent.stat().st_uid, path.parent.stat().st_gid) == (2002, 3000)
        assert mode(path.parent) == 0o2750


def _as_user(user: int, group: int, path: Path) -> int:
    """Makes a socket's folders as another user with one group; returns 0 if that went well."""
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            make_socket_folders(path)
        except (HotwireError, OSError):
            os._exit(1)
        finally:
            os._exit(0 if path.parent.is_dir() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_socket_open_to_anybody_is_refused(short_dir: Path) -> None:
    """And so is what is none."""
    path = short_dir / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o660)
        check_socket(path)
        path.chmod(0o666)
        with pytest.raises(SocketInvalid, match="0666"):
            check_socket(path)
    file = short_dir / "file"
    file.touch(0o600)
    with pytest.raises(SocketInvalid):
        check_socket(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_a_common_folder_in_tmp_is_nobodys_to_make(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made the fallback first would have a group of theirs among the daemon's admins."""
    fallback = short_dir / "hotwire-0"
    fallback.mkdir()
    os.chown(fallback, 2001, 3000)
    fallback.chmod(0o3770)
    monkeypatch.setattr("hotwired.run_dir._fallback", lambda: fallback)
    with pytest.raises(DirectoryUnsafe):
        make_shared(fallback)
