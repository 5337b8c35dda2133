"""For how long, and for which requests, a vector is used: through the API, to the engines."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1.stats_pb2 import CANARY_ARM_CANARY, CanaryCount
from tests.daemon.harness import HIDDEN, Daemon, Fleet, Instance, a_file, eventually, refused


@pytest.fixture(scope="module")
def daemon(shared: Fleet) -> Daemon:
    """One daemon."""
    return shared.daemon()


@pytest.fixture(scope="module")
def instance(shared: Fleet, daemon: Daemon) -> Instance:
    """One model with two workers."""
    instance = shared.instance(tp_size=2)
    daemon.wait_for(4)
    return instance


@pytest.fixture(autouse=True)
def _fresh(daemon: Daemon, instance: Instance) -> Iterator[None]:
    """No vectors before and after, and nothing held."""
    yield
    for name in daemon.names():
        daemon.delete(name)
    eventually(lambda: not instance.held(0) | instance.held(1))


def update(
    daemon: Daemon, *paths: str, name: str = "joy", **fields: Any
) -> pb.UpdateVectorResponse:
    """Updates a vector."""
    request = pb.UpdateVectorRequest(name=name, **fields)
    request.update_mask.paths.extend(paths)
    return daemon.stub.UpdateVector(request, timeout=10)


def test_disabling_reaches_engine_and_frontend(daemon: Daemon, instance: Instance) -> None:
    """By the time the call returns; audited; the same again is no new generation."""
    daemon.register("joy")
    off = update(daemon, "disabled", disabled=True)
    assert (off.vector.disabled, off.converged, off.unchanged) == (True, True, False)
    for key in ("engine-0", "frontend-0"):
        assert instance.snapshot(key).vectors["joy"].disabled
    again = update(daemon, "disabled", disabled=True)
    assert (again.unchanged, again.generation) == (True, off.generation)
    assert not update(daemon, "disabled").vector.disabled
    assert not instance.snapshot().vectors["joy"].disabled
    (audit,) = daemon.log("audit", action="update", generation=off.generation)
    assert (audit["vector"], audit["disabled"], audit["expires"]) == ("joy", "true", "never")


def test_expiry_reaches_the_engine(daemon: Daemon, instance: Instance) -> None:
    """The engine decides by it; the daemon makes no generation when it comes."""
    answer = daemon.register("joy", ttl={"nanos": 300_000_000})
    at = answer.vector.expire_time.ToNanoseconds() / 1e9
    assert 0 < at - time.time() < 0.31
    assert instance.snapshot().vectors["joy"].expires == pytest.approx(at, abs=1e-5)
    time.sleep(0.35)
    assert daemon.generation() == answer.generation
    assert daemon.get("joy") == answer.vector
    found = refused(lambda: daemon.register("joy"))
    assert (found.reason, found.fields) == ("EXPIRE_TIME_INVALID", ["header.ttl"])
    assert not daemon.register("joy", ttl={"seconds": 60}).unchanged
    cleared = update(daemon, "expire_time")
    assert not cleared.vector.HasField("expire_time")
    assert instance.snapshot().vectors["joy"].expires == float("inf")


@pytest.mark.parametrize(
    ("header", "reason", "field"),
    [
        ({"ttl": {}}, "EXPIRE_TIME_INVALID", "header.ttl"),
        ({"expire_time": {"seconds": 1_000_000_000}}, "EXPIRE_TIME_INVALID", "header.expire_time"),
        ({"canary_percent": 0.0}, "CANARY_INVALID", "header.canary_percent"),
        ({"canary_percent": 100.0}, "CANARY_INVALID", "header.canary_percent"),
        ({"canary_percent": float("nan")}, "CANARY_INVALID", "header.canary_percent"),
    ],
)
def test_bad_terms_are_refused(daemon: Daemon, header: Any, reason: str, field: str) -> None:
    """An expiry in the past, a canary of nobody or of all; nothing is kept."""
    before = daemon.generation()
    found = refused(lambda: daemon.register("joy", **header))
    assert (found.code, found.reason, found.fields) == ("INVALID_ARGUMENT", reason, [field])
    assert (daemon.generation(), daemon.blobs()) == (before, [])


def test_a_canary_of_no_name(daemon: Daemon, instance: Instance) -> None:
    """Nothing is staged or stored."""
    found = refused(lambda: daemon.register("joy", canary_percent=5.0))
    assert (found.code, found.reason) == ("NOT_FOUND", "VECTOR_NOT_FOUND")
    assert daemon.blobs() == []
    eventually(lambda: not instance.held(0))
    assert refused(lambda: update(daemon, "disabled")).reason == "VECTOR_NOT_FOUND"


def test_a_canary_that_does_not_fit(daemon: Daemon, instance: Instance) -> None:
    """Another shape, or the revision the name has: refused before anything is staged."""
    revision = daemon.register("joy").vector.revision
    for data, reason in (
        (a_file(2.0, layers=1), "VECTOR_SHAPE_MISMATCH"),
        (a_file(2.0, width=HIDDEN * 2), "VECTOR_SHAPE_MISMATCH"),
        (a_file(2.0, model="org/other"), "VECTOR_SHAPE_MISMATCH"),
        (a_file(1.0), "CANARY_INVALID"),
    ):
        found = refused(lambda d=data: daemon.register("joy", d, canary_percent=5.0))
        assert (found.code, found.reason) == ("INVALID_ARGUMENT", reason)
    assert daemon.blobs() == [revision]
    assert instance.held(0) == {revision}


def test_the_life_of_a_canary(daemon: Daemon, instance: Instance) -> None:
    """Both revisions are held and stored till one of them has no use; the snapshot has both."""
    own = daemon.register("joy", a_file(1.0)).vector
    answer = daemon.register("joy", a_file(2.0), canary_percent=5.0)
    canary = answer.vector.canary
    assert (answer.vector.revision, answer.converged) == (own.revision, True)
    both = {own.revision, canary.revision}
    assert set(daemon.blobs()) == both == instance.held(0) == instance.held(1)
    meta = instance.snapshot().vectors["joy"]
    assert meta.canary is not None
    found = (meta.revision, meta.canary.revision, meta.canary_percent)
    assert found == (own.revision, canary.revision, 5.0)
    assert daemon.register("joy", a_file(2.0), canary_percent=5.0).unchanged
    more = update(daemon, "canary_percent", canary_percent=50.0)
    assert instance.snapshot().vectors["joy"].canary_percent == 50.0
    assert more.generation == answer.generation + 1
    time.sleep(1.2)  # collected, if it were
    assert instance.held(0) == both
    promoted = update(
        daemon, canary_action="CANARY_ACTION_PROMOTE", canary_revision=canary.revision
    )
    assert (promoted.vector.revision, promoted.converged) == (canary.revision, True)
    assert instance.snapshot().vectors["joy"].revision == canary.revision
    assert daemon.blobs() == [canary.revision]
    eventually(lambda: instance.held(0) | instance.held(1) == {canary.revision})
    assert refused(lambda: update(daemon, canary_action=1)).reason == "CANARY_NOT_FOUND"
    audits = daemon.log("audit", action="register_canary", new=canary.revision)
    assert audits[-1]["canary_percent"] == "5"


def test_a_canary_is_dropped_or_replaced(daemon: Daemon, instance: Instance) -> None:
    """What has no use any more is forgotten by the store and the workers."""
    own = daemon.register("joy", a_file(1.0)).vector.revision
    first = daemon.register("joy", a_file(2.0), canary_percent=5.0).vector.canary.revision
    found = refused(lambda: update(daemon, canary_action=2, canary_revision=own))
    assert (found.code, found.reason) == ("ABORTED", "REVISION_MISMATCH")
    second = daemon.register("joy", a_file(3.0), canary_percent=5.0).vector.canary.revision
    assert sorted(daemon.blobs()) == sorted([own, second])
    eventually(lambda: first not in instance.held(0))
    dropped = update(daemon, canary_action="CANARY_ACTION_DROP", revision=own)
    assert not dropped.vector.HasField("canary")
    assert daemon.blobs() == [own]
    eventually(lambda: instance.held(0) | instance.held(1) == {own})


def test_a_live_request_keeps_a_canary(daemon: Daemon, instance: Instance) -> None:
    """Dropped while a request uses it: the workers hold it until that has ended."""
    daemon.register("joy", a_file(1.0))
    canary = daemon.register("joy", a_file(2.0), canary_percent=5.0).vector.canary.revision
    instance.in_use.add(canary)
    update(daemon, canary_action="CANARY_ACTION_DROP")
    time.sleep(1.2)
    assert canary in instance.held(0)
    instance.in_use.clear()
    eventually(lambda: canary not in instance.held(0))


def test_two_names_share_a_revision_one_has_on_trial(daemon: Daemon) -> None:
    """Its blob stays as long as either has it."""
    shared = daemon.register("calm", a_file(2.0)).vector.revision
    daemon.register("joy", a_file(1.0))
    assert daemon.register("joy", a_file(2.0), canary_percent=5.0).vector.canary.revision == shared
    daemon.delete("calm")
    assert shared in daemon.blobs()
    daemon.delete("joy")
    assert daemon.blobs() == []


def test_trial_runs_change_nothing(daemon: Daemon, instance: Instance) -> None:
    """They return what would be."""
    own = daemon.register("joy", a_file(1.0)).vector
    trial = daemon.register("joy", a_file(2.0), canary_percent=5.0, validate_only=True)
    assert trial.vector.canary.percent == 5.0
    assert update(daemon, "disabled", disabled=True, validate_only=True).vector.disabled
    assert daemon.get("joy") == own
    assert daemon.blobs() == [own.revision]
    assert instance.held(0) == {own.revision}


def test_counts_of_arms_are_in_the_stats(daemon: Daemon, instance: Instance) -> None:
    """As the engine has them."""
    count = CanaryCount(vector="joy", revision="r", arm=CANARY_ARM_CANARY, requests_total=3)
    node = instance.nodes["engine-0"]
    report = node.engine_report
    assert report is not None

    def counting() -> Any:
        made = report()
        made.canary_requests_total.append(count)
        return made

    node.engine_report = counting
    (engine,) = daemon.stub.Stats(pb.StatsRequest(), timeout=5).stats.engines
    node.engine_report = report
    assert list(engine.canary_requests_total) == [count]


def test_a_restart_keeps_flags_and_canary(fleet: Fleet) -> None:
    """Killed and started again: the same records, both blobs, the same for a new engine."""
    daemon = fleet.daemon()
    daemon.register("joy", a_file(1.0), ttl={"seconds": 3600})
    daemon.register("joy", a_file(2.0), canary_percent=5.0)
    vector = update(daemon, "disabled", disabled=True).vector
    blobs = daemon.blobs()
    daemon.kill()
    daemon.start()
    assert daemon.get("joy") == vector
    assert daemon.blobs() == blobs == sorted([vector.revision, vector.canary.revision])
    instance = fleet.instance()
    daemon.wait_for(3)
    meta = instance.snapshot().vectors["joy"]
    assert (meta.disabled, meta.canary_percent) == (True, 5.0)
    assert meta.expires == pytest.approx(vector.expire_time.ToNanoseconds() / 1e9, abs=1e-5)
    assert instance.held(0) == set(blobs)


def test_a_canary_that_a_new_worker_refuses_is_left_out(fleet: Fleet) -> None:
    """Its name is served by its own revision alone there."""
    daemon = fleet.daemon()
    daemon.register("joy", a_file(1.0))
    # Finite in float32, not in the float16 of the worker that comes later.
    canary = daemon.register("joy", a_file(70_000.0), canary_percent=5.0).vector.canary.revision
    engine = fleet.fake("engine", dtype="float16")
    worker = fleet.fake("worker", dtype="float16")
    eventually(lambda: engine.snapshot is not None and len(engine.snapshot.vectors) == 1)
    assert engine.snapshot is not None
    assert not engine.snapshot.vectors[0].HasField("canary")
    assert canary not in worker.held


def test_a_worker_refuses_a_canary(fleet: Fleet) -> None:
    """One refusal and nothing is changed, as for any vector."""
    daemon = fleet.daemon()
    fleet.fake("engine", tp_size=2)
    fleet.fake("worker", 0, tp_size=2)
    fleet.fake("worker", 1, tp_size=2, dtype="float16")
    daemon.wait_for(3)
    before = daemon.register("joy", a_file(1.0)).vector
    found = refused(lambda: daemon.register("joy", a_file(70_000.0), canary_percent=5.0))
    assert found.reason == "NODE_REJECTED"
    assert daemon.get("joy") == before
    assert daemon.blobs() == [before.revision]
