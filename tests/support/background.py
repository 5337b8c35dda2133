"""Something that goes on beside a test, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Background:
    """Calls a function again and again until the block that it is used in ends.

    What the function raises ends it, and is raised in the test: by `going`, or by the end of the
    block. A loop that waits for something to happen here therefore ends, too.

    Attributes:
        calls: how often the function has returned.
    """

    def __init__(self, function: Callable[[], object], pause_s: float = 0.0) -> None:
        self.calls = 0
        self._function, self._pause_s = function, pause_s
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    @property
    def going(self) -> bool:
        """True; raises what the function raised."""
        if self._error is not None:
            raise self._error
        return True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(90)
        if exc is None:
            assert not self._thread.is_alive(), "the background does not end"
            assert self.going

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._function()
                self.calls += 1
                self._stop.wait(self._pause_s)
        except BaseException as error:  # noqa: BLE001 - it is raised again in the test
            self._error = error
