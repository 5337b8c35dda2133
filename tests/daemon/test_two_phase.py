"""All or none: staged everywhere, stored, committed; and a node in trouble harms no other."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hotwired import errors
from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import (
    HIDDEN,
    LAYERS,
    Daemon,
    Fleet,
    a_file,
    eventually,
    refused,
    upload,
)


@pytest.fixture(scope="module")
def lasting(shared: Fleet) -> Daemon:
    """One daemon for all tests."""
    return shared.daemon()


@pytest.fixture
def fleet(shared: Fleet, lasting: Daemon) -> Iterator[Fleet]:
    """The lasting daemon, without nodes, vectors and policy; and nodes for one test."""
    fleet = Fleet(shared.root, lasting)
    yield fleet
    fleet.close()
    eventually(lambda: not lasting.states())
    lasting.set_policy()
    for name in lasting.names():
        lasting.delete(name)


def test_one_refusal_and_nothing_is_changed_anywhere(fleet: Fleet) -> None:
    """The refusing node and its reason are named; the others have forgotten the vector."""
    daemon, instance = fleet.daemon(), fleet.instance(tp_size=3, roles=("engine",))
    instance.start_node("worker", 0)
    good = instance.start_node("worker", 1)
    # One rank with another dtype: finite for the daemon and for two ranks, not for this one.
    bad = fleet.fake("worker", 2, tp_size=3, dtype="float16")
    daemon.wait_for(4)
    daemon.register("kept", a_file(1.0))
    before = (daemon.generation(), daemon.blobs(), instance.snapshot(), instance.held(0))
    found = refused(lambda: daemon.register("bad", a_file(70_000.0)))
    assert (found.code, found.reason) == ("FAILED_PRECONDITION", "NODE_REJECTED")
    assert found.metadata["node"] == "i1/worker-0-0-2"
    assert found.metadata["cause"] == "VECTOR_NOT_FINITE"
    assert "i1/worker-0-0-2" in found.message
    assert (daemon.generation(), daemon.blobs(), instance.snapshot(), instance.held(0)) == before
    assert good.blobs is not None
    assert len(good.blobs.revisions()) == len(bad.held) == 1
    assert daemon.names() == ["kept"]
    assert daemon.register("good", a_file(2.0)).converged


def test_a_refusal_of_any_reason_counts(fleet: Fleet) -> None:
    """Full memory, a fault in the node: whatever a worker says, its word stands."""
    daemon = fleet.daemon()
    fleet.fake("engine")
    worker = fleet.fake("worker")
    daemon.wait_for(2)
    for exc in (errors.VectorTooLarge("no room"), RuntimeError("a fault")):
        worker.refuse["Stage"] = lambda exc=exc: exc
        found = refused(lambda: daemon.register("joy"))
        assert (found.reason, found.metadata["node"]) == ("NODE_REJECTED", "i1/worker-0-0-0")
    del worker.refuse["Stage"]
    assert daemon.register("joy").converged


def test_workers_hold_it_before_the_engine_knows_and_the_engine_before_the_frontend(
    fleet: Fleet,
) -> None:
    """A request can never name what a rank lacks."""
    daemon = fleet.daemon()
    order: list[str] = []

    class Noting(list[str]):
        def __init__(self, node: str) -> None:
            self.node = node

        def append(self, call: str) -> None:
            if call in ("Stage", "Commit"):
                order.append(f"{self.node} {call}")

    for role, rank in (("engine", 0), ("frontend", 0), ("worker", 0), ("worker", 1)):
        node = fleet.fake(role, rank, tp_size=2)
        node.calls = Noting(f"{role}-{rank}")
        if role == "worker":
            node.delay["Stage"] = 0.1 * rank
    daemon.wait_for(4)
    order.clear()
    assert daemon.register("joy").converged
    assert set(order[:2]) == {"worker-0 Stage", "worker-1 Stage"}
    assert order[2:] == ["engine-0 Commit", "frontend-0 Commit"]


def test_a_worker_that_hangs_does_not_block(fleet: Fleet) -> None:
    """The vector is stored within the caller's time; it gets there when the worker is back."""
    daemon = fleet.daemon()
    engine = fleet.fake("engine", tp_size=2)
    fleet.fake("worker", 0, tp_size=2)
    worker = fleet.fake("worker", 1, tp_size=2)
    daemon.wait_for(3)
    worker.hung.set()
    started = time.monotonic()
    answer = daemon.register("joy", timeout=2)
    assert time.monotonic() - started < 2
    assert not answer.converged
    states = {node.node: node.state for node in answer.nodes}
    assert states["i1/worker-0-0-1"] != states["i1/worker-0-0-0"]
    assert daemon.names() == ["joy"]
    assert engine.generation < answer.generation
    worker.hung.clear()
    daemon.wait_for(3)
    assert engine.generation == answer.generation
    assert worker.held.keys() == {answer.vector.revision}


def test_callers_in_a_row_behind_a_hanging_worker_are_answered_in_time(fleet: Fleet) -> None:
    """Changes are made one at a time, and yet each keeps its own deadline."""
    daemon = fleet.daemon()
    fleet.fake("engine")
    worker = fleet.fake("worker")
    daemon.wait_for(2)
    worker.hung.set()
    calls: list[Any] = []

    def call(number: int) -> None:
        started = time.monotonic()
        answer = daemon.register(f"v{number}", a_file(float(number)), timeout=5)
        calls.append((time.monotonic() - started, answer.converged))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 4
    assert all(seconds < 5 and not converged for seconds, converged in calls)
    worker.hung.clear()
    daemon.wait_for(2)
    assert len(worker.held) == 4


def test_a_hanging_instance_does_not_slow_another(fleet: Fleet) -> None:
    """The other instance uses the vector while the first one hangs."""
    daemon = fleet.daemon()
    fleet.fake("engine", instance_id="i2")
    hung = fleet.fake("worker", instance_id="i2")
    good = fleet.instance("i1")
    daemon.wait_for(5)
    hung.hung.set()
    done = threading.Event()
    thread = threading.Thread(target=lambda: (daemon.register("joy", timeout=6), done.set()))
    thread.start()
    eventually(lambda: "joy" in good.snapshot().vectors, 4)
    assert not done.is_set()
    hung.hung.clear()
    thread.join()


def test_the_kill_switch_waits_for_no_worker(fleet: Fleet) -> None:
    """The engine stops steering though a worker hangs and lacks the newest vector."""
    daemon = fleet.daemon()
    engine, worker = fleet.fake("engine"), fleet.fake("worker")
    daemon.wait_for(2)
    worker.hung.set()
    pushing = daemon.stub.RegisterVector.future(iter(upload("joy", a_file())), timeout=8)
    time.sleep(0.3)
    request = pb.SetPolicyRequest(policy={"kill_switch": True})
    setting = daemon.stub.SetPolicy.future(request, timeout=8)
    eventually(lambda: engine.snapshot is not None and engine.snapshot.policy.kill_switch, 1.5)
    assert not pushing.done()
    worker.hung.clear()
    assert setting.result().converged
    assert pushing.result().converged


def test_the_kill_switch_overtakes_a_stage_in_the_same_process(fleet: Fleet) -> None:
    """One process is worker and engine: slow to take a vector, it still stops steering at once."""
    daemon = fleet.daemon()
    node = fleet.fake("engine")
    node.roles = ("engine", "frontend", "worker")
    daemon.wait_for(1)
    node.delay["Stage"] = 3.0
    pushing = daemon.stub.RegisterVector.future(iter(upload("joy", a_file())), timeout=10)
    eventually(lambda: "Stage" in node.calls)
    assert daemon.set_policy("kill_switch", kill_switch=True).converged
    assert node.snapshot is not None
    assert node.snapshot.policy.kill_switch
    assert not pushing.done()
    assert pushing.result().converged


def test_a_worker_that_is_missing_holds_up_the_engine(fleet: Fleet) -> None:
    """As long as a rank is unknown, its engine is told of no vector."""
    daemon = fleet.daemon()
    instance = fleet.instance(tp_size=2, roles=("engine",))
    instance.start_node("worker", 0)
    eventually(lambda: len(daemon.states()) == 2)
    answer = daemon.register("joy", timeout=1)
    assert not answer.converged
    assert instance.snapshot().generation == 0
    assert "workers" in daemon.details()["i1/engine-0-0-0"]
    instance.start_node("worker", 1)
    daemon.wait_for(3)
    assert "joy" in instance.snapshot().vectors


def test_live_requests_keep_what_they_use(fleet: Fleet) -> None:
    """A replaced or deleted revision stays on the workers until no request uses it."""
    daemon, instance = fleet.daemon(), fleet.instance(tp_size=2)
    daemon.wait_for(4)
    first = daemon.register("joy", a_file(1.0)).vector.revision
    instance.in_use.add(first)
    second = daemon.register("joy", a_file(2.0)).vector.revision
    daemon.delete("joy")
    eventually(lambda: second not in instance.held(0) | instance.held(1))
    time.sleep(1.3)
    assert first in instance.held(0) & instance.held(1)
    instance.in_use.clear()
    eventually(lambda: not instance.held(0) | instance.held(1))


def test_registering_again_while_the_old_is_being_forgotten(fleet: Fleet) -> None:
    """Delete and register in quick turns: what is in force is held, always."""
    daemon, instance = fleet.daemon(), fleet.instance(tp_size=2)
    daemon.wait_for(4)
    for _ in range(15):
        revision = daemon.register("joy", a_file(1.0)).vector.revision
        snapshot = instance.snapshot()
        assert snapshot.vectors["joy"].revision == revision
        assert revision in instance.held(0) & instance.held(1)
        daemon.delete("joy")


def test_models_get_what_fits_them(fleet: Fleet) -> None:
    """Two engines of different width: each is told only of its vectors, both converge."""
    daemon = fleet.daemon()
    small = fleet.instance("small")
    wide = fleet.instance("wide", hidden_size=HIDDEN * 2, num_layers=3, model="org/wide")
    daemon.wait_for(6)
    assert daemon.register("a", a_file(1.0)).converged
    assert daemon.register("b", a_file(1.0, layers=3, width=HIDDEN * 2)).converged
    named = a_file(1.0, layers=2)
    assert daemon.register("c", named, model="org/model").converged
    assert set(small.snapshot().vectors) == {"a", "c"}
    assert set(wide.snapshot().vectors) == {"b"}
    assert len(small.held()) == 2
    assert len(wide.held()) == 1
    assert small.snapshot().generation == wide.snapshot().generation == daemon.generation()
    found = refused(lambda: daemon.register("d", a_file(width=HIDDEN + 1)))
    assert found.reason == "VECTOR_SHAPE_MISMATCH"
    found = refused(lambda: daemon.register("d", named, model="org/wide"))
    assert found.reason == "VECTOR_SHAPE_MISMATCH"
    assert daemon.set_policy("kill_switch", kill_switch=True).converged
    assert small.snapshot().policy.kill_switch
    assert wide.snapshot().policy.kill_switch


def test_data_parallel_engines_of_one_instance(fleet: Fleet) -> None:
    """Each engine waits for its own workers, the frontend for all engines."""
    daemon = fleet.daemon()
    nodes = {
        (role, dp): fleet.fake(role, dp_rank=dp) for dp in (0, 1) for role in ("engine", "worker")
    }
    frontend = fleet.fake("frontend")
    daemon.wait_for(5)
    nodes["worker", 1].delay["Stage"] = 0.3
    answer = daemon.register("joy")
    assert answer.converged
    assert {nodes["engine", 0].generation, nodes["engine", 1].generation} == {answer.generation}
    assert frontend.generation == answer.generation


def test_one_process_with_all_roles(fleet: Fleet) -> None:
    """Offline use: one socket carries engine, frontend and worker."""
    daemon = fleet.daemon()
    node = fleet.fake("engine")
    node.roles = ("engine", "frontend", "worker")
    daemon.wait_for(1)
    answer = daemon.register("joy")
    assert answer.converged
    assert (node.generation, set(node.held)) == (answer.generation, {answer.vector.revision})


def test_disarmed_and_standalone_nodes_hold_up_nobody(fleet: Fleet) -> None:
    """They are shown as what they are, with their reason, and get no vector."""
    daemon, good = fleet.daemon(), fleet.instance("i1")
    fleet.fake("worker", instance_id="i2", disarmed_reason="no such hook")
    disarmed = fleet.fake("engine", instance_id="i2")
    alone = fleet.fake("engine", instance_id="i3", standalone=True)
    eventually(lambda: len(daemon.states()) == 6)
    assert daemon.register("joy").converged
    assert "joy" in good.snapshot().vectors
    eventually(lambda: disarmed.snapshot is not None)
    assert disarmed.snapshot is not None
    assert not disarmed.snapshot.vectors
    assert "Commit" not in alone.calls
    states = daemon.states()
    assert states["i2/worker-0-0-0"] == "DISARMED"
    assert daemon.details()["i2/worker-0-0-0"] == "no such hook"
    assert states["i3/engine-0-0-0"] == "STANDALONE"
    assert daemon.health("hotwired.nodes") == "NOT_SERVING"
    assert daemon.health() == "SERVING"


def test_without_a_node_a_vector_is_stored(fleet: Fleet) -> None:
    """It is checked as far as it can be, and staged on whoever comes."""
    daemon = fleet.daemon()
    assert daemon.health("hotwired.nodes") == "NOT_SERVING"
    answer = daemon.register("joy")
    assert answer.converged
    assert not answer.nodes
    instance = fleet.instance()
    daemon.wait_for(3)
    assert "joy" in instance.snapshot().vectors


def test_one_bad_vector_does_not_keep_the_others_from_a_new_engine(fleet: Fleet) -> None:
    """An fp16 engine that comes later gets all but the vector that overflows there."""
    daemon = fleet.daemon()
    daemon.register("big", a_file(70_000.0))
    daemon.register("joy", a_file(1.0))
    instance = fleet.instance(dtype="float16")
    eventually(lambda: "joy" in instance.snapshot().vectors)
    assert "big" not in instance.snapshot().vectors
    eventually(lambda: daemon.states()["i1/worker-0-0-0"] == "REJECTED")
    assert "too large for float16" in daemon.details()["i1/worker-0-0-0"]
    answer = daemon.set_policy("kill_switch", kill_switch=True)
    assert instance.snapshot().policy.kill_switch
    assert answer.converged
    daemon.delete("big")
    daemon.wait_for(3)


def test_a_node_ahead_of_us_is_overtaken(fleet: Fleet) -> None:
    """A daemon whose state was lost takes its nodes over instead of being refused for ever."""
    daemon = fleet.daemon()
    engine, worker = fleet.fake("engine", generation=100_000), fleet.fake("worker")
    daemon.wait_for(2)
    assert engine.generation == daemon.generation() > 100_000
    assert daemon.register("joy").converged
    assert len(worker.held) == 1
    assert daemon.log("audit", action="overtake")


def test_a_commit_refused_is_tried_again(fleet: Fleet) -> None:
    """The node is shown as REJECTED with the cause until it takes the snapshot."""
    daemon = fleet.daemon()
    engine = fleet.fake("engine")
    fleet.fake("worker")
    daemon.wait_for(2)
    engine.refuse["Commit"] = lambda: errors.GenerationStale("forged")
    answer = daemon.register("joy", timeout=3)
    assert not answer.converged
    assert daemon.states()["i1/engine-0-0-0"] == "REJECTED"
    assert daemon.details()["i1/engine-0-0-0"] == "forged"
    del engine.refuse["Commit"]
    daemon.wait_for(2)
    assert engine.generation == answer.generation


def test_a_hundred_vectors_reach_a_new_engine_in_time(fleet: Fleet) -> None:
    """A restart with a large registry converges within the promise."""
    daemon = fleet.daemon()
    for number in range(100):
        daemon.register(f"v{number}", a_file(float(number), layers=LAYERS))
    instance = fleet.instance(tp_size=2)
    daemon.wait_for(4)
    assert len(instance.snapshot().vectors) == 100
