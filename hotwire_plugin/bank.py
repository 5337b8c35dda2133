"""The vector bank: one fp32 row for each direction that a program in use needs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch

from hotwire_plugin.op_forms import Direction, Row


class BankFull(Exception):
    """Every slot is held by a program in use."""


class Bank:
    """A fixed number of slots on the device, refcounted; the least recently released goes first.

    ``rows`` is (slots, hidden) fp32 and never moves, since captured graphs hold its address.
    Slot 0 is all zeros and is what an operation without a direction reads.
    """

    def __init__(self, slots: int, hidden_size: int, device: torch.device) -> None:
        self.rows = torch.zeros(slots, hidden_size, dtype=torch.float32, device=device)
        self._free = list(range(slots - 1, 0, -1))
        self._slot: dict[Direction, int] = {}
        self._refs: dict[Direction, int] = {}
        self._idle: OrderedDict[Direction, None] = OrderedDict()

    @property
    def capacity(self) -> int:
        """The number of slots that can hold a vector row."""
        return int(self.rows.shape[0]) - 1

    @property
    def in_use(self) -> int:
        """The number of slots that a program in use needs."""
        return len(self._refs)

    def acquire(self, key: Direction, make: Callable[[], Row]) -> int:
        """Return the slot of a direction and count one more user of it.

        make: returns its row, (hidden,) fp32; called if no slot holds it. What it raises goes on.

        Raises:
            BankFull: every slot has a user.
        """
        slot = self._slot.get(key)
        if slot is None:
            row = make()
            slot = self._take_slot()
            self.rows[slot].copy_(torch.from_numpy(row))
            self._slot[key] = slot
        self._idle.pop(key, None)
        self._refs[key] = self._refs.get(key, 0) + 1
        return slot

    def release(self, key: Direction) -> None:
        """Count one user less. The row stays until its slot is needed, in case it comes back."""
        left = self._refs[key] - 1
        if left:
            self._refs[key] = left
            return
        del self._refs[key]
        self._idle[key] = None

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        if not self._idle:
            raise BankFull(f"all {self.capacity} bank slots are in use")
        oldest, _ = self._idle.popitem(last=False)
        return self._slot.pop(oldest)
