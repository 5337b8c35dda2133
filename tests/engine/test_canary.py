"""Canaries and flags in a real engine: who gets which revision, with the prefix cache on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hotwired.v1.stats_pb2 import CANARY_ARM_CANARY, CANARY_ARM_STABLE
from hotwired.vector_file import VectorData, canonical_bytes, revision_of
from tests.engine.conftest import Rig
from tests.support.engine_models import LAYERS, direction
from tests.support.engine_process import Ask

OLD, NEW = direction(1, range(LAYERS), norm=20.0), direction(2, range(LAYERS), norm=20.0)
STORY = (
    "Once upon a time there was a little fox that lived in the forest, and every day it walked "
    "down to the river to drink. One morning the river was gone, and in its place there was a road"
)
ASK = Ask(STORY, {"id": "joy", "layer": 14}, tokens=12)
REQUESTS = 16


@pytest.fixture(autouse=True)
def _flags(main: Rig) -> Iterator[None]:
    """What one test sets, no other has."""
    yield
    main.driver.canaries.clear()
    main.driver.disabled.clear()
    main.driver.commit()


def tokens_with(rig: Rig, vector: VectorData) -> tuple[int, ...]:
    """Returns what the request generates with a vector, from an empty cache."""
    rig.driver.put({"joy": vector})
    rig.engine.call("reset_prefix_cache")
    return tuple(rig.engine.call("generate", [ASK])[0].tokens)


def counted(rig: Rig, vector: VectorData, arm: int) -> int:
    """Returns how many requests had a revision as an arm, so far."""
    revision = revision_of(canonical_bytes(vector))
    counts = rig.driver.engine().canary_requests_total
    return sum(c.requests_total for c in counts if (c.revision, c.arm) == (revision, arm))


def test_each_request_gets_one_revision_and_is_counted_by_it(main: Rig) -> None:
    """Whatever is in the cache by then, of either: no request reads the other's blocks."""
    new, old = tokens_with(main, NEW), tokens_with(main, OLD)
    assert new != old
    main.driver.canaries["joy"] = (NEW, 50.0)
    main.driver.commit()
    before = [counted(main, NEW, CANARY_ARM_CANARY), counted(main, OLD, CANARY_ARM_STABLE)]
    found = [tuple(main.engine.call("generate", [ASK])[0].tokens) for _ in range(REQUESTS)]
    assert set(found) == {new, old}
    after = [counted(main, NEW, CANARY_ARM_CANARY), counted(main, OLD, CANARY_ARM_STABLE)]
    grown = [b - a for a, b in zip(before, after, strict=True)]
    assert grown == [found.count(new), found.count(old)]


def test_a_running_request_keeps_a_vector_that_is_disabled(main: Rig) -> None:
    """The next one runs unsteered, and is counted."""
    old = tokens_with(main, OLD)
    before = main.driver.engine().requests_unsteered_total["VECTOR_DISABLED"]
    main.engine.call("add", {"joy": ASK})
    main.engine.call("step", 3)
    main.driver.disabled.add("joy")
    main.driver.commit()
    assert tuple(main.engine.call("finish")["joy"].tokens) == old
    plain = main.engine.call("generate", [Ask(STORY, tokens=12)])[0]
    assert main.engine.call("generate", [ASK])[0].tokens == plain.tokens
    assert main.driver.engine().requests_unsteered_total["VECTOR_DISABLED"] == before + 1
