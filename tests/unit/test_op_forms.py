"""Every op, from its program to the bytes the op reads, does what its formula says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotwire_plugin import op as steering
from hotwire_plugin.bank import Bank
from hotwire_plugin.op_forms import Direction, form
from hotwire_plugin.program import Program, ProgramOp
from hotwire_plugin.rows import ProgramRows
from hotwire_plugin.shape import Place
from tests.support.steering_math import loader
from tests.support.steering_math import steered as expected

HIDDEN, TOKENS = 24, 5
A, B = "a" * 64, "b" * 64
CPU = torch.device("cpu")


def vectors(seed: int, norm: float = 1.0) -> dict[tuple[str, int], torch.Tensor]:
    """Return a row for each of two revisions at layer 0."""
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randn(2, HIDDEN, generator=rng)
    return {(A, 0): rows[0] * norm, (B, 0): rows[1] * norm}


def run(
    x: torch.Tensor, ops: tuple[ProgramOp, ...], rows: dict[tuple[str, int], torch.Tensor]
) -> torch.Tensor:
    """Steer every token of x, (TOKENS, HIDDEN) fp32, by the worker's own tables."""
    table = ProgramRows(
        places=[Place(0)],
        rows=32,
        bank=Bank(33, HIDDEN, CPU),
        load_row=lambda revision, layer: rows[revision, layer].numpy(),
    )
    entry = table.acquire("k", Program(ops).ops)
    table.place(entry, 1)
    hidden = x.clone()
    tokens = torch.full((len(x),), entry.row, dtype=torch.int32)
    was, steering.cpu_gate.active = steering.cpu_gate.active, True
    torch.ops.hotwired.steer(
        *(hidden, None, table._bank.rows, table.op_slots[0], table.op_coef[0]),
        *(table.op_count[0], table.limit, tokens),
    )
    steering.cpu_gate.active = was
    return hidden


scales = st.floats(-2, 2, width=32).filter(bool)
OPS = st.one_of(
    st.builds(ProgramOp, st.sampled_from([A, B]), st.just(0), scales,
              st.sampled_from(["add", "norm_add", "ablate"]), st.just("all")),
    st.builds(ProgramOp, st.just(A), st.just(0), scales, st.just("swap"), st.just("all"),
              target=st.just(B)),
    st.builds(
        lambda scale, low, width: ProgramOp(
            A, 0, scale, "clamp", "all", bounds=(low, float(np.float32(low + width)))
        ),
        scales, st.floats(-3, 3, width=32), st.sampled_from([0.0, 0.5, float("inf")])),
)  # fmt: skip


@given(ops=st.lists(OPS, min_size=1, max_size=8), seed=st.integers(0, 50))
def test_stacked_ops_do_what_their_formulas_say(ops: list[ProgramOp], seed: int) -> None:
    """Up to eight at one place, in the order given, each on what the one before it left."""
    rows = vectors(seed)
    x = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(seed + 1))
    want = expected(x.double(), ops, range(TOKENS), TOKENS, loader(rows))
    got = run(x, tuple(ops), rows).double()
    # Each op's rounding is relative to what it reads, which those before may have made large.
    assert torch.allclose(got, want, rtol=1e-5, atol=1e-5 * float(want.abs().max() + 1))


@pytest.mark.parametrize("norm", [1e-30, 1e-3, 1.0, 1e20])
@pytest.mark.parametrize(
    "asked",
    [
        ProgramOp(A, 0, 0.5, "norm_add", "all"),
        ProgramOp(A, 0, 1.0, "ablate", "all"),
        ProgramOp(A, 0, 1.0, "clamp", "all", bounds=(1.5, 1.5)),
        ProgramOp(A, 0, 1.0, "swap", "all", target=B),
    ],
    ids=lambda op: op.op,
)
def test_a_directions_length_does_not_count(asked: ProgramOp, norm: float) -> None:
    """All but add need the direction alone: a vector 10^50 times longer does the same."""
    x = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(3))
    got, want = run(x, (asked,), vectors(7, norm)), run(x, (asked,), vectors(7))
    assert torch.allclose(got, want, atol=1e-5)
    assert not torch.allclose(got, x, atol=1e-2)


def test_pin_sets_the_component_and_keeps_the_rest() -> None:
    """A clamp with min = max: the component is exactly there, what is orthogonal is not moved."""
    rows = vectors(5)
    unit = rows[A, 0].double() / rows[A, 0].double().norm()
    x = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(4))
    got = run(x, (ProgramOp(A, 0, 1.0, "clamp", "all", bounds=(2.5, 2.5)),), rows).double()
    assert torch.allclose(got @ unit, torch.full((TOKENS,), 2.5).double(), atol=1e-5)
    orthogonal = [t - (t @ unit)[:, None] * unit for t in (got, x.double())]
    assert torch.allclose(*orthogonal, atol=1e-5)


def test_swap_is_undone_by_the_swap_back_of_an_orthogonal_pair() -> None:
    """The component along v is moved to t: what was along t stays, and more is added to it."""
    rows = {(A, 0): torch.eye(HIDDEN)[0] * 3, (B, 0): torch.eye(HIDDEN)[1] * 0.5}
    x = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(4))
    got = run(x, (ProgramOp(A, 0, 1.0, "swap", "all", target=B),), rows)
    assert torch.allclose(got[:, 0], torch.zeros(TOKENS), atol=1e-6)
    assert torch.allclose(got[:, 1], x[:, 0] + x[:, 1], atol=1e-6)
    assert torch.equal(got[:, 2:], x[:, 2:])


def test_one_slot_serves_all_that_need_a_direction() -> None:
    """The row as registered, its direction, and a difference of two are three; no more are taken.

    Ops that share one count it once.
    """
    asked = [
        form(ProgramOp(A, 0, s, kind, "all")).w for kind in ("norm_add", "ablate") for s in (1, 2)
    ]
    assert set(asked) == {Direction(A, 0, unit=True)}
    swap = form(ProgramOp(A, 0, 1.0, "swap", "all", target=B))
    assert swap.u == Direction(A, 0, unit=True)
    assert swap.w == Direction(A, 0, unit=True, target=B)


def test_an_op_without_a_formula_is_an_error() -> None:
    """It is refused by name, should one ever get here."""
    op = dataclasses.replace(ProgramOp(A, 0, 1.0, "add", "all"), op="rotate")
    with pytest.raises(ValueError, match="'rotate'"):
        form(op)
