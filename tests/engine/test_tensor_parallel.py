"""Two tensor-parallel ranks hold the same residual stream, whatever is pushed meanwhile."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.conftest import Rig, Start
from tests.support.background import Background
from tests.support.engine_models import TINY_LAYERS, TINY_VOCAB, TINY_WIDTH, direction
from tests.support.engine_process import Answer, Ask


def watch(worker: Any) -> None:
    """Has a worker hash what its last block returns, in every step."""
    worker.residual_hashes = []

    def record(module: Any, args: Any, output: Any) -> None:
        digest = hashlib.sha256()
        for half in output:
            digest.update(half.numpy().tobytes())
        worker.residual_hashes.append(digest.hexdigest())

    worker.model_runner.get_model().model.layers[-1].register_forward_hook(record)


def taken(worker: Any) -> list[str]:
    """Returns a worker's hashes since the last call."""
    hashes: list[str] = worker.residual_hashes
    worker.residual_hashes = []
    return hashes


@pytest.fixture(scope="module")
def pair_rig(start: Start, tiny_options: dict[str, Any]) -> Rig:
    """The small model on two ranks, each a process on a core of its own, watched."""
    rig = start(
        tiny_options | {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"},
        env={"VLLM_CPU_OMP_THREADS_BIND": "0|1"},
    )
    rig.engine.call("on_workers", watch)
    return rig


@pytest.fixture
def pair(pair_rig: Rig) -> Iterator[Rig]:
    """The two ranks with no vector and nothing recorded."""
    pair_rig.driver.vectors.clear()
    pair_rig.driver.set_policy()
    pair_rig.engine.call("reset_prefix_cache")
    pair_rig.engine.call("on_workers", taken)
    yield pair_rig
    pair_rig.engine.call("finish")


def row(seed: int) -> Any:
    """A vector for all layers of the small model."""
    return direction(seed, range(TINY_LAYERS), norm=30.0, width=TINY_WIDTH)


def test_both_ranks_are_there(pair: Rig) -> None:
    """Each rank has a node of its own, and says so; both hold what is staged."""
    pair.driver.put({"a": row(1)})
    workers = [node for node in pair.driver.describe().values() if node.revisions]
    assert [(w.tp_rank, w.tp_size, w.armed) for w in workers] == [(0, 2, True), (1, 2, True)]
    assert workers[0].revisions == workers[1].revisions


def test_steering_shows_and_ranks_agree(pair: Rig) -> None:
    """A steered request differs from an unsteered one, and both ranks compute the same of it."""
    pair.driver.put({"a": row(1)})
    plain, steered = pair.engine.generate(
        [Ask((5, 6, 7)), Ask((5, 6, 7), {"id": "a", "layer": "1-2"})]
    )
    assert plain.tokens != steered.tokens
    one, other = pair.engine.call("on_workers", taken)
    assert len(one) >= 16
    assert one == other


def test_ranks_agree_while_vectors_come_change_and_go(pair: Rig) -> None:
    """With pushes from another thread all the time, each step's residual streams are equal.

    Names are registered, replaced and deleted while steered requests run and others arrive.
    """
    names = ["a", "b", "c"]
    pair.driver.put({name: row(at) for at, name in enumerate(names)})
    chance = random.Random(1)
    with Background(lambda: push(pair, names, chance), pause_s=0.01) as pushes:
        run_beside(pushes, pair, names, wanted=30)
    one, other = pair.engine.call("on_workers", taken)
    assert one == other
    assert len(set(one)) > 150
    assert pair.driver.engine().requests_steered_total > 20
    assert all(not worker.program_errors_total for worker in pair.driver.workers())


def push(rig: Rig, names: list[str], chance: random.Random) -> None:
    """Registers, replaces or deletes."""
    name = chance.choice(names)
    if name in rig.driver.vectors and chance.random() < 0.3:
        rig.driver.delete(name)
    else:
        rig.driver.put({name: row(chance.randrange(100, 1_000_000))})


def test_ranks_agree_while_the_policy_changes(pair: Rig) -> None:
    """Kill switch and live limit, for running requests too, as fast as changes can be committed.

    Each step's residual streams are equal on both ranks, and no request is lost.
    """
    names = ["a", "b", "c"]
    pair.driver.put({name: row(at) for at, name in enumerate(names)})
    before = pair.driver.engine().requests_total
    chance = random.Random(3)
    with Background(lambda: change(pair, chance), pause_s=0.005) as changes:
        answered = run_beside(changes, pair, names, wanted=200)
    one, other = pair.engine.call("on_workers", taken)
    assert one == other
    assert len(set(one)) > 150
    assert pair.driver.engine().requests_total == before + answered


def change(rig: Rig, chance: random.Random) -> None:
    """Sets a random policy."""
    policy: dict[str, Any] = {
        "kill_switch": chance.random() < 0.3,
        "apply_to_running": chance.random() < 0.7,
    }
    if (limit := chance.choice([None, 0.02, 0.1, 0.5])) is not None:
        policy["max_live_relative_dose"] = limit
    rig.driver.set_policy(**policy)


def run_beside(background: Background, rig: Rig, names: list[str], wanted: int) -> int:
    """Runs load until the background has done its work so often; returns the requests answered.

    Two ranks that spin on two cores can starve it: after a minute, a tenth is enough.
    """
    answered, until = 0, time.monotonic() + 60
    while background.going and background.calls < wanted:
        answered += len(load(rig, names))
        if time.monotonic() > until and background.calls >= wanted / 10:
            break
    return answered


def load(rig: Rig, names: list[str]) -> dict[str, Answer]:
    """Runs 40 requests, mostly steered, each joining and leaving at a step of its own.

    Returns the answers, by name.
    """
    chance = random.Random(2)
    for at in range(40):
        spec = {
            "id": chance.choice(names),
            "layer": chance.choice(["0-3", "1", "2-3"]),
            "scale": chance.choice([0.5, 1.0, -1.0]),
            "decode_only": chance.random() < 0.5,
        }
        prompt = tuple(chance.randrange(3, TINY_VOCAB) for _ in range(chance.randrange(2, 20)))
        asked = spec if chance.random() < 0.8 else None
        rig.engine.call("add", {str(at): Ask(prompt, asked, tokens=chance.randrange(10, 40))})
        rig.engine.call("step", 4)
    answers: dict[str, Answer] = rig.engine.call("finish")
    assert sorted(answers) == sorted(map(str, range(40)))
    return answers


def test_a_rank_that_lacks_a_vector_would_be_seen(pair: Rig) -> None:
    """The comparison means something: a vector on one rank only parts the streams.

    No daemon does that: it commits only what every rank holds.
    """
    pair.driver.vectors["half"] = row(50)
    pair.driver.stage(row(50), only_rank=0)
    pair.driver.commit_unstaged()
    pair.engine.one(Ask((5, 6, 7), {"id": "half", "layer": 1}))
    one, other = pair.engine.call("on_workers", taken)
    assert len(one) == len(other)
    assert one != other
