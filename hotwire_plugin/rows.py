"""The program table: one row for each distinct set of operations that a live request needs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from hotwire_plugin.bank import Bank, BankFull
from hotwire_plugin.op_forms import Direction, LoadRow, form
from hotwire_plugin.program import MAX_OPS_PER_LAYER, ProgramOp
from hotwire_plugin.shape import Place

NOT_PLACED = -1
UNTOUCHED = 0
SLOTS_EXHAUSTED = "SLOTS_EXHAUSTED"


class ProgramError(Exception):
    """A program that this worker cannot apply; its request runs unsteered."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True, eq=False)
class RowEntry:
    """A set of operations, the row that holds it, and the requests that need it."""

    key: str
    ops: tuple[ProgramOp, ...]
    limit: float = math.inf
    row: int = NOT_PLACED
    refs: int = 0
    last_step: int = 0
    bank_keys: list[Direction] = field(default_factory=list)


NO_OPS = RowEntry(key="", ops=(), row=UNTOUCHED)
"""The entry of a phase without operations: row 0, which no kernel touches."""


class ProgramRows:
    """Device tables of a worker's own places, with a row for each set of operations in use.

    ``op_slots`` (places, rows, K, 2) int32, ``op_coef`` (places, rows, K, 6) fp32, ``op_count``
    (places, rows) int32, ``limit`` (rows,) fp32. They never move. Row 0 is empty for ever.
    """

    def __init__(
        self, *, places: Sequence[Place], rows: int, bank: Bank, load_row: LoadRow
    ) -> None:
        device, count, k = bank.rows.device, len(places), MAX_OPS_PER_LAYER
        self.op_slots = torch.zeros(count, rows, k, 2, dtype=torch.int32, device=device)
        self.op_coef = torch.zeros(count, rows, k, 6, dtype=torch.float32, device=device)
        self.op_count = torch.zeros(count, rows, dtype=torch.int32, device=device)
        self.limit = torch.full((rows,), float("inf"), dtype=torch.float32, device=device)
        self._bank = bank
        self._load_row = load_row
        self._streams: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        for at, place in enumerate(places):
            self._streams[place.layer, place.site].append((place.stream, at))
        self._entries: dict[str, RowEntry] = {}
        self._placed: dict[int, RowEntry] = {}
        self._free = list(range(rows - 1, 0, -1))
        self._own_limits = np.full(rows, np.inf, dtype=np.float32)
        self._cap = math.inf

    def cap_limits(self, cap: float) -> None:
        """Hold every row, from the next launch on, to the lower of its own limit and this one."""
        if cap != self._cap:
            self._cap = cap
            limits = np.minimum(self._own_limits, np.float32(cap))
            self.limit.copy_(torch.from_numpy(limits))

    @property
    def capacity(self) -> int:
        """The number of rows that can hold operations."""
        return int(self.limit.shape[0]) - 1

    @property
    def in_use(self) -> int:
        """The number of rows that live requests need."""
        return sum(1 for entry in self._placed.values() if entry.refs)

    def acquire(self, key: str, ops: tuple[ProgramOp, ...], limit: float = math.inf) -> RowEntry:
        """Return the entry of a set of operations and count one more request that needs it.

        limit: the most they may add at a site, over the norm of the token's own stream there.

        Operations at layers of other pipeline stages are left to those.
        """
        own = tuple(op for op in ops if (op.layer, op.site) in self._streams)
        if not own:
            return NO_OPS
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = RowEntry(key, own, limit)
        entry.refs += 1
        return entry

    def release(self, entry: RowEntry) -> None:
        """Count one request less. The row keeps its operations until it is needed."""
        if entry is NO_OPS:
            return
        entry.refs -= 1
        if not entry.refs and entry.row == NOT_PLACED:
            del self._entries[entry.key]

    def place(self, entry: RowEntry, step: int) -> None:
        """Give the entry a row, at the cost of one that no request of this step uses.

        Raises:
            ProgramError: a revision is not held here, or what this step uses fills the bank.
        """
        row = self._free.pop() if self._free else self._evict(step)
        while not self._try_write(entry, row, step):
            pass
        entry.row = row
        self._placed[row] = entry

    def _try_write(self, entry: RowEntry, row: int, step: int) -> bool:
        """Write a row, or return False having freed slots that no request of this step uses."""
        try:
            self._write(entry, row)
        except ProgramError as error:
            victim = self._victim(step) if error.reason == SLOTS_EXHAUSTED else None
            self._free.append(row if victim is None else self._clear(victim))
            if victim is None:
                raise
            return False
        except Exception:
            self._free.append(row)
            raise
        return True

    def _evict(self, step: int) -> int:
        victim = self._victim(step)
        if victim is None:
            raise ProgramError("ROWS_EXHAUSTED", f"all {self.capacity} rows are used in this step")
        return self._clear(victim)

    def _victim(self, step: int) -> RowEntry | None:
        """Return the entry to give up first; one that nobody needs goes before one at rest."""
        idle = (e for e in self._placed.values() if e.last_step != step)
        return min(idle, key=lambda e: (e.refs > 0, e.last_step), default=None)

    def _clear(self, entry: RowEntry) -> int:
        row = entry.row
        self._release_bank(entry)
        self.op_count[:, row] = 0
        del self._placed[row]
        entry.row = NOT_PLACED
        if not entry.refs:
            del self._entries[entry.key]
        return row

    def _release_bank(self, entry: RowEntry) -> None:
        for bank_key in entry.bank_keys:
            self._bank.release(bank_key)
        entry.bank_keys.clear()

    def _write(self, entry: RowEntry, row: int) -> None:
        places = len(self.op_count)
        slots = np.zeros((places, MAX_OPS_PER_LAYER, 2), dtype=np.int32)
        coef = np.zeros((places, MAX_OPS_PER_LAYER, 6), dtype=np.float32)
        count = np.zeros(places, dtype=np.int32)
        try:
            for op in entry.ops:
                own_slots, own_coef = self._acquire_slots(entry, op)
                for at in self._places_of(op):
                    slots[at, count[at]], coef[at, count[at]] = own_slots, own_coef
                    count[at] += 1
        except Exception:
            self._release_bank(entry)
            raise
        self._own_limits[row] = entry.limit
        self.limit[row] = min(entry.limit, self._cap)
        # The count goes last: a kernel reads no operation beyond it.
        self.op_slots[:, row] = torch.from_numpy(slots).to(self.op_slots.device)
        self.op_coef[:, row] = torch.from_numpy(coef).to(self.op_coef.device)
        self.op_count[:, row] = torch.from_numpy(count).to(self.op_count.device)

    def _places_of(self, op: ProgramOp) -> Iterator[int]:
        for stream, at in self._streams[op.layer, op.site]:
            if op.stream in (None, stream):
                yield at

    def _acquire_slots(
        self, entry: RowEntry, op: ProgramOp
    ) -> tuple[tuple[int, int], tuple[float, ...]]:
        wanted = form(op)
        slot_w = self._acquire_slot(entry, wanted.w)
        # What the coefficients do not ask for is slot 0, of zeros.
        slot_u = 0 if wanted.u is None else self._acquire_slot(entry, wanted.u)
        return (slot_u, slot_w), wanted.coefficients

    def _acquire_slot(self, entry: RowEntry, wanted: Direction) -> int:
        try:
            slot = self._bank.acquire(wanted, lambda: wanted.row(self._load_row))
        except KeyError:
            raise ProgramError(
                "REVISION_NOT_STAGED",
                f"revision {wanted.revision[:12]} or its target has no row {wanted.layer} here",
            ) from None
        except BankFull as full:
            raise ProgramError(SLOTS_EXHAUSTED, str(full)) from None
        entry.bank_keys.append(wanted)
        return slot
