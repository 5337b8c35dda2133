"""What the daemon tells the service manager that started it: sd_notify(3), without a library.

A message that can't be delivered is dropped: the manager's trouble must not be the daemon's.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping


class Notifier:
    """Sends to the socket of $NOTIFY_SOCKET; does nothing if there is none.

    watchdog_seconds: how long the manager waits for a sign of life before it restarts the daemon,
    by $WATCHDOG_USEC; 0 if it doesn't.
    """

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self.watchdog_seconds = _watchdog_seconds(environment)
        self._clock = clock
        self._fed = float("-inf")
        self._status = ""

    def ready(self) -> None:
        """Says that callers can connect."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Says that the daemon has begun to stop."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def status(self, text: str) -> None:
        """Sets the line that `systemctl status` shows."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def alive(self) -> None:
        """Feeds the watchdog, twice in its time at most."""
        now = self._clock()
        if self.watchdog_seconds and now - self._fed >= self.watchdog_seconds / 2:
            self._fed = now
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
            peer.setblocking(False)
            peer.sendto(message.encode(), self._address)


def _address(text: str) -> str:
    """Returns a path, or an abstract name with the zero byte that `@` stands for."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else ""


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isdecimal() else 0.0
