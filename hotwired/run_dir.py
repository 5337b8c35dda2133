"""Where sockets are, and what a directory and a socket must be like before they are trusted."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
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
    return Path(f"/tmp/hotwire-{os.getuid()}")  # noqa: S108 -- make_private checks its owner


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
    missing = [parent for parent in (directory, *directory.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        problem = "is not a directory"
    elif found.st_uid != os.getuid():
        problem = f"belongs to user {found.st_uid}"
    elif found.st_mode & 0o022:
        problem = f"has mode {stat.S_IMODE(found.st_mode):04o}, so that others can write to it"
    else:
        return
    raise DirectoryUnsafe(f"{directory} {problem}", metadata={"path": str(directory)})


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


@contextmanager
def private_umask() -> Iterator[None]:
    """Sets the umask so that a socket bound within has mode 0600. It is the whole process's."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def check_socket_mode(path: Path) -> None:
    """Raises SocketInvalid if others could connect to the socket."""
    mode = stat.S_IMODE(path.lstat().st_mode)
    if mode & 0o077:
        raise SocketInvalid(f"{path} has mode {mode:04o}", metadata={"path": str(path)})


def make_private_parents(socket_path: Path) -> None:
    """Makes or checks a socket's folder; for a node's socket also the two above it.

    Raises DirectoryUnsafe.
    """
    folders = [socket_path.parent]
    if folders[0].parent.name == NODES:
        folders = [folders[0].parent.parent, folders[0].parent, *folders]
    for folder in folders:
        make_private(folder)
