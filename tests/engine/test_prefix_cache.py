"""Prefix caching stays on, and no request ever reads key-values that are not its own."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import pytest

from tests.engine.conftest import BLOCK, Rig
from tests.support.engine_models import LAYERS, direction
from tests.support.engine_process import Answer, Ask

JOY = {"id": "joy", "layer": 14}
LATER = {**JOY, "decode_only": True}
STORY = (
    "Once upon a time there was a little fox that lived in the forest, and every day it walked "
    "down to the river to drink. One morning the river was gone, and in its place there was a long "
    "white road that led up to the mountains. The fox put one foot on it and it was as cold as "
    "the snow. Far away somebody was singing, a song that the fox had heard when it was small, "
    "before the winter, before the long nights under the roots of the old oak tree, and"
)


@pytest.fixture(autouse=True)
def _vectors(main: Rig) -> None:
    main.driver.put({"joy": direction(1, range(LAYERS), norm=20.0)})


def whole_blocks(tokens: int) -> int:
    """The tokens of the blocks that are full."""
    return tokens // BLOCK * BLOCK


def cached_for(prompt: Iterable[int]) -> int:
    """The tokens a cached prompt saves: whole blocks, and the last token is always computed."""
    return whole_blocks(len(tuple(prompt)) - 1)


def uncached(rig: Rig, ask: Ask) -> Answer:
    """What the request comes to when nothing is cached."""
    rig.engine.call("reset_prefix_cache")
    answer = rig.engine.one(ask)
    rig.engine.call("reset_prefix_cache")
    assert answer.cached == 0
    return answer


def test_a_prompt_steered_and_unsteered_by_turns(main: Rig) -> None:
    """Each way of steering one prompt finds its own blocks again, and only those.

    Steered after unsteered: nothing cached. Each of the two again: its own blocks. Decode-only: the
    unsteered prompt's. All answers are those of an empty cache.
    """
    specs = {"plain": None, "joy": JOY, "later": LATER}
    expected = {name: uncached(main, Ask(STORY, spec)) for name, spec in specs.items()}
    full = cached_for(expected["plain"].prompt)
    assert full >= 3 * BLOCK
    turns = {"plain": 0, "joy": 0, "plain again": full, "joy again": full, "later": full,
             "later again": full, "plain at last": full}  # fmt: skip
    for turn, cached in turns.items():
        name = turn.split()[0]
        answer = main.engine.one(Ask(STORY, specs[name]))
        assert (turn, answer.cached) == (turn, cached)
        assert answer.same_as(expected[name]), turn
    assert all(one.differs_from(other) for one, other in combinations(expected.values(), 2))


@pytest.mark.parametrize("prompt_tokens", [95, 96, 97])
def test_a_block_with_both_is_nobody_elses(main: Rig, prompt_tokens: int) -> None:
    """Wherever the prompt ends within a block, a decode-only answer is read by nobody else."""
    prompt = uncached(main, Ask(STORY)).prompt[:prompt_tokens]
    first = main.engine.one(Ask(prompt, LATER, tokens=40))
    follow_up = (*prompt, *first.tokens, 260, 28)
    for spec in (None, JOY, LATER):
        answer = main.engine.one(Ask(follow_up, spec))
        # A steered prompt shares nothing; the others share what was not steered.
        shared = 0 if spec is JOY else whole_blocks(prompt_tokens)
        assert answer.cached == shared
        main.engine.call("reset_prefix_cache")
        main.engine.one(Ask(prompt, LATER, tokens=40))
    for spec in (None, JOY, LATER):
        expected = uncached(main, Ask(follow_up, spec))
        main.engine.one(Ask(prompt, LATER, tokens=40))
        assert main.engine.one(Ask(follow_up, spec)).same_as(expected)


def test_an_unsteered_follow_up_recomputes_a_steered_turn(main: Rig) -> None:
    """A next turn that holds a steered answer reads none of its blocks unless steered alike."""
    first = main.engine.one(Ask(STORY, JOY, tokens=40))
    follow_up = (*first.prompt, *first.tokens, 260, 28)
    assert main.engine.one(Ask(follow_up)).cached == 0
    again = main.engine.one(Ask(follow_up, JOY))
    assert again.cached == whole_blocks(len(first.prompt) + len(first.tokens) - 1)
    assert again.same_as(uncached(main, Ask(follow_up, JOY)))


@pytest.mark.parametrize(
    "spec",
    [
        {**JOY, "scope": "prompt"},
        [{**JOY, "scale": 0.5}, {**JOY, "scale": -1.5, "layer": 20, "decode_only": True}],
    ],
    ids=["prompt", "mixed"],
)
def test_what_was_generated_is_prompt_to_a_follow_up(main: Rig, spec: object) -> None:
    """A follow-up steers the last answer's tokens as prompt, so it cannot share their blocks."""
    first = main.engine.one(Ask(STORY, spec, tokens=40))
    follow_up = Ask((*first.prompt, *first.tokens, 260, 28), spec)
    answer = main.engine.one(follow_up)
    assert answer.cached == whole_blocks(len(first.prompt))
    assert answer.same_as(uncached(main, follow_up))


def test_a_changed_vector_shares_nothing(main: Rig) -> None:
    """The name's new content is what counts; and the old one's blocks are found again with it."""
    old, new = main.driver.vectors["joy"], direction(2, range(LAYERS), norm=20.0)
    before = main.engine.one(Ask(STORY, JOY))
    main.driver.put({"joy": new})
    changed = main.engine.one(Ask(STORY, JOY))
    assert changed.cached == 0
    assert changed.differs_from(before)
    main.driver.put({"joy": old})
    back = main.engine.one(Ask(STORY, JOY))
    assert back.cached == cached_for(before.prompt)
    assert back.same_as(before)
    assert changed.same_as(uncached_with(main, new))


def uncached_with(rig: Rig, vector: object) -> Answer:
    """What the story comes to, steered by another vector of that name."""
    rig.driver.put({"joy": vector})  # type: ignore[dict-item]
    return uncached(rig, Ask(STORY, JOY))


@pytest.mark.parametrize(
    "alike",
    [
        [{"id": "joy", "layer": [14], "scale": 1, "op": "add", "scope": "all"}],
        '{ "scale": 1.0, "decode_only": false, "layer": "14", "id": "joy" }',
        {**JOY, "id": "alias"},
        [{"id": "joy", "layer": 20, "scale": 0}, JOY],
    ],
    ids=["spelt out", "text", "another name", "a part of scale 0"],
)
def test_equal_steering_shares_however_it_is_written(main: Rig, alike: object) -> None:
    """Blocks are shared by what is done, not by how it was asked for."""
    main.driver.put({"alias": main.driver.vectors["joy"]})
    first = main.engine.one(Ask(STORY, JOY))
    again = main.engine.one(Ask(STORY, alike))
    assert again.cached == cached_for(first.prompt)
    assert again.tokens == first.tokens


@pytest.mark.parametrize(
    "other",
    [
        {**JOY, "scale": 1.0000001},
        {**JOY, "scale": -1.0},
        {**JOY, "layer": 15},
        {**JOY, "positions": {"exclude": [0]}},
        [JOY, {**JOY, "layer": 3, "scale": 0.01}],
    ],
    ids=["scale", "sign", "layer", "position", "one entry more"],
)
def test_other_steering_shares_nothing(main: Rig, other: object) -> None:
    """Whatever changes what the blocks hold keeps them apart."""
    main.engine.one(Ask(STORY, JOY))
    assert main.engine.one(Ask(STORY, other)).cached == 0


@pytest.mark.parametrize(
    ("first", "then", "shared"),
    [
        (JOY, {**JOY, "scope": "prompt"}, 3),
        (None, {**JOY, "scope": "last_prompt_token"}, 3),
        (None, {**JOY, "positions": [[40, None]]}, 1),
        (JOY, {**JOY, "positions": {"exclude": [70]}}, 2),
        (None, {**JOY, "to_generated": 3}, 3),
    ],
    ids=["prompt", "last token", "from 40 on", "not 70", "window"],
)
def test_blocks_are_shared_as_far_as_they_hold_the_same(
    main: Rig, first: object, then: object, shared: int
) -> None:
    """What is steered later in the prompt, or after it, takes nothing from the blocks before."""
    expected = uncached(main, Ask(STORY, then))
    main.engine.one(Ask(STORY, first))
    answer = main.engine.one(Ask(STORY, then))
    assert answer.cached == shared * BLOCK
    assert answer.same_as(expected)


def test_scale_zero_and_a_refused_specification_share_with_everybody(main: Rig) -> None:
    """A request that runs unsteered, for whatever reason, shares with unsteered ones."""
    plain = main.engine.one(Ask(STORY))
    for spec in ({**JOY, "scale": 0.0}, {"id": "nobody"}, "{"):
        answer = main.engine.one(Ask(STORY, spec))
        assert answer.cached == cached_for(plain.prompt)
        assert answer.tokens == plain.tokens
