"""A token bucket: so much at once, and so much a second after that."""

import math


class Bucket:
    """Holds up to `size` and fills at `rate` a second; a rate of 0 is no limit at all."""

    def __init__(self, rate: float, size: float) -> None:
        self._rate = rate
        self._size = size
        self._held = size
        self._at = -math.inf

    def take(self, amount: float, now: float) -> float:
        """Takes an amount and returns 0; or takes nothing, and returns the seconds to wait for it.

        now: monotonic seconds. The wait is infinite if the bucket never holds as much.
        """
        if not self._rate:
            return 0.0
        self._held = min(self._size, self._held + max(0.0, now - self._at) * self._rate)
        self._at = now
        if amount <= self._held:
            self._held -= amount
            return 0.0
        if amount > self._size:
            return math.inf
        return (amount - self._held) / self._rate
