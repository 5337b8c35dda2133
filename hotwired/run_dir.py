"""Where sockets are, and what a directory and a socket must be like before they are trusted."""

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from hotwired.errors import DirectoryUnsafe, SocketInUse, SocketInvalid

MAX_SOCKET_PATH = 107
"""The bytes of a path that fit into a Unix socket's address."""

NODES = "nodes"
"""The folder of the run directory that holds a folder for each vLLM instance."""

_ROLES = ("engine", "worker", "frontend")


def run_dir() -> Path:
    """Returns $HOTWIRE_RUN_DIR, else $XDG_RUNTIME_DIR/hotwire, else /tmp/hotwire-<uid>."""
    if chosen := os.environ.get("HOTWIRE_RUN_DIR"):
        return Path(chosen)
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "hotwire"
    return _fallback()


def _fallback() -> Path:
    return Path(f"/tmp/hotwire-{os.getuid()}")  # noqa: S108 -- make_shared checks its owner


def socket_path(  # noqa: PLR0917 -- the parts of the name, in its order
    run_dir: Path, instance_id: str, role: str, dp: int, pp: int, tp: int
) -> Path:
    """Returns <run_dir>/nodes/<instance_id>/<role>-<dp>-<pp>-<tp>.sock.

    role: "engine", "worker" or "frontend". A process with several roles goes by the first of
    them in that order. Raises SocketInvalid for anything else.
    """
    if role not in _ROLES:
        raise SocketInvalid(f"no such role: {role!r}", metadata={"role": role})
    if not instance_id or "/" in instance_id or instance_id.startswith("."):
        raise SocketInvalid(
            f"the instance id {instance_id!r} can't be a folder's name",
            metadata={"instance_id": instance_id},
        )
    return run_dir / NODES / instance_id / f"{role}-{dp}-{pp}-{tp}.sock"


def check_socket_path(path: Path) -> None:
    """Raises SocketInvalid if the path doesn't fit into a Unix socket's address."""
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH:
        raise SocketInvalid(
            f"the socket path {path} has {size} bytes; the limit is {MAX_SOCKET_PATH}",
            metadata={"path": str(path), "bytes": str(size), "limit": str(MAX_SOCKET_PATH)},
        )


def make_private(directory: Path) -> None:
    """Makes a directory (and what leads to it) with mode 0700, or checks the one there is.

    Raises DirectoryUnsafe if it is no directory, a link, another user's, or writable by others.
    """
    _make(directory, 0o700)
    found = directory.lstat()
    _check_owned(directory, found)
    if found.st_mode & 0o022:
        raise _unsafe(directory, f"has mode {_mode(found)}, so that others can write to it")


def make_shared(directory: Path, *, inherits: bool = False) -> None:
    """Makes a directory for sockets with mode 0750, or checks the one there is.

    Members of its group may come in, others may not. The folder in /tmp, which nobody chose, is
    made with 0700. inherits: whether it is made common, with mode 3770, if its parent is that: a
    group's in which each member may add, and remove only its own. Raises DirectoryUnsafe if it is
    no directory, a link, open to anybody, or, unless it is common, another user's or writable by a
    group.
    """
    _make(directory, _shared_mode(directory, inherits=inherits))
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _unsafe(directory, "is not a directory")
    if found.st_mode & 0o007:
        raise _unsafe(directory, f"has mode {_mode(found)}, so that anybody can come in")
    # Nobody asked for a group in /tmp, where anybody may have made the folder first.
    if _is_common(found) and directory != _fallback():
        return
    _check_owned(directory, found)
    if found.st_mode & 0o020:
        problem = f"has mode {_mode(found)}; if a group is to write to it, that must be 3770"
        raise _unsafe(directory, problem)


def _shared_mode(directory: Path, *, inherits: bool) -> int:
    if directory == _fallback():
        return 0o700
    above = directory.parent
    return 0o3770 if inherits and above.exists() and _is_common(above.lstat()) else 0o750


def _is_common(found: os.stat_result) -> bool:
    is_member = os.geteuid() == 0 or found.st_gid in {os.getegid(), *os.getgroups()}
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o007:
        return False
    return is_member and bool(found.st_mode & stat.S_IWGRP and found.st_mode & stat.S_ISVTX)


def _make(directory: Path, mode: int) -> None:
    missing = [parent for parent in (directory, *directory.parents) if not parent.exists()]
    for parent in reversed(missing):
        with contextlib.suppress(FileExistsError):
            parent.mkdir(mode=0o700)
            # Not left to the umask; a group that is handed down from above stays so.
            parent.chmod(mode | (parent.lstat().st_mode & stat.S_ISGID))


def _check_owned(directory: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise _unsafe(directory, "is not a directory")
    if found.st_uid != os.getuid():
        raise _unsafe(directory, f"belongs to user {found.st_uid}")


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"


def _unsafe(directory: Path, problem: str) -> DirectoryUnsafe:
    return DirectoryUnsafe(f"{directory} {problem}", metadata={"path": str(directory)})


def target_of(path: Path) -> str:
    """Returns the address of a socket as gRPC has it: a URI, in which a % would be an escape."""
    return "unix:" + quote(os.fsencode(path))


def is_live(path: Path) -> bool:
    """Whether a process listens on the socket at path. Raises OSError if that can't be told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except OSError as exc:
            # EAGAIN: its queue of connections is full, so there is a listener.
            if exc.errno == errno.EAGAIN:
                return True
            if exc.errno in (errno.ECONNREFUSED, errno.ENOENT):
                return False
            raise
        return True


def clear_stale(path: Path) -> None:
    """Removes a socket that nobody listens on, since gRPC would replace any socket unasked.

    Raises SocketInUse if a process listens on it, SocketInvalid if it is no socket.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketInvalid(f"{path} exists and is not a socket", metadata={"path": str(path)})
    if is_live(path):
        raise SocketInUse(f"another process listens on {path}", metadata={"path": str(path)})
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def socket_umask() -> Iterator[None]:
    """Sets the umask so that a socket bound within has mode 0660. It is the whole process's."""
    before = os.umask(0o117)
    try:
        yield
    finally:
        os.umask(before)


def check_socket(path: Path) -> None:
    """Raises SocketInvalid if it is no socket of ours, or open to more than a group."""
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        problem = "is no socket of this process's user"
    elif found.st_mode & 0o007:
        problem = f"has mode {_mode(found)}, so that anybody can connect"
    else:
        return
    raise SocketInvalid(f"{path} {problem}", metadata={"path": str(path)})


def make_socket_folders(socket_path: Path) -> None:
    """Makes or checks a socket's folder; for a node's socket also the two above it.

    Raises DirectoryUnsafe.
    """
    own = socket_path.parent
    if own.parent.name != NODES:
        make_shared(own, inherits=True)
        return
    for folder in (own.parent.parent, own.parent):
        make_shared(folder, inherits=True)
    make_shared(own)
