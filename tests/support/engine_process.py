"""A real vLLM engine that a test drives from another process: this is the test's side."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.support.engine_host import Answer, Ask

__all__ = ["Answer", "Ask", "Engine", "EngineError", "environment", "kill_group"]

ROOT = Path(__file__).resolve().parents[2]


class EngineError(Exception):
    """An exception inside the engine's process.

    Attributes:
        kind: its class's name.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Engine:
    """An engine in a process group of its own, so that it can be killed hard with all its workers.

    In no session of its own: the scheduler shares cores among sessions, and the spinning ranks of
    one have been seen to leave the test 8 % of them.
    """

    def __init__(
        self,
        options: dict[str, Any],
        *,
        run_dir: Path,
        log: Path,
        env: dict[str, str] | None = None,
        before: Callable[[], None] | None = None,
        timeout_s: float = 240.0,
    ) -> None:
        """Start it and wait until it can be used.

        Args:
            options: what vllm.LLM is given.
            run_dir: HOTWIRE_RUN_DIR.
            log: the file that takes everything it prints.
            env: more variables; None as a value is not possible, leave them out instead.
            before: called in the engine's process before the engine is made.
            timeout_s: how long to wait for it.
        """
        self.log_path = log
        ours, theirs = socket.socketpair()
        with log.open("wb") as out, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.engine_host", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment(run_dir) | (env or {}),
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._connection = Connection(ours.detach())
        self._connection.send((options, before))
        try:
            self._receive(timeout_s)
        except BaseException:
            self.kill()
            raise

    def generate(self, asks: Sequence[Ask]) -> list[Answer]:
        """Run requests as one batch; see Host.generate."""
        answers: list[Answer] = self.call("generate", list(asks))
        return answers

    def one(self, ask: Ask) -> Answer:
        """Run one request alone."""
        return self.generate([ask])[0]

    def call(self, method: str, *args: Any, timeout_s: float = 120.0) -> Any:
        """Call a method of Host.

        Raises:
            EngineError: it raised.
        """
        self._connection.send((method, args, {}))
        return self._receive(timeout_s)

    def log_lines(self, containing: str) -> list[str]:
        """Return the lines it has printed so far that contain a text."""
        text = self.log_path.read_text(errors="replace")
        return [line for line in text.splitlines() if containing in line]

    def kill(self) -> None:
        """Kill it and everything it started, with SIGKILL."""
        kill_group(self._process)
        self._connection.close()

    def _receive(self, timeout_s: float) -> Any:
        if not self._connection.poll(timeout_s):
            raise TimeoutError(f"no answer in {timeout_s} s; see {self.log_path}\n{self._tail()}")
        try:
            ok, result = self._connection.recv()
        except EOFError:
            raise RuntimeError(f"the engine's process is gone:\n{self._tail()}") from None
        if not ok:
            raise EngineError(*result)
        return result

    def _tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-3000:]


def environment(run_dir: Path) -> dict[str, str]:
    """Return the environment of a vLLM under test: this one's, and nothing else's settings."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("HOTWIRE_", "VLLM_"))}
    return inherited | {
        "HF_HUB_OFFLINE": "1",
        "HOTWIRE_RUN_DIR": str(run_dir),
        "TORCHINDUCTOR_CACHE_DIR": str(ROOT / ".cache" / "inductor"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients")]),
        "VLLM_CACHE_ROOT": str(ROOT / ".cache" / "vllm"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "hotwire_plugin",
    }


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, and all of that group, with SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
