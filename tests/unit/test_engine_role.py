"""What the engine keeps for a request: its blocks' keys, its stamp, and nothing once it ended."""

import dataclasses
import json
import math

import pytest

from hotwire_plugin.admission import Admission, Prompt
from hotwire_plugin.engine_role import EngineRole
from hotwire_plugin.program import PROGRAM_KEY
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import EnginePolicy, Snapshot, SnapshotHolder
from tests.support.admissions import LAYERS, VECTORS


def role() -> tuple[EngineRole, SnapshotHolder]:
    """Return an engine by generation 1 with vectors, and its snapshot holder."""
    holder = SnapshotHolder(Snapshot(1, VECTORS, EnginePolicy()))
    return EngineRole(Admission(holder, ModelShape(LAYERS), lambda: None), holder), holder


def admit(engine: EngineRole, request_id: str, prompt_len: int = 40, **spec: object) -> str:
    """Admit a request that asks for ``spec``; return its encoded program."""
    extra = {"hotwire": json.dumps({"id": "joy", **spec})}
    admitted = engine.admit(extra, request_id, Prompt(prompt_len))
    assert admitted is not None
    return str(admitted[PROGRAM_KEY])


def switch(holder: SnapshotHolder, *, kill: bool) -> None:
    """Commit the next generation with the kill switch on or off."""
    now = holder.current
    policy = dataclasses.replace(now.policy, kill_switch=kill)
    holder.commit(dataclasses.replace(now, generation=now.generation + 1, policy=policy))


def test_equal_programs_share_blocks_and_others_do_not() -> None:
    """The key is the program's digest: the same effect shares, another scale or nobody does not."""
    engine, _ = role()
    admit(engine, "a", scale=1.0)
    admit(engine, "b", scale=1)
    admit(engine, "c", scale=2.0)
    engine.admit(None, "d", Prompt(40))
    keys = [engine.block_key(request, 0, 16) for request in "abcd"]
    assert keys[0] == keys[1] is not None
    assert keys[2] not in (keys[0], None)
    assert keys[3] is None


def test_blocks_below_the_first_steered_position_are_everybodys() -> None:
    """A decode-only request keys only blocks that reach past its prompt."""
    engine, _ = role()
    admit(engine, "a", prompt_len=40, decode_only=True)
    assert engine.block_key("a", 24, 40) is None
    assert engine.block_key("a", 32, 48) is not None


def test_where_the_prompt_ends_is_part_of_a_generated_blocks_key() -> None:
    """Where prompt and generated positions are steered differently, only the prompt is shared.

    A follow-up with a longer prompt steers the same tokens in another way.
    """
    engine, _ = role()
    for scope in ("prompt", "generated"):
        admit(engine, f"{scope} first", prompt_len=40, scope=scope)
        admit(engine, f"{scope} next", prompt_len=44, scope=scope)
        first, follow_up = f"{scope} first", f"{scope} next"
        assert engine.block_key(first, 16, 32) == engine.block_key(follow_up, 16, 32)
        assert engine.block_key(first, 32, 48) != engine.block_key(follow_up, 32, 48)
        assert engine.block_key(first, 32, 48) != engine.block_key(follow_up, 16, 32)
    admit(engine, "all first", prompt_len=40)
    admit(engine, "all next", prompt_len=44)
    assert engine.block_key("all first", 32, 48) == engine.block_key("all next", 32, 48)


@pytest.mark.parametrize("request_id", ["", *"0123456789abcdef"])
def test_any_request_id_is_secluded_once(request_id: str) -> None:
    """A request is secluded whatever its id is, even one that its program's digest ends with."""
    engine, holder = role()
    admit(engine, request_id)
    shared = engine.block_key(request_id, 0, 16)
    assert not engine.seclude(request_id)
    switch(holder, kill=True)
    engine.stamp()
    assert engine.seclude(request_id)
    assert not engine.seclude(request_id)
    assert engine.block_key(request_id, 0, 16) != shared
    engine.finish(request_id)
    switch(holder, kill=False)
    engine.stamp()
    admit(engine, request_id)
    assert engine.block_key(request_id, 0, 16) == shared


def test_the_stamp_says_off_once_and_stays_off() -> None:
    """Switching off is reported in the one step where it happens; each stamp has its generation."""
    engine, holder = role()
    assert engine.stamp() == ((1, True, math.inf), False)
    switch(holder, kill=True)
    assert engine.stamp() == ((2, False, math.inf), True)
    assert engine.stamp() == ((2, False, math.inf), False)
    switch(holder, kill=False)
    assert engine.stamp() == ((3, True, math.inf), False)


def test_a_secluded_request_shares_with_nobody() -> None:
    """A request switched while it ran has a key of its own; a second time changes nothing."""
    engine, holder = role()
    admit(engine, "a")
    admit(engine, "b")
    shared = engine.block_key("a", 0, 16)
    switch(holder, kill=True)
    engine.stamp()
    assert engine.seclude("a")
    assert not engine.seclude("a")
    assert not engine.seclude("unsteered")
    assert engine.block_key("a", 0, 16) not in (shared, None)
    assert engine.block_key("b", 0, 16) == shared


def set_limit(holder: SnapshotHolder, limit: float, *, running: bool) -> None:
    """Commit the next generation with a live limit."""
    now = holder.current
    policy = dataclasses.replace(now.policy, live_limit=limit, apply_to_running=running)
    holder.commit(dataclasses.replace(now, generation=now.generation + 1, policy=policy))


def test_a_tightened_limit_holds_running_requests_back() -> None:
    """Those whose program allows more get blocks of their own; others go on as they were."""
    engine, holder = role()
    admit(engine, "free")
    set_limit(holder, 0.25, running=False)
    admit(engine, "held")
    assert engine.stamp() == ((2, True, math.inf), False)
    assert not engine.seclude("free")
    set_limit(holder, 0.5, running=True)
    admit(engine, "half")
    assert engine.stamp() == ((3, True, 0.5), True)
    assert engine.stamp() == ((3, True, 0.5), False)
    assert [engine.seclude(request) for request in ("free", "held", "half")] == [True, False, False]
    set_limit(holder, 0.75, running=True)
    assert engine.stamp() == ((4, True, 0.75), False)


def test_a_limit_that_fp32_does_not_hold_is_the_same_in_stamp_and_program() -> None:
    """Else every request that is admitted under it would be held back by a hair."""
    engine, holder = role()
    set_limit(holder, 0.1, running=True)
    admit(engine, "a")
    engine.stamp()
    assert not engine.seclude("a")


def test_nothing_is_kept_of_an_ended_request() -> None:
    """After its end a request has no key, is not live, and holds no revision."""
    engine, _ = role()
    admit(engine, "a")
    assert engine.report().requests_live == 1
    engine.finish("a")
    engine.finish("a")
    report = engine.report()
    assert (report.requests_live, list(report.revisions_in_use)) == (0, [])
    assert engine.block_key("a", 0, 16) is None
    assert not engine._placements


def test_the_receipt_of_a_request_that_ended() -> None:
    """How many tokens were steered as far as it got, and whether a stamp held it back meanwhile."""
    engine, holder = role()
    admit(engine, "a", prompt_len=40, scope="generated")
    admit(engine, "b")
    admit(engine, "c")
    engine.admit({"hotwire": '{"id": "nobody"}'}, "d", Prompt(40))
    (running,) = engine.receipts("a").receipts
    assert not running.finished
    switch(holder, kill=True)
    engine.stamp()
    assert engine.seclude("b")
    for request_id, computed in (("a", 45), ("b", 41), ("c", None), ("d", 41)):
        engine.finish(request_id, computed)
    ended = {each: engine.receipts(each).receipts[0] for each in "abcd"}
    assert all(receipt.finished for receipt in ended.values())
    tokens = {each: receipt.tokens_steered for each, receipt in ended.items()}
    assert tokens == {"a": 5, "b": 41, "c": 0, "d": 0}
    assert [ended[each].HasField("tokens_steered") for each in "abcd"] == [True, True, False, True]
    assert [ended[each].held_back for each in "abcd"] == [False, True, False, False]
    assert not engine.receipts("nobody").receipts


def test_an_id_that_comes_again_without_steering_has_no_keys() -> None:
    """What it had before is not what its blocks hold now."""
    engine, _ = role()
    admit(engine, "a")
    engine.admit(None, "a", Prompt(40))
    assert engine.block_key("a", 0, 16) is None
