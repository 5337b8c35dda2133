"""Makes sure that a state, a run directory and a socket have one daemon."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hotwired.config import Config
from hotwired.errors import DaemonLocked
from hotwired.run_dir import (
    check_socket_path,
    clear_stale,
    make_private,
    make_shared,
    make_socket_folders,
)

STATE_LOCK = "lock"
"""The file in a state directory that its daemon holds."""


@contextmanager
def claimed(config: Config) -> Iterator[None]:
    """Holds the state, the run directory and the socket's path; a stale socket there is removed.

    Raises DaemonLocked, DirectoryUnsafe, SocketInvalid, SocketInUse or OSError.
    """
    check_socket_path(config.socket)
    make_private(config.state_dir)
    make_shared(config.run_dir, inherits=True)
    make_socket_folders(config.socket)
    with ExitStack() as stack:
        stack.enter_context(locked(config.state_dir / STATE_LOCK))
        # Two daemons with the same nodes would undo each other's snapshots for ever.
        stack.enter_context(locked(config.run_dir / "daemon.lock"))
        stack.enter_context(locked(config.socket.with_name(config.socket.name + ".lock")))
        clear_stale(config.socket)
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file. Raises DaemonLocked if another process does, or OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise DaemonLocked(
                f"another daemon (process {holder}) holds {path}",
                metadata={"path": str(path), "pid": holder},
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        # The file stays: removing it would let two daemons lock two files of one name.
        yield
    finally:
        os.close(descriptor)
