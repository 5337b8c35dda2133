"""Any programs in any batch: what the worker's tables and the op do is what the formulas say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hotwire_plugin import op as steering
from hotwire_plugin.bank import Bank
from hotwire_plugin.fill import StepFill, TokenMap
from hotwire_plugin.placement import Placement
from hotwire_plugin.positions import EVERYWHERE, SCOPES, Positions
from hotwire_plugin.program import Program, ProgramOp
from hotwire_plugin.rows import ProgramRows
from hotwire_plugin.shape import Place
from tests.support.steering_math import loader, steered

HIDDEN, REVISIONS = 12, ("a" * 64, "b" * 64)
PLACES = [Place(0), Place(1, "pre"), Place(1, "post", 0), Place(1, "post", 1)]
CPU = torch.device("cpu")
RNG = torch.Generator().manual_seed(11)
ROWS = {(r, layer): torch.randn(HIDDEN, generator=RNG) for r in REVISIONS for layer in (0, 1)}

WHERE = st.sampled_from(
    [
        *[EVERYWHERE] * 3,
        Positions(include=((1, 3), (-1, -1))),
        Positions(exclude=((0, 0), (-2, None))),
        Positions(generated=(1, 3)),
    ]
)
OPS = st.builds(
    lambda kind, place, scale, scope, where, stream: ProgramOp(
        *(REVISIONS[0], place[0], scale, kind, scope, where, place[1], stream),
        bounds=(-0.5, 1.0) if kind == "clamp" else (-np.inf, np.inf),
        target=REVISIONS[1] if kind == "swap" else "",
    ),
    st.sampled_from(["add", "norm_add", "ablate", "clamp", "swap"]),
    st.sampled_from([(0, "post"), (1, "pre"), (1, "post")]),
    st.sampled_from([1.0, -0.5, 0.25]),
    st.sampled_from(SCOPES),
    WHERE,
    st.sampled_from([None, 0, 1]),
)


class Request(NamedTuple):
    """One request of a batch: its program, and the span that the step computes."""

    ops: list[ProgramOp]
    computed: int
    scheduled: int
    prompt_len: int


BATCHES = st.lists(
    st.builds(
        Request,
        st.lists(OPS, max_size=5),
        st.integers(0, 7),
        st.integers(1, 6),
        st.integers(0, 8),
    ),
    min_size=1,
    max_size=3,
)


def run(batch: list[Request]) -> tuple[ProgramRows, torch.Tensor]:
    """Run one step's fill; return the tables and the token map."""
    table = ProgramRows(
        places=PLACES,
        rows=64,
        bank=Bank(65, HIDDEN, CPU),
        load_row=lambda revision, layer: ROWS[revision, layer].numpy(),
    )
    fill = StepFill(table, TokenMap(64, CPU))
    for number, request in enumerate(batch):
        program = Program.build(request.ops)
        if program is not None:
            fill.begin(str(number), program.encode())
    spans = np.array([0, *(r.scheduled for r in batch)]).cumsum()
    computed, prompts = ([r[field] for r in batch] for field in (1, 3))
    ids = [str(number) for number in range(len(batch))]
    fill.step(ids, spans, np.array(computed), np.array(prompts), enabled=True)
    assert not fill.errors
    return table, fill._tokens.rows


def steer(table: ProgramRows, tokens: torch.Tensor, at: int, x: torch.Tensor) -> torch.Tensor:
    """Return x after the op of one place."""
    hidden = x.clone()
    was, steering.cpu_gate.active = steering.cpu_gate.active, True
    torch.ops.hotwired.steer(
        *(hidden, None, table._bank.rows, table.op_slots[at], table.op_coef[at]),
        *(table.op_count[at], table.limit, tokens),
    )
    steering.cpu_gate.active = was
    return hidden


def check(batch: list[Request]) -> None:
    """Compare each place's result with the formulas, position by position."""
    table, tokens = run(batch)
    n = sum(request.scheduled for request in batch)
    x = torch.randn(n, HIDDEN, generator=torch.Generator().manual_seed(n))
    for at, place in enumerate(PLACES):
        parts = zip(batch, x.double().split([r.scheduled for r in batch]), strict=True)
        want = torch.cat([_expected(request, place, part) for request, part in parts])
        got = steer(table, tokens, at, x)
        assert torch.allclose(got.double(), want, atol=2e-5, rtol=1e-5)
        unmoved = (want == x.double()).all(dim=1)
        assert torch.equal(got[unmoved], x[unmoved])


def _expected(request: Request, place: Place, x: torch.Tensor) -> torch.Tensor:
    here = [
        op
        for op in request.ops
        if (op.layer, op.site) == place[:2] and op.stream in (None, place.stream)
    ]
    positions = range(request.computed, request.computed + request.scheduled)
    return steered(x, here, positions, request.prompt_len, loader(ROWS))


@settings(deadline=None, max_examples=200)
@given(batch=BATCHES)
def test_a_batch_of_any_programs(batch: list[Request]) -> None:
    """Every op, scope, position, site and stream, mixed over requests; the rest keeps its bits."""
    check(batch)


def test_a_planted_off_by_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A span laid out one position too late does not get past it."""
    inner: Callable[..., Any] = Placement.between
    monkeypatch.setattr(Placement, "between", lambda s, a, b: inner(s, a + 1, b + 1))
    found = settings(
        deadline=None,
        max_examples=1000,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
    )
    with pytest.raises((AssertionError, ExceptionGroup)):
        found(given(batch=BATCHES)(check))()
