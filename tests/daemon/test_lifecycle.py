"""Starting, dying, starting again: nothing is lost, nothing is stolen, all converges by itself."""

import re
import signal
import socket
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hotwired.run_dir import socket_path
from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import Fleet, a_file, eventually, refusal_of, upload


def test_killed_and_started_again(fleet: Fleet) -> None:
    """After kill -9 the registry is intact, and the nodes converge within the promise."""
    daemon, instance = fleet.daemon(), fleet.instance(tp_size=2)
    daemon.wait_for(4)
    vectors = [daemon.register(f"v{n}", a_file(float(n))).vector for n in range(5)]
    policy = daemon.set_policy(max_relative_dose=0.5, reference_norms={1: 2.0}).policy
    daemon.delete("v0")
    generation = daemon.generation()
    daemon.kill()
    daemon.start()
    assert daemon.generation() == generation
    assert [daemon.get(vector.name) for vector in vectors[1:]] == vectors[1:]
    assert daemon.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5).policy == policy
    daemon.wait_for(4)
    assert instance.snapshot().generation == generation
    assert daemon.register("v9", a_file(9.0)).generation == generation + 1


def test_killed_in_the_middle_of_registrations(fleet: Fleet) -> None:
    """What a call has confirmed is there; what it hasn't is there wholly or not at all."""
    daemon, instance = fleet.daemon(), fleet.instance(tp_size=2)
    daemon.wait_for(4)
    for attempt in range(3):
        confirmed = set(daemon.names())

        def push(attempt: int = attempt, confirmed: set[str] = confirmed) -> None:
            for number in range(1000):
                name = f"v{attempt}-{number}"
                try:
                    daemon.register(name, a_file(attempt + number / 100))
                except grpc.RpcError:
                    return
                confirmed.add(name)

        thread = threading.Thread(target=push)
        thread.start()
        time.sleep(0.15 + 0.07 * attempt)
        daemon.kill()
        thread.join()
        daemon.start()
        there = set(daemon.names())
        assert confirmed <= there
        assert len(there - confirmed) <= 1
        revisions = {daemon.get(name).revision for name in there}
        assert set(daemon.blobs()) == revisions
        daemon.wait_for(4)
        assert set(instance.snapshot().vectors) == there
        eventually(lambda revisions=revisions: instance.held(0) == instance.held(1) == revisions)


def test_leftovers_on_workers_are_discarded_after_a_crash(fleet: Fleet) -> None:
    """A vector staged but never stored is forgotten by the workers."""
    daemon = fleet.daemon()
    engine, worker = fleet.fake("engine"), fleet.fake("worker")
    daemon.wait_for(2)
    worker.held["f" * 64] = b"left over"
    eventually(lambda: not worker.held)
    assert "Discard" in worker.calls
    assert engine.generation == 1


def test_a_restarted_node_gets_everything_again(fleet: Fleet) -> None:
    """A new boot holds nothing: it is staged and committed without anybody's doing."""
    daemon, instance = fleet.daemon(), fleet.instance(tp_size=2)
    daemon.wait_for(4)
    revision = daemon.register("joy").vector.revision
    for key, role, rank in (("worker-1", "worker", 1), ("engine-0", "engine", 0)):
        instance.stop_node(key)
        instance.start_node(role, rank)
    eventually(lambda: "joy" in instance.snapshot().vectors)
    eventually(lambda: revision in instance.held(1))
    daemon.wait_for(4)


def test_a_node_that_changed_its_boot_behind_the_same_socket(fleet: Fleet) -> None:
    """The boot id alone tells that a process has forgotten."""
    daemon = fleet.daemon()
    engine, worker = fleet.fake("engine"), fleet.fake("worker")
    daemon.wait_for(2)
    revision = daemon.register("joy").vector.revision
    for node in (engine, worker):
        node.boot_id, node.generation, node.snapshot = "another", 0, None
        node.held.clear()
    eventually(lambda: revision in worker.held)
    eventually(lambda: engine.snapshot is not None and engine.snapshot.vectors)


def test_both_sides_restarted(fleet: Fleet) -> None:
    """Daemon and engine start together and find each other."""
    daemon, instance = fleet.daemon(), fleet.instance()
    daemon.wait_for(3)
    daemon.register("joy")
    daemon.kill()
    instance.stop()
    again = fleet.instance("i2")
    daemon.start()
    daemon.wait_for(3)
    assert "joy" in again.snapshot().vectors


def test_the_socket_of_a_dead_process_is_cleared(fleet: Fleet) -> None:
    """A node killed with -9 leaves its socket; it doesn't stay in the list for ever."""
    daemon = fleet.daemon()
    path = socket_path(daemon.run_dir, "dead", "engine", 0, 0, 0)
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    eventually(lambda: daemon.states().get("dead/engine-0-0-0") == "UNREACHABLE")
    eventually(lambda: not path.parent.exists())
    assert not daemon.states()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_graceful_stop(fleet: Fleet, number: int) -> None:
    """NOT_SERVING first, watchers and uploads end, the socket goes, the exit status is 0."""
    daemon = fleet.daemon()
    watch = health_pb2_grpc.HealthStub(daemon.channel).Watch(
        health_pb2.HealthCheckRequest(), timeout=20
    )
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    stats = daemon.stub.WatchStats(pb.WatchStatsRequest(interval_seconds=60), timeout=20)
    next(stats)
    assert daemon.process is not None
    daemon.process.send_signal(number)
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(grpc.RpcError) as caught:
        next(stats)
    assert refusal_of(caught.value).reason == "SHUTTING_DOWN"
    watch.cancel()
    assert daemon.stop(number) == 0
    assert not daemon.socket.exists()
    assert [daemon.log(event) != [] for event in ("stopping", "stopped")] == [True, True]


def test_a_stop_during_an_upload_and_a_push(fleet: Fleet) -> None:
    """The upload is aborted and leaves nothing; the push, stored already, is answered."""
    daemon = fleet.daemon()
    fleet.fake("engine")
    worker = fleet.fake("worker")
    daemon.wait_for(2)
    worker.hung.set()

    def slow() -> Iterator[pb.RegisterVectorRequest]:
        yield from upload("awe", a_file(2.0), chunk=64)[:2]
        time.sleep(3)

    uploading = daemon.stub.RegisterVector.future(slow(), timeout=20)
    pushing = daemon.stub.RegisterVector.future(iter(upload("joy", a_file(1.0))), timeout=2)
    eventually(lambda: daemon.names() == ["joy"])
    started = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - started < 4
    assert refusal_of(uploading.exception(5)).reason == "SHUTTING_DOWN"
    assert not pushing.result(5).converged
    worker.hung.clear()
    daemon.start()
    daemon.wait_for(2)
    assert daemon.names() == ["joy"]
    assert len(worker.held) == len(daemon.blobs()) == 1


def test_callers_that_go_away_at_any_moment(fleet: Fleet) -> None:
    """Cancelled and expired calls of every kind: the daemon lives, tells no fault, converges."""
    daemon = fleet.daemon()
    fleet.instance(tp_size=2)
    daemon.wait_for(4)
    stub, messages = daemon.stub, upload("joy", a_file(), chunk=64)
    calls = (
        lambda: stub.WatchStats(pb.WatchStatsRequest(interval_seconds=0.1), timeout=9),
        lambda: stub.ListVectors.future(pb.ListVectorsRequest(page_size=-1), timeout=9),
        lambda: stub.RegisterVector.future(iter(messages), timeout=9),
        lambda: stub.Stats.future(pb.StatsRequest(), timeout=9),
        lambda: stub.SetPolicy.future(pb.SetPolicyRequest(policy={"strict": True}), timeout=0.002),
        lambda: stub.SetPolicy.future(pb.SetPolicyRequest(policy={"strict": False}), timeout=9),
    )
    for number in range(400):
        call = calls[number % len(calls)]()
        time.sleep(0.001 * (number % 7))
        call.cancel()
    daemon.wait_for(4)
    assert daemon.log("rpc", code="CANCELLED")
    assert not daemon.log("internal error")
    assert daemon.register("joy", a_file(3.0)).converged
    assert daemon.stop() == 0
    assert daemon.process is not None
    assert daemon.process.stderr is not None
    # gRPC itself may report that an answer came too late; nothing of ours may have failed.
    assert not re.search(rb'File ".*/hotwired/', daemon.process.stderr.read())
    for line in daemon.log("library message"):
        assert not re.search(r'File ".*/hotwired/', line.get("exception", "") + line["message"])
