"""A log's file that may be rotated under us: renamed, truncated or removed at any moment."""

import contextlib
import os
import threading
from pathlib import Path


class LogFile:
    """Appends text to a path, wherever that points by now. Raises OSError only when it is made.

    Each write is one system call on a descriptor in append mode, after a look at whether the path
    still is the open file. If it can't be opened anew, lines go on into the file that was.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._descriptor = self._opened()

    def write(self, text: str) -> None:
        """Appends a text whole. What can't be written is lost: a full disk fails no RPC."""
        data = text.encode("utf-8", "backslashreplace")
        with self._lock, contextlib.suppress(OSError):
            if self._has_moved():
                self._reopen()
            while data:
                data = data[os.write(self._descriptor, data) :]

    def flush(self) -> None:
        """Does nothing: nothing is buffered."""

    def reopen(self) -> None:
        """Opens the path anew."""
        with self._lock:
            self._reopen()

    def _reopen(self) -> None:
        with contextlib.suppress(OSError):
            fresh = self._opened()
            os.close(self._descriptor)
            self._descriptor = fresh

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path, flags, 0o600)

    def _has_moved(self) -> bool:
        try:
            there = self._path.stat()
        except OSError:
            return True
        held = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino)
