"""Processes that are started with a log file, watched, and always stopped."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

STOP_SECONDS = 30.0
POLL_SECONDS = 0.2


class ProcessDiedError(RuntimeError):
    """A process ended before its time; the message holds the end of its log."""


class Process:
    """A command in a process group of its own, its output in `log`; a context that stops it.

    environment: what is added to this process's own.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._environment = environment
        self._popen: subprocess.Popen[bytes] | None = None
        self.exit_code: int | None = None
        self.killed = False

    def __enter__(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as out:
            self._popen = subprocess.Popen(
                self._command,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ | self._environment,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def check(self) -> None:
        """Raises ProcessDiedError if it has ended."""
        if self._popen is not None and self._popen.poll() is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-15:]
            ended = f"{self.name} ended with {self._popen.returncode}; its log, {self.log}, ends:"
            raise ProcessDiedError("\n".join([ended, *lines]))

    def stop(self) -> None:
        """Asks it to end, gives it and its children 30 s, and then kills what is left of them."""
        if self._popen is None or self.exit_code is not None:
            return
        self._popen.terminate()
        try:
            with suppress(TimeoutError):
                wait_until(lambda: not self._alive(), [], STOP_SECONDS, self.name)
        finally:  # a second Ctrl-C ends the waiting, not the duty
            if self._alive():
                self.killed = True
                os.killpg(self._popen.pid, signal.SIGKILL)
            self.exit_code = self._popen.wait()

    def _alive(self) -> bool:
        """Whether anything of its process group is left."""
        assert self._popen is not None
        self._popen.poll()  # reaps it, so that it doesn't count as left
        try:
            os.killpg(self._popen.pid, 0)
        except ProcessLookupError:
            return False
        return True


def wait_until(
    ready: Callable[[], bool], processes: Sequence[Process], seconds: float, what: str
) -> float:
    """Waits until `ready()`; returns the seconds it took.

    Raises TimeoutError after `seconds`, ProcessDiedError as soon as one of the processes has ended.
    """
    start = time.monotonic()
    while not ready():
        for process in processes:
            process.check()
        if time.monotonic() - start > seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - start
