"""Requests that come, go and share batches in any order get what a plain model says, always."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from hotwire_plugin.bank import Bank
from hotwire_plugin.fill import StepFill, TokenMap
from hotwire_plugin.layout import Spans
from hotwire_plugin.placement import OpSet, Placement
from hotwire_plugin.positions import EVERYWHERE, SCOPES, Positions
from hotwire_plugin.program import Program, ProgramOp
from hotwire_plugin.rows import ProgramRows
from hotwire_plugin.shape import Place
from tests.support.steering_math import acts

LAYERS, BATCH, SLOTS, REVISIONS = 2, 3, 4, 6
REQUESTS = st.integers(0, 6).map(str)
OPS = st.builds(
    ProgramOp,
    st.integers(1, REVISIONS + 1).map("{:064x}".format),  # the last is not held
    st.integers(0, LAYERS),  # the last is another stage's
    st.sampled_from([1.0, -2.0, 0.5]),
    st.just("add"),
    st.sampled_from(SCOPES),
    st.sampled_from(
        [
            *[EVERYWHERE] * 3,
            Positions(include=((2, 5), (-1, -1))),
            Positions(exclude=((0, 0), (3, 3))),
            Positions(generated=(1, 3)),
        ]
    ),
)
SPANS = st.lists(
    st.tuples(REQUESTS, st.integers(0, 6), st.integers(1, 5)),
    min_size=1,
    max_size=BATCH,
    unique_by=lambda span: span[0],
)


def value(revision: str, layer: int) -> float:
    """Return what each element of a vector's row is."""
    return int(revision, 16) * 10.0 + layer + 1


def load(revision: str, layer: int) -> np.ndarray:
    """Return a row of a revision that is held."""
    if int(revision, 16) > REVISIONS:
        raise KeyError(revision)
    return np.full(4, value(revision, layer), np.float32)


class FillModel(RuleBasedStateMachine):
    """A worker's tables beside a plain dictionary of the programs of the live requests."""

    def __init__(self) -> None:
        super().__init__()
        cpu = torch.device("cpu")
        self.bank = Bank(SLOTS + 1, 4, cpu)
        self.rows = ProgramRows(
            places=[Place(layer) for layer in range(LAYERS)],
            rows=2 * BATCH + 1,
            bank=self.bank,
            load_row=load,
        )
        self.tokens = TokenMap(64, cpu)
        self.fill = StepFill(self.rows, self.tokens)
        self.live: dict[str, Program] = {}
        self.prompts: dict[str, int] = {}

    @rule(request=REQUESTS, ops=st.lists(OPS, min_size=1, max_size=3), prompt=st.integers(0, 8))
    def begin(self, request: str, ops: list[ProgramOp], prompt: int) -> None:
        """Take up a request with a prompt of its own, also one that is live already."""
        self.prompts[request] = prompt
        self.live[request] = Program(tuple(ops))
        self.fill.begin(request, self.live[request].encode())

    @rule(request=REQUESTS)
    def begin_with_nonsense(self, request: str) -> None:
        """Take up a request whose program is none."""
        self.live.pop(request, None)
        self.fill.begin(request, "nonsense")

    @rule(request=REQUESTS)
    def end(self, request: str) -> None:
        """End a request, live or not."""
        self.live.pop(request, None)
        self.fill.end(request)

    @rule(spans=SPANS, enabled=st.booleans())
    def step(self, spans: list[tuple[str, int, int]], enabled: bool) -> None:  # noqa: FBT001
        """Run a step of (request, computed, scheduled); look at each token."""
        ids, computed, lengths = zip(*spans, strict=True)
        prompts = [self.prompts.get(request, 3) for request in ids]
        start = np.cumsum([0, *lengths])
        self.fill.step(ids, start, np.array(computed), np.array(prompts), enabled=enabled)
        self._forget_refused(ids)
        rows = self.tokens.rows.tolist()
        for request, first, at, length, prompt in zip(
            ids, computed, start[:-1], lengths, prompts, strict=True
        ):
            program = self.live.get(request) if enabled else None
            for i in range(length):
                assert self._does(rows[at + i]) == _wanted(program, first + i, prompt)
        assert not any(rows[start[-1] :])
        assert self.fill.active == any(rows)

    def _forget_refused(self, ids: tuple[str, ...]) -> None:
        """Drop what the fill refused, which must have lacked a vector, or room in the bank."""
        needed = {
            (op.revision, op.layer)
            for request in ids
            if request in self.live
            for op in self.live[request].ops
            if op.layer < LAYERS
        }
        for request in set(ids) & self.live.keys() - self.fill._live.keys():
            own = [op for op in self.live.pop(request).ops if op.layer < LAYERS]
            lacks = any(int(op.revision, 16) > REVISIONS for op in own)
            assert lacks or len(needed) > SLOTS

    def _does(self, row: int) -> list[float]:
        """Return what a row adds at each layer."""
        added = [0.0] * LAYERS
        for layer in range(LAYERS):
            for k in range(int(self.rows.op_count[layer, row])):
                slot = int(self.rows.op_slots[layer, row, k, 1])
                scale = float(self.rows.op_coef[layer, row, k, 0])
                added[layer] += scale * float(self.bank.rows[slot, 0])
        return added

    @invariant()
    def nothing_is_lost(self) -> None:
        """Every row and slot is free or held by something, and row 0 and slot 0 are empty."""
        assert not self.bank.rows[0].any()
        assert not self.rows.op_count[:, 0].any()
        assert len(self.rows._free) + len(self.rows._placed) == self.rows.capacity
        assert len(self.bank._free) + len(self.bank._slot) == SLOTS
        assert self.live or not self.rows.in_use


def _wanted(program: Program | None, position: int, prompt_len: int) -> list[float]:
    added = [0.0] * LAYERS
    for op in program.ops if program else ():
        if op.layer < LAYERS and acts(op, position, prompt_len):
            added[op.layer] += op.scale * value(op.revision, op.layer)
    return added


TestFillModel = FillModel.TestCase
TestFillModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def _late_by_one(inner: Callable[..., Iterator[tuple[int, OpSet]]]) -> Callable[..., Any]:
    return lambda self, start, stop: inner(self, start + 1, stop + 1)


def _prompt_too_long(inner: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, n: inner(self._replace(prompt_len=self.prompt_len + 1), n)


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [(Placement, "between", _late_by_one), (Spans, "phases", _prompt_too_long)],
)
def test_the_model_finds_a_planted_off_by_one(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, planted: Callable[..., Any]
) -> None:
    """One position too late, in either way that rows are laid out, does not get past it."""
    monkeypatch.setattr(owner, name, planted(getattr(owner, name)))
    # Always the same tries, of which some are known to find it.
    tries = settings(
        max_examples=3000,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
    )
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(FillModel, settings=tries)
