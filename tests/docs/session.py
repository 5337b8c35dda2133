"""A bash in which a page's commands are typed one after the other."""

import os
import selectors
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

SECONDS = 60.0


class Session:
    """One bash, so that exports, variables and jobs last from command to command."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self._file = directory.parent / "typed"
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=directory,
            start_new_session=True,
        )

    def run(self, command: str, seconds: float = SECONDS) -> tuple[int, str]:
        """Types a command; returns its exit status and what it printed to both streams.

        Raises TimeoutError if it doesn't end.
        """
        mark = uuid.uuid4().hex
        self._file.write_text(command + "\n")
        # From a file, so that the command may have quotes of any kind and no input of ours.
        typed = f". {self._file} < /dev/null; printf '{mark} %d\\n' $?\n"
        assert self._bash.stdin is not None
        self._bash.stdin.write(typed.encode())
        self._bash.stdin.flush()
        printed, _, status = self._read_to(mark, seconds).rpartition(mark)
        return int(status), printed

    def interrupt_after(self, command: str, seconds: float) -> tuple[int, str]:
        """Types a command and, so many seconds later, Ctrl-C."""
        return self.run(f"timeout --preserve-status -s INT {seconds} {command}")

    def _read_to(self, mark: str, seconds: float) -> str:
        assert self._bash.stdout is not None
        end, text = time.monotonic() + seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._bash.stdout, selectors.EVENT_READ)
            while not (mark.encode() in text and text.endswith(b"\n")):
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"not within {seconds} s; so far:\n{text.decode()}")
                if not (more := os.read(self._bash.stdout.fileno(), 1 << 16)):
                    raise EOFError(f"bash has ended:\n{text.decode()}")
                text += more
        return text.decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends bash and all that it left running."""
        os.killpg(self._bash.pid, signal.SIGTERM)
        try:
            self._bash.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self._bash.pid, signal.SIGKILL)
            self._bash.communicate()
