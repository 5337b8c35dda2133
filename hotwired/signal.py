"""Wakes whoever waits for something to change."""

import asyncio
import contextlib


class Signal:
    """A level-triggered wake-up: look, then wait; without an await between, nothing is missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wakes all who wait."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Waits for the next fire, or for so many seconds."""
        event = self._event
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
