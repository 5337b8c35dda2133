"""What changes while requests run: vectors, and the kill switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from hotwired.vector_file import VectorData, canonical_bytes, revision_of
from tests.engine.conftest import BLOCK, Rig
from tests.support.engine_models import LAYERS, direction, smollm2, zeros
from tests.support.engine_process import Answer, Ask
from tests.support.hf_reference import HfReference, Steered

P, Q = "The weather today is", "My favourite animal is the"
STORY = (
    "Once upon a time there was a little fox that lived in the forest, and every day it walked "
    "down to the river to drink. One morning the river was gone, and in its place there was a road"
)
OLD, NEW = direction(1, range(LAYERS), norm=20.0), direction(2, range(LAYERS), norm=20.0)
JOY = {"id": "joy", "layer": 14}
TOKENS = 40

Change = Callable[[Rig], None]


@pytest.fixture(autouse=True)
def _vectors(main: Rig) -> None:
    main.driver.put({"joy": OLD, "zero": zeros(range(LAYERS))})


def ask(prompt: str, spec: object = None) -> Ask:
    """A request of TOKENS tokens with the 20 likeliest of each."""
    return Ask(prompt, spec, tokens=TOKENS, logprobs=20)


def run(
    rig: Rig, asks: dict[str, Ask], changes: Mapping[int, Change] | None = None
) -> dict[str, Answer]:
    """Runs a batch from an empty cache, with changes once so many steps are done."""
    rig.engine.call("reset_prefix_cache")
    rig.engine.call("add", asks)
    done = 0
    for after, change in sorted((changes or {}).items()):
        rig.engine.call("step", after - done)
        done = after
        change(rig)
    answers: dict[str, Answer] = rig.engine.call("finish")
    return answers


def replace_joy(rig: Rig) -> None:
    """Register another vector under the name."""
    rig.driver.put({"joy": NEW})


def delete_joy(rig: Rig) -> None:
    """Delete the name."""
    rig.driver.delete("joy")


def switch_off(rig: Rig) -> None:
    """Engage the kill switch."""
    rig.driver.set_policy(kill_switch=True)


def switch_on(rig: Rig) -> None:
    """Let requests be steered again."""
    rig.driver.set_policy()


def test_a_replaced_vector_takes_effect_for_the_next_request(main: Rig) -> None:
    """A running request keeps its revision, to the bit; the next one has the new."""
    asks = {"joy": ask(P, JOY), "plain": ask(Q)}
    undisturbed = run(main, asks)
    disturbed = run(main, asks, {7: replace_joy})
    assert disturbed["joy"].bits == undisturbed["joy"].bits
    assert disturbed["plain"].bits == undisturbed["plain"].bits
    after = run(main, asks)
    assert after["joy"].tokens != undisturbed["joy"].tokens
    main.driver.put({"other": NEW})
    assert (
        run(main, {**asks, "joy": ask(P, {**JOY, "id": "other"})})["joy"].bits == after["joy"].bits
    )


def test_two_revisions_of_a_name_run_side_by_side(main: Rig) -> None:
    """A request admitted after the change runs with the new revision beside one with the old."""
    first = main.engine.call("add", {"old": ask(P, JOY)})
    assert first is None
    main.engine.call("step", 3)
    replace_joy(main)
    main.engine.call("add", {"new": ask(P, JOY)})
    main.engine.call("step", 3)
    assert sorted(main.driver.engine().revisions_in_use) == sorted(map(revision, (OLD, NEW)))
    mixed = main.engine.call("finish")
    alone_new = run(main, {"new": ask(P, JOY)})["new"]
    main.driver.put({"joy": OLD})
    alone_old = run(main, {"old": ask(P, JOY)})["old"]
    assert (mixed["old"].tokens, mixed["new"].tokens) == (alone_old.tokens, alone_new.tokens)


def test_a_deleted_vector_is_gone_for_the_next_request(main: Rig) -> None:
    """A running request keeps a deleted vector to its end; the next one runs unsteered."""
    asks = {"joy": ask(P, JOY), "plain": ask(Q)}
    undisturbed = run(main, asks)
    disturbed = run(main, asks, {7: delete_joy})
    assert disturbed["joy"].bits == undisturbed["joy"].bits
    before = main.driver.engine().requests_unsteered_total["VECTOR_NOT_FOUND"]
    after = run(main, asks)["joy"]
    assert after.bits == run(main, {"joy": ask(P), "plain": ask(Q)})["joy"].bits
    assert main.driver.engine().requests_unsteered_total["VECTOR_NOT_FOUND"] == before + 1


def test_a_revision_is_in_use_until_its_last_request_ends(main: Rig) -> None:
    """The engine names the revisions that live requests need, so that no daemon discards them."""
    main.engine.call("add", {"joy": ask(P, JOY)})
    main.engine.call("step", 3)
    delete_joy(main)
    assert list(main.driver.engine().revisions_in_use) == [revision(OLD)]
    assert main.driver.worker().rows_in_use == 1
    main.engine.call("finish")
    main.engine.one(ask(Q))
    assert list(main.driver.engine().revisions_in_use) == []
    assert main.driver.engine().requests_live == 0
    assert main.driver.worker().rows_in_use == 0


def revision(vector: VectorData) -> str:
    """What the vector is staged as."""
    return revision_of(canonical_bytes(vector))


@pytest.fixture(scope="module")
def reference() -> HfReference:
    """The demo model."""
    return HfReference(smollm2())


@pytest.mark.parametrize(
    ("off", "on"), [(1, None), (8, None), (8, 20)], ids=["early", "late", "and on"]
)
def test_the_kill_switch_acts_at_the_next_step(
    main: Rig, reference: HfReference, off: int, on: int | None
) -> None:
    """From the step after the switch a running request is unsteered; on again, it is steered again.

    The reference steers exactly those positions, so one step early or late would show.
    """
    changes = {off: switch_off} | ({on: switch_on} if on else {})
    answer = run(main, {"joy": ask(P, JOY), "plain": ask(Q)}, changes)["joy"]
    if on is None:
        switch_on(main)
    prompt = len(answer.prompt)
    steered = np.ones(prompt + TOKENS, dtype=bool)
    # The first step computes the prompt, each later one a position.
    steered[prompt + off - 1 : None if on is None else prompt + on - 1] = False
    sequence = Steered(answer.prompt + answer.tokens, {14: OLD.rows[14]}, torch.from_numpy(steered))
    expected = reference.logprobs([sequence])[0, prompt - 1 : -1]
    for step, reported in enumerate(answer.logprobs):
        figures = torch.tensor(list(reported.values()))
        assert float((expected[step, list(reported)] - figures).abs().max()) < 2e-3, step


def test_the_kill_switch_leaves_batchmates_alone(main: Rig) -> None:
    """An unsteered batchmate's bits are those beside a zero vector, switched or not."""
    switched = run(main, {"joy": ask(P, JOY), "plain": ask(Q)}, {8: switch_off, 20: switch_on})
    beside_zero = run(main, {"joy": ask(P, {**JOY, "id": "zero"}), "plain": ask(Q)})
    assert switched["plain"].bits == beside_zero["plain"].bits
    undisturbed = run(main, {"joy": ask(P, JOY), "plain": ask(Q)})
    assert switched["joy"].tokens != undisturbed["joy"].tokens


def test_while_switched_off_requests_run_unsteered(main: Rig) -> None:
    """Requests that come while the switch is on run unsteered, with their reason counted."""
    switch_off(main)
    before = main.driver.engine().requests_unsteered_total["KILL_SWITCH"]
    killed = run(main, {"joy": ask(P, JOY), "plain": ask(Q)})
    assert main.driver.engine().requests_unsteered_total["KILL_SWITCH"] == before + 1
    switch_on(main)
    assert killed["joy"].bits == run(main, {"joy": ask(P), "plain": ask(Q)})["joy"].bits


@pytest.mark.parametrize("after", [0, 1, 12], ids=["in the queue", "prefilled", "running"])
def test_blocks_written_around_the_switch_serve_nobody_wrongly(main: Rig, after: int) -> None:
    """Requests that share tokens with one that was switched find only blocks that are right.

    The switched request's answer is made part of longer prompts, which read the cache it left.
    """
    switched = run(main, {"joy": ask(STORY, JOY)}, {after: switch_off})["joy"]
    switch_on(main)
    prompt = (*switched.prompt, *switched.tokens)
    cached = {}
    found = {}
    for name, spec in {"joy": JOY, "plain": None, "later": {**JOY, "decode_only": True}}.items():
        answer = main.engine.one(Ask(prompt, spec, tokens=8, logprobs=20))
        cached[name], found[name] = answer.cached, answer
    for name, spec in {"joy": JOY, "plain": None, "later": {**JOY, "decode_only": True}}.items():
        expected = run(main, {name: Ask(prompt, spec, tokens=8, logprobs=20)})[name]
        assert expected.tokens == found[name].tokens
        assert expected.distance(found[name]) < 1e-3
    # What was steered all through may be shared; what was written after the switch may not.
    assert cached["joy"] <= (len(switched.prompt) + after - 1) // BLOCK * BLOCK * bool(after)
    assert cached["plain"] == 0
