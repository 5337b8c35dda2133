"""Where operations act in a request: intervals against a position-by-position account."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwire_plugin.placement import MAX_SETS, Placement
from hotwire_plugin.positions import EVERYWHERE, SCOPES, Positions, runs
from hotwire_plugin.program import Program, ProgramOp
from tests.support.steering_math import acts

REVISION = "a" * 64
numbers = st.integers(-12, 24)
ranges = st.one_of(
    st.tuples(numbers, numbers).filter(lambda r: (r[0] < 0) != (r[1] < 0) or r[0] <= r[1]),
    st.tuples(numbers, st.none()),
)
positions = st.builds(
    Positions,
    include=st.lists(ranges, max_size=3).map(tuple),
    exclude=st.lists(ranges, max_size=3).map(tuple),
    generated=st.sampled_from([(0, None), (2, None), (0, 3), (1, 4)]),
)


def op(
    scope: str = "all", where: Positions = EVERYWHERE, scale: float = 1.0, layer: int = 0
) -> ProgramOp:
    """Return an operation at layer 0, unless told otherwise."""
    return ProgramOp(REVISION, layer, scale, "add", scope, where)


@given(
    kinds=st.lists(st.tuples(st.sampled_from(SCOPES), positions), min_size=1, max_size=4),
    prompt_len=st.integers(0, 16),
)
def test_intervals_say_what_each_position_says(
    kinds: list[tuple[str, Positions]], prompt_len: int
) -> None:
    """At each of 40 positions, exactly the operations that act there, in order."""
    ops = [op(scope, where, 1.0 + n) for n, (scope, where) in enumerate(kinds)]
    placement = Placement.of(Program(tuple(ops)), prompt_len)
    laid_out = [s for length, s in placement.between(0, 40) for _ in range(length)]
    for position, each in enumerate(laid_out):
        want = [o.scale for o in ops if acts(o, position, prompt_len)]
        assert [o.scale for o in each.ops] == want


@given(
    kinds=st.lists(st.tuples(st.sampled_from(SCOPES), positions), min_size=1, max_size=3),
    prompt_len=st.integers(0, 16),
    start=st.integers(0, 30),
    length=st.integers(0, 20),
)
def test_any_span_is_a_part_of_the_whole(
    kinds: list[tuple[str, Positions]], prompt_len: int, start: int, length: int
) -> None:
    """However a request is cut into steps, each position gets the same."""
    program = Program(tuple(op(s, w, 1.0 + n) for n, (s, w) in enumerate(kinds)))
    placement = Placement.of(program, prompt_len)
    whole = [s.key for n, s in placement.between(0, 60) for _ in range(n)]
    part = [s.key for n, s in placement.between(start, start + length) for _ in range(n)]
    assert part == whole[start : start + length]


def test_steered_positions_are_those_where_anything_acts() -> None:
    """Up to where the request got."""
    generated = Placement.of(Program((op("generated"),)), 20)
    assert [generated.steered(stop) for stop in (0, 10, 20, 21, 50)] == [0, 0, 0, 1, 30]
    prompt = Placement.of(Program((op("prompt", Positions(exclude=((2, 4),))), op("prompt"))), 20)
    assert [prompt.steered(stop) for stop in (0, 10, 20, 50)] == [0, 10, 20, 20]
    some = Placement.of(Program((op("prompt", Positions(exclude=((2, 4),))),)), 20)
    assert [some.steered(stop) for stop in (0, 3, 10, 50)] == [0, 2, 7, 17]


def test_keys_tell_blocks_apart_by_what_acts_in_them() -> None:
    """Equal where the same acts at the same places of a block, whatever the program does else."""
    joy, later = op(), op("generated")
    everywhere = Placement.of(Program((joy,)), 20)
    generated = Placement.of(Program((later,)), 20)
    last = Placement.of(Program((op("last_prompt_token"),)), 20)
    assert everywhere.key(0, 16) == everywhere.key(16, 32) == generated.key(32, 48)
    assert generated.key(0, 16) is None
    assert last.key(0, 16) is last.key(32, 48) is None
    mixed = {everywhere.key(16, 32), generated.key(16, 32), last.key(16, 32), None}
    assert len(mixed) == 4
    moved = Placement.of(Program((later,)), 21)
    assert moved.key(16, 32) != generated.key(16, 32)
    assert moved.key(32, 48) == generated.key(32, 48)


def test_the_sets_of_many_windows_are_counted() -> None:
    """Each window that acts alone is a set of its own; how many there are is what is limited."""
    windows = [Positions(generated=(n, n + 1)) for n in range(MAX_SETS + 1)]
    ops = tuple(op("generated", where, layer=n) for n, where in enumerate(windows))
    assert len(Placement.of(Program(ops), 5).distinct) == MAX_SETS + 1
    assert len(Placement.of(Program(ops[:3]), 5).distinct) == 3


@pytest.mark.parametrize(
    ("where", "prompt_len", "acting"),
    [
        (Positions(include=((0, 0), (-1, -1))), 6, {0, 5}),
        (Positions(include=((-2, None),)), 6, {4, 5, 6, 7, 8, 9}),
        (Positions(include=((-9, -5),)), 6, {0, 1}),
        (Positions(include=((-9, -9),)), 6, set()),
        (Positions(include=((7, 8),)), 6, {7, 8}),
        (Positions(include=((2, 4),), exclude=((3, 3),)), 6, {2, 4}),
        (Positions(exclude=((0, -2),)), 6, {5, 6, 7, 8, 9}),
        (Positions(generated=(1, 3)), 6, {0, 1, 2, 3, 4, 5, 7, 8}),
    ],
)
def test_positions(where: Positions, prompt_len: int, acting: set[int]) -> None:
    """Absolute, from the prompt's end, ranges, windows; exclusion wins; nowhere is allowed."""
    placement = Placement.of(Program((op(where=where),)), prompt_len)
    laid_out = itertools.chain.from_iterable([s.key] * n for n, s in placement.between(0, 10))
    assert {at for at, key in enumerate(laid_out) if key} == acting


def test_special_positions_are_excluded_once_they_are_known() -> None:
    """Where they are is spelt out in runs; who does not skip them is left alone."""
    skipping = Program((op(where=Positions(skip_special=True)), op("prompt", scale=2.0)))
    assert skipping.skips_special
    spelt = skipping.without((0, 1, 2, 7))
    assert not spelt.skips_special
    assert spelt.ops[0].positions.exclude == ((0, 2), (7, 7))
    assert spelt.ops[1].positions == EVERYWHERE
    assert runs([]) == []
