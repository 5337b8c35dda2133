"""Sessions, whose input goes on after they have generated: each position is steered as it came.

What a session generated is prompt once the next chunk is there, so a block where chunks meet holds
what no other request would have written.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from tests.engine.conftest import BLOCK, Rig
from tests.support import situations
from tests.support.engine_models import TINY_LAYERS, TINY_WIDTH, direction
from tests.support.engine_process import Ask
from tests.support.situations import Turn
from tests.support.steered_check import ROW, SPECS, Judge, prompt

OTHER = direction(2, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)
FIRST, SECOND = 40, 20
"""The tokens of the two chunks."""

_names = (f"session-{number}" for number in count())


@pytest.fixture(autouse=True)
def _vectors(wide: Rig) -> None:
    wide.driver.put({"joy": ROW})


def chunks(
    before: str | None, after: str | None, generated: int = 30
) -> tuple[list[Ask], np.ndarray, np.ndarray]:
    """Two chunks steered in these scopes, and the masks of what that makes of each turn.

    vLLM drops the last token of a turn, which nothing was computed of.
    """
    parts = [(FIRST, before, "prompt"), (generated - 1, before, "generated")]
    parts += [(SECOND, after, "prompt"), (12, after, "generated")]
    mask = np.concatenate([np.full(n, scope in ("all", phase)) for n, scope, phase in parts])
    asks = [
        Ask(prompt(FIRST), SPECS[before], tokens=generated),
        Ask(prompt(SECOND, 1), SPECS[after], tokens=12),
    ]
    return asks, mask[: FIRST + generated], mask


def check(judge: Judge, turns: list[Turn], asks: list[Ask], mask: np.ndarray) -> tuple[int, ...]:
    """The figures of both turns are those of the mask; returns all that was computed."""
    kept = prompt(FIRST) + turns[0].tokens[:-1]
    first = np.append(mask[: len(kept)], False)
    judge.check_from(prompt(FIRST) + turns[0].tokens, FIRST, turns[0].logprobs, first)
    whole = kept + prompt(SECOND, 1)
    judge.check_from(whole + turns[1].tokens, len(whole), turns[1].logprobs, mask)
    return whole + turns[1].tokens


PAIRS = [
    ("all", "all"),
    ("generated", "generated"),
    ("prompt", "prompt"),
    (None, "generated"),
    (None, "all"),
    ("all", None),
    ("generated", "prompt"),
]


@pytest.mark.parametrize("queued", [False, True], ids=["in turn", "queued"])
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_each_chunk_is_steered_as_it_asks(
    wide: Rig,
    judge: Judge,
    before: str | None,
    after: str | None,
    queued: bool,  # noqa: FBT001
) -> None:
    """A chunk that waits in the queue leaves the turn that runs alone, and is steered in its own.

    What the session leaves in the cache serves every follow-up rightly, whatever its scope.
    """
    asks, _, mask = chunks(before, after)
    turns = wide.engine.call("run", converse, next(_names), asks, queued)
    tokens = check(judge, turns, asks, mask)
    for scope, spec in SPECS.items():
        answer = wide.engine.one(Ask(tokens, spec, tokens=4))
        judge.check(answer, scope)


def converse(host: Any, name: str, asks: list[Ask], queued: bool) -> list[Turn]:  # noqa: FBT001
    """Runs a session."""
    return situations.converse(host, name, asks, queued=queued)


@pytest.mark.parametrize("scope", ["all", "generated", "prompt"])
@pytest.mark.parametrize("generated", [24, 25, 26])
def test_chunks_that_meet_at_a_block(wide: Rig, judge: Judge, scope: str, generated: int) -> None:
    """Wherever within a block the chunks meet, one token short or past it, nobody is misled."""
    asks, _, mask = chunks(scope, scope, generated)
    assert (FIRST + 25 - 1) % BLOCK == 0
    turns = wide.engine.call("run", converse, next(_names), asks, False)
    tokens = check(judge, turns, asks, mask)
    for other, spec in SPECS.items():
        judge.check(wide.engine.one(Ask(tokens, spec, tokens=4)), other)


def test_an_unsteered_session_is_none_of_our_business(wide: Rig, judge: Judge) -> None:
    """Its blocks are shared with everybody, those of its second turn as well."""
    asks, _, mask = chunks(None, None)
    tokens = check(judge, wide.engine.call("run", converse, next(_names), asks, False), asks, mask)
    assert wide.engine.one(Ask(tokens, tokens=2)).cached == (len(tokens) - 1) // BLOCK * BLOCK


def test_the_first_turn_of_a_steered_session_shares_its_prompt(wide: Rig) -> None:
    """Until its second chunk a session is a request like others: its prompt is found and read."""
    wide.engine.one(Ask(prompt(FIRST), SPECS["all"], tokens=2))
    before = wide.engine.call("run", situations.counters, "prefix_cache_hits")
    asks, _, _ = chunks("all", "all")
    wide.engine.call("run", converse, next(_names), asks, False)
    after = wide.engine.call("run", situations.counters, "prefix_cache_hits")
    hits = "vllm:prefix_cache_hits"
    assert after[hits] - before[hits] == BLOCK


def test_a_session_holds_its_revisions_until_they_are_done(wide: Rig, judge: Judge) -> None:
    """A chunk in the queue keeps its revision in use, and so does the turn that runs."""
    name, (asks, _, mask) = next(_names), chunks("all", "all")
    wide.engine.call("run", situations.send_chunk, name, asks[0])
    wide.engine.call("step", 3)
    wide.driver.put({"joy": OTHER, "old": ROW})
    old = Ask(asks[1].prompt, {"id": "old", "layer": 1}, tokens=asks[1].tokens)
    wide.engine.call("run", situations.send_chunk, name, asks[1])
    assert len(wide.driver.engine().revisions_in_use) == 2
    wide.engine.call("run", finish, name)
    wide.engine.call("step", 2)
    assert (wide.driver.engine().requests_live, wide.driver.worker().rows_in_use) == (0, 0)
    # And a chunk that asks for the old vector by its other name is steered by it.
    wide.driver.put({"joy": ROW, "old": ROW})
    turns = wide.engine.call("run", converse, next(_names), [asks[0], old], True)
    check(judge, turns, asks, mask)


def finish(host: Any, name: str) -> None:
    """Closes a session and steps until its last turn is done."""
    situations.send_chunk(host, name, Ask((0,)), last=True)
    host.step(60)


@pytest.mark.parametrize("when", ["running", "waiting for input", "with a chunk in the queue"])
def test_nothing_is_left_of_an_aborted_session(wide: Rig, when: str) -> None:
    """Rows, programs and revisions are given back, of chunks that never ran as well."""
    name, (asks, _, _) = next(_names), chunks("all", "generated")
    wide.engine.call("run", situations.send_chunk, name, asks[0])
    wide.engine.call("step", 50 if when == "waiting for input" else 3)
    if when == "with a chunk in the queue":
        wide.engine.call("run", situations.send_chunk, name, asks[1])
    assert wide.driver.engine().requests_live > 0
    wide.engine.call("abort", [name])
    assert wide.driver.engine().requests_live == 0
    assert list(wide.driver.engine().revisions_in_use) == []
    wide.engine.one(Ask(prompt(8), tokens=2))
    assert wide.driver.worker().rows_in_use == 0


def test_a_refused_chunk_leaves_its_session_alone(wide: Rig, judge: Judge) -> None:
    """A strict chunk that cannot be honoured is refused; the session goes on with the next one."""
    name, (asks, _, mask) = next(_names), chunks("generated", "generated")
    with pytest.raises(Exception, match="VECTOR_NOT_FOUND"):
        wide.engine.call(
            "run", situations.send_chunk, name, Ask((5,), {"id": "nobody", "strict": True})
        )
    turns = wide.engine.call("run", converse, name, asks, False)
    check(judge, turns, asks, mask)


def test_the_kill_switch_in_a_session(wide: Rig, judge: Judge) -> None:
    """A chunk that comes while the switch is on is not steered, and nobody reads its blocks."""
    asks, _, mask = chunks("generated", None)
    name = next(_names)
    first = wide.engine.call("run", turn, name, asks[0])
    wide.driver.set_policy(kill_switch=True)
    killed = Ask(asks[1].prompt, SPECS["generated"], tokens=12)
    second = wide.engine.call("run", turn, name, killed)
    wide.driver.set_policy()
    wide.engine.call("run", finish, name)
    tokens = check(judge, [first, second], asks, mask)
    for scope, spec in SPECS.items():
        judge.check(wide.engine.one(Ask(tokens, spec, tokens=4)), scope)


def turn(host: Any, name: str, ask: Ask) -> Turn:
    """Runs one turn of a session and leaves it open."""
    situations.send_chunk(host, name, ask)
    return situations.finish_turn(host, name, ask.tokens)
