"""The bank and the program table keep what live requests need and reuse everything else."""

import numpy as np
import pytest
import torch

from hotwire_plugin.bank import Bank, BankFull
from hotwire_plugin.op_forms import Direction
from hotwire_plugin.program import ProgramOp
from hotwire_plugin.rows import NO_OPS, NOT_PLACED, ProgramError, ProgramRows
from hotwire_plugin.shape import Place

CPU = torch.device("cpu")
REVISION = "a" * 64
OTHER = "b" * 64


def row(value: float, hidden: int = 4) -> np.ndarray:
    """Return a bank row of one value."""
    return np.full(hidden, value, dtype=np.float32)


def add(layer: int, scale: float = 1.0, revision: str = REVISION) -> ProgramOp:
    """Return an add at a layer."""
    return ProgramOp(revision, layer, scale, "add", "all")


def table(rows: int = 4, slots: int = 9, layers: tuple[int, ...] = (0, 1)) -> ProgramRows:
    """Return a table over a bank 4 wide, with two revisions held."""
    held = {REVISION: 1.0, OTHER: 2.0}

    def load(revision: str, layer: int) -> np.ndarray:
        return row(held[revision] + 10 * layer)

    return ProgramRows(
        places=[Place(layer) for layer in layers],
        rows=rows,
        bank=Bank(slots, 4, CPU),
        load_row=load,
    )


def test_one_slot_serves_all_users_of_a_row() -> None:
    """Two programs that need the same row of the same revision take one slot between them."""
    bank = Bank(4, 4, CPU)
    first, second = (
        bank.acquire(Direction(REVISION, 0), lambda: row(1)),
        bank.acquire(Direction(REVISION, 0), lambda: row(1)),
    )
    assert first == second != 0
    assert bank.in_use == 1
    assert bank.rows[first].tolist() == [1, 1, 1, 1]


def test_released_rows_stay_until_their_slot_is_needed() -> None:
    """A row that comes back finds its old slot; the least recently released one is given up."""
    bank = Bank(3, 4, CPU)
    a, b = (
        bank.acquire(Direction(REVISION, 0), lambda: row(1)),
        bank.acquire(Direction(REVISION, 1), lambda: row(2)),
    )
    bank.release(Direction(REVISION, 0))
    bank.release(Direction(REVISION, 1))
    assert bank.acquire(Direction(REVISION, 1), lambda: row(2)) == b
    assert bank.acquire(Direction(OTHER, 0), lambda: row(3)) == a
    assert bank.rows[a].tolist() == [3, 3, 3, 3]


def test_a_full_bank_is_an_error_and_slot_zero_is_never_given() -> None:
    """The bank refuses rather than overwrite a row in use, and row 0 of it stays zero."""
    bank = Bank(2, 4, CPU)
    bank.acquire(Direction(REVISION, 0), lambda: row(1))
    with pytest.raises(BankFull):
        bank.acquire(Direction(REVISION, 1), lambda: row(2))
    assert not bank.rows[0].any()


def test_a_placed_entry_is_written_at_its_layers_only() -> None:
    """Operations stand at their layer in order, and other layers count none."""
    rows = table()
    entry = rows.acquire("k", (add(1, 0.5), add(1, 2.0, OTHER)))
    rows.place(entry, step=1)
    assert entry.row > 0
    assert rows.op_count[:, entry.row].tolist() == [0, 2]
    assert rows.op_coef[1, entry.row, :2, 0].tolist() == [0.5, 2.0]
    slots = rows.op_slots[1, entry.row, :2, 1]
    assert rows._bank.rows[slots].mean(dim=1).tolist() == [11, 12]


def test_operations_of_other_pipeline_stages_are_left_to_them() -> None:
    """A rank without any of the layers needs no row."""
    assert table(layers=(4, 5)).acquire("k", (add(1),)) is NO_OPS


def test_rows_of_ended_requests_go_first_and_those_of_this_step_never() -> None:
    """Eviction prefers a row nobody needs, then one that sits this step out, else it refuses."""
    rows = table(rows=3)
    ended, waiting, fresh = (rows.acquire(k, (add(0),)) for k in ("ended", "waiting", "fresh"))
    for entry in (ended, waiting):
        rows.place(entry, step=1)
        entry.last_step = 1
    rows.release(ended)
    fresh.last_step = 2
    rows.place(fresh, step=2)
    assert ended.row == NOT_PLACED
    assert waiting.row > 0
    another = rows.acquire("another", (add(1),))
    waiting.last_step = another.last_step = 2
    with pytest.raises(ProgramError, match="rows are used"):
        rows.place(another, step=2)
    waiting.last_step = 1
    rows.place(another, step=2)
    assert waiting.row == NOT_PLACED
    assert waiting.refs == 1


def test_an_evicted_row_acts_no_more_and_frees_its_slots() -> None:
    """Nothing of a former program is left in the table for the next one to inherit."""
    rows = table(rows=2)
    first = rows.acquire("first", (add(0), add(1)))
    rows.place(first, step=1)
    rows.release(first)
    second = rows.acquire("second", (add(1),))
    second.last_step = 2
    rows.place(second, step=2)
    assert rows.op_count[:, second.row].tolist() == [0, 1]
    assert rows._bank.in_use == 1


def test_a_program_that_cannot_be_placed_leaves_nothing_behind() -> None:
    """A revision that is not staged, or a bank that is full, costs neither a row nor a slot."""
    rows = table(slots=2)
    for key, ops, reason in (
        ("missing", (add(0), add(1, revision="c" * 64)), "REVISION_NOT_STAGED"),
        ("large", (add(0), add(1)), "SLOTS_EXHAUSTED"),
    ):
        entry = rows.acquire(key, ops)
        with pytest.raises(ProgramError) as error:
            rows.place(entry, step=1)
        assert error.value.reason == reason
        rows.release(entry)
        assert rows._bank.in_use == 0
    rows.place(rows.acquire("small", (add(0),)), step=1)


def test_a_million_scales_need_no_more_slots_than_one() -> None:
    """Scales live in the table: different scales of one vector share its bank rows."""
    rows = table(rows=3, slots=3)
    for step in range(100):
        entry = rows.acquire(str(step), (add(0, 1.0 + step), add(1, 1.0 + step)))
        entry.last_step = step
        rows.place(entry, step)
        rows.release(entry)
    assert rows.in_use == 0


def test_slots_of_programs_that_rest_are_given_up() -> None:
    """A full bank refuses no program as long as its slots belong to nobody of this step."""
    rows = table(rows=8, slots=3)
    ended, waiting, fresh = (
        rows.acquire(key, (add(0, revision=revision), add(1, revision=revision)))
        for key, revision in (("ended", REVISION), ("waiting", OTHER), ("fresh", REVISION))
    )
    rows.place(ended, step=1)
    rows.release(ended)
    rows.place(waiting, step=2)
    assert ended.row == NOT_PLACED
    waiting.last_step = 2
    rows.place(fresh, step=3)
    assert waiting.row == NOT_PLACED
    fresh.last_step = waiting.last_step = 4
    with pytest.raises(ProgramError, match="bank slots are in use"):
        rows.place(waiting, step=4)
    assert fresh.row > 0
    assert rows.op_count[:, fresh.row].tolist() == [1, 1]
