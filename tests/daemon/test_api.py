"""What the public API answers: vectors, pages, policy, statistics, nodes."""

import base64
import math
from typing import Any

import grpc
import numpy as np
import pytest
import safetensors.numpy
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1.node_pb2 import NODE_ROLE_ENGINE
from hotwired.v1.policy_pb2 import DOSE_MODE_CLAMP, DOSE_MODE_REJECT
from tests.daemon.harness import (
    HIDDEN,
    LAYERS,
    Daemon,
    Fleet,
    Instance,
    a_file,
    eventually,
    refused,
)


@pytest.fixture(scope="module")
def daemon(shared: Fleet) -> Daemon:
    """One daemon."""
    return shared.daemon()


@pytest.fixture(scope="module", autouse=True)
def instance(shared: Fleet, daemon: Daemon) -> Instance:
    """One model with two workers."""
    instance = shared.instance(tp_size=2)
    daemon.wait_for(4)
    return instance


@pytest.fixture(autouse=True)
def _fresh(daemon: Daemon) -> None:
    """No vectors, default policy."""
    daemon.set_policy()
    for name in daemon.names():
        daemon.delete(name)


def test_a_registration_says_what_it_came_to(daemon: Daemon, instance: Instance) -> None:
    """The vector, its generation, and every node; it is in force by then."""
    before = daemon.generation()
    answer = daemon.register("joy", a_file(2.0, model="org/model", note="n"))
    assert (answer.generation, answer.converged, answer.unchanged) == (before + 1, True, False)
    vector = answer.vector
    assert (vector.name, vector.hidden_size, list(vector.layers)) == (
        "joy",
        HIDDEN,
        list(range(LAYERS)),
    )
    assert list(vector.norms) == pytest.approx([2.0 * math.sqrt(HIDDEN)] * LAYERS)
    assert dict(vector.metadata) == {"model": "org/model", "note": "n"}
    assert (vector.model, vector.source_dtype, vector.any_layer) == ("org/model", "F32", False)
    assert vector.generation == answer.generation
    assert vector.create_time == vector.update_time
    assert vector.create_time.seconds > 0
    assert sorted(node.node for node in answer.nodes) == [
        "i1/engine-0-0-0",
        "i1/frontend-0-0-0",
        "i1/worker-0-0-0",
        "i1/worker-0-0-1",
    ]
    for key in ("engine-0", "frontend-0"):
        snapshot = instance.snapshot(key)
        assert snapshot.generation == answer.generation
        assert snapshot.vectors["joy"].revision == vector.revision
        assert snapshot.vectors["joy"].norms == tuple(vector.norms)
    assert vector.revision in instance.held(0) & instance.held(1)
    assert daemon.get("joy") == vector
    (audit,) = daemon.log("audit", action="register", generation=answer.generation)
    assert (audit["vector"], audit["new"]) == ("joy", vector.revision)
    eventually(lambda: daemon.log("rpc", method="RegisterVector", generation=answer.generation))
    (line,) = daemon.log("rpc", method="RegisterVector", generation=answer.generation)
    assert (line["code"], line["vector"], line["reason"]) == ("OK", "joy", "")
    assert line["duration_ms"] > 0


def test_a_vector_for_any_layer(daemon: Daemon, instance: Instance) -> None:
    """One row without a layer."""
    vector = daemon.register("any", safetensors.numpy.save({"v": np.ones(HIDDEN, "f4")})).vector
    assert (vector.any_layer, list(vector.layers), list(vector.norms)) == (True, [], [4.0])
    assert instance.snapshot().vectors["any"].any_layer


def test_the_same_again_changes_nothing(daemon: Daemon) -> None:
    """No new generation, the same times; other rows or other metadata do change something."""
    first = daemon.register("joy", a_file(1.0))
    again = daemon.register("joy", a_file(1.0), chunk=100)
    assert again.unchanged
    assert again.converged
    assert (again.generation, again.vector) == (first.generation, first.vector)
    noted = daemon.register("joy", a_file(1.0, note="new"))
    assert not noted.unchanged
    assert noted.vector.revision == first.vector.revision
    assert noted.vector.update_time == first.vector.update_time
    assert noted.vector.generation == first.vector.generation
    moved = daemon.register("joy", a_file(2.0))
    assert moved.vector.create_time == first.vector.create_time
    assert moved.vector.update_time.ToNanoseconds() > first.vector.update_time.ToNanoseconds()
    assert moved.generation == noted.generation + 1 == moved.vector.generation


def test_a_trial_run_changes_nothing(daemon: Daemon, instance: Instance) -> None:
    """It returns what would be registered, and refuses what would be refused."""
    before = (daemon.generation(), instance.held(), daemon.blobs())
    answer = daemon.register("joy", a_file(3.5), validate_only=True)
    assert answer.vector.name == "joy"
    assert (answer.generation, answer.unchanged) == (before[0], False)
    assert (daemon.generation(), instance.held(), daemon.blobs()) == before
    assert refused(lambda: daemon.get("joy")).reason == "VECTOR_NOT_FOUND"


def test_two_names_share_one_blob(daemon: Daemon) -> None:
    """It stays as long as one of them is there."""
    first = daemon.register("a", a_file(1.5)).vector.revision
    assert daemon.register("b", a_file(1.5)).vector.revision == first
    assert daemon.blobs() == [first]
    daemon.delete("a")
    assert daemon.blobs() == [first]
    daemon.delete("b")
    assert daemon.blobs() == []


def test_deletion(daemon: Daemon, instance: Instance) -> None:
    """The name is gone for the next request; the workers forget the revision soon after."""
    revision = daemon.register("joy", a_file(4.0)).vector.revision
    answer = daemon.delete("joy", revision)
    assert (answer.vector.name, answer.converged) == ("joy", True)
    assert "joy" not in instance.snapshot().vectors
    eventually(lambda: revision not in instance.held(0) | instance.held(1))
    assert refused(lambda: daemon.delete("joy")).reason == "VECTOR_NOT_FOUND"
    assert daemon.log("audit", action="delete", old=revision)


def test_deletion_of_another_revision_is_refused(daemon: Daemon) -> None:
    """Who means an older revision must not delete the newer one."""
    daemon.register("joy")
    found = refused(lambda: daemon.delete("joy", "0" * 64))
    assert (found.code, found.reason) == ("ABORTED", "REVISION_MISMATCH")
    assert daemon.names() == ["joy"]


def test_a_wrong_name_gets_a_hint(daemon: Daemon) -> None:
    """The nearest name is in the message; a hostile one is shown harmlessly."""
    daemon.register("tesla-car")
    found = refused(lambda: daemon.get("tesla_car"))
    assert (found.code, found.reason) == ("NOT_FOUND", "VECTOR_NOT_FOUND")
    assert found.metadata["near"] == "tesla-car"
    for name in ("", "\x1b[31m", "x" * 5000):
        found = refused(lambda name=name: daemon.get(name))
        assert found.reason == "VECTOR_NOT_FOUND"
        assert found.message.isprintable()


def pages(daemon: Daemon, size: int) -> list[list[str]]:
    """Returns the names on each page."""
    found, token = [], ""
    while True:
        request = pb.ListVectorsRequest(page_size=size, page_token=token)
        answer = daemon.stub.ListVectors(request, timeout=5)
        found.append([vector.name for vector in answer.vectors])
        if not (token := answer.next_page_token):
            return found


def test_pages(daemon: Daemon) -> None:
    """In the order of names, none twice; a page stands firm against changes before it."""
    names = ["a", "b-1", "b.2", "b_3", "c"]
    for name in reversed(names):
        daemon.register(name)
    assert pages(daemon, 2) == [["a", "b-1"], ["b.2", "b_3"], ["c"]]
    assert pages(daemon, 5) == [names]
    assert pages(daemon, 0) == [names]
    assert pages(daemon, 2**31 - 1) == [names]
    first = daemon.stub.ListVectors(pb.ListVectorsRequest(page_size=2), timeout=5)
    assert first.total_size == 5
    daemon.delete("a")
    daemon.delete("b-1")
    request = pb.ListVectorsRequest(page_size=2, page_token=first.next_page_token)
    second = daemon.stub.ListVectors(request, timeout=5)
    assert [vector.name for vector in second.vectors] == ["b.2", "b_3"]


def test_a_page_fits_into_a_message(daemon: Daemon) -> None:
    """However long the metadata are, a page stays below what a client takes by default."""
    for number in range(140):
        name, note = f"v{number:03}", "x" * 16_000
        daemon.register(name, a_file(float(number), layers=1, note=note))
    found = pages(daemon, 1000)
    assert len(found) > 1
    assert [name for page in found for name in page] == [f"v{number:03}" for number in range(140)]


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("page_size", pb.ListVectorsRequest(page_size=-1)),
        ("page_token", pb.ListVectorsRequest(page_token="nonsense")),
        ("page_token", pb.ListVectorsRequest(page_token="\x00")),
        ("page_token", pb.ListVectorsRequest(page_token=base64.b64encode(b"2:joy").decode())),
        ("page_token", pb.ListVectorsRequest(page_token=base64.b64encode(b"1:../x").decode())),
    ],
)
def test_bad_pages_are_refused(daemon: Daemon, field: str, request_: Any) -> None:
    """A token is ours or an error, never a wrong page."""
    found = refused(lambda: daemon.stub.ListVectors(request_, timeout=5))
    assert (found.code, found.reason, found.fields) == (
        "INVALID_ARGUMENT",
        "PAGE_INVALID",
        [field],
    )


def test_the_policy_reaches_engine_and_frontend(daemon: Daemon, instance: Instance) -> None:
    """All of it, by the time the call returns."""
    answer = daemon.set_policy(
        dose_mode=DOSE_MODE_CLAMP, max_relative_dose=0.25, strict=True, reference_norms={3: 1.5}
    )
    assert answer.converged
    assert answer.policy.etag
    for key in ("engine-0", "frontend-0"):
        snapshot = instance.snapshot(key)
        assert snapshot.generation == answer.generation
        assert (snapshot.policy.strict, snapshot.policy.dose.max_relative_dose) == (True, 0.25)
        assert dict(snapshot.policy.dose.reference_norms) == {3: 1.5}
    read = daemon.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5)
    assert (read.policy, read.generation) == (answer.policy, answer.generation)
    assert daemon.log("audit", action="set_policy", new=answer.policy.etag, strict="true")


def test_a_mask_leaves_the_rest(daemon: Daemon) -> None:
    """The kill switch can be flipped without knowing the limits."""
    daemon.set_policy(max_relative_dose=0.5)
    answer = daemon.set_policy("kill_switch", kill_switch=True)
    assert (answer.policy.kill_switch, answer.policy.max_relative_dose) == (True, 0.5)
    off = daemon.set_policy("kill_switch", kill_switch=False)
    assert (off.policy.kill_switch, off.policy.max_relative_dose) == (False, 0.5)


def test_the_same_policy_again_changes_nothing(daemon: Daemon) -> None:
    """Switching off twice is one generation."""
    first = daemon.set_policy("kill_switch", kill_switch=True)
    again = daemon.set_policy("kill_switch", kill_switch=True)
    assert (again.generation, again.policy.etag) == (first.generation, first.policy.etag)


def test_an_etag_guards_against_lost_updates(daemon: Daemon) -> None:
    """Of two who read the same policy, the second to write is refused."""
    etag = daemon.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5).policy.etag
    daemon.set_policy(strict=True, etag=etag)
    found = refused(lambda: daemon.set_policy(max_relative_dose=9.0, etag=etag))
    assert (found.code, found.reason) == ("ABORTED", "ETAG_MISMATCH")
    policy = daemon.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5).policy
    assert (policy.strict, policy.HasField("max_relative_dose")) == (True, False)
    daemon.set_policy(strict=False, etag=policy.etag)


def test_a_policy_trial_run_changes_nothing(daemon: Daemon, instance: Instance) -> None:
    """It returns what would be in force."""
    before = daemon.generation()
    request = pb.SetPolicyRequest(policy={"strict": True}, validate_only=True)
    answer = daemon.stub.SetPolicy(request, timeout=5)
    assert (answer.policy.strict, answer.generation) == (True, before)
    assert not instance.snapshot().policy.strict


def test_bad_policies_are_refused(daemon: Daemon) -> None:
    """Values, masks and an absent policy; nothing changes."""
    before = daemon.generation()
    for paths, fields, reason in (
        ((), {"max_relative_dose": math.nan}, "POLICY_INVALID"),
        ((), {"max_total_relative_dose": -1.0}, "POLICY_INVALID"),
        ((), {"reference_norms": {1: math.inf}}, "POLICY_INVALID"),
        ((), {"reference_norms": {2**32 - 1: 1.0}}, "POLICY_INVALID"),
        (("etag",), {}, "FIELD_MASK_INVALID"),
        (("no_such_field",), {}, "FIELD_MASK_INVALID"),
    ):
        found = refused(lambda p=paths, f=fields: daemon.set_policy(*p, **f))
        assert (found.code, found.reason) == ("INVALID_ARGUMENT", reason)
        assert found.fields
    found = refused(lambda: daemon.stub.SetPolicy(pb.SetPolicyRequest(), timeout=5))
    assert (found.reason, found.fields) == ("POLICY_INVALID", ["policy"])
    assert daemon.generation() == before


def test_stats(daemon: Daemon, instance: Instance) -> None:
    """The daemon's own figures and the engine's, workers taken together."""
    answer = daemon.register("joy")
    stats = daemon.stub.Stats(pb.StatsRequest(), timeout=5).stats
    assert (stats.generation, stats.vectors, stats.converged) == (answer.generation, 1, True)
    assert stats.store_bytes == answer.vector.size_bytes
    assert 0 < stats.daemon_rss_bytes < 300 << 20
    assert stats.uptime_seconds > 0
    (engine,) = stats.engines
    assert (engine.engine, engine.generation) == ("i1/0", answer.generation)
    assert engine.rows_in_use == 2  # of the worker that uses most
    assert [worker.node for worker in engine.workers] == ["i1/worker-0-0-0", "i1/worker-0-0-1"]
    assert [worker.steered_tokens_total for worker in engine.workers] == [100, 101]
    assert engine.steered_tokens_total == 100  # of the one that steered fewest
    assert not stats.kill_switch


def test_stats_are_watched(daemon: Daemon) -> None:
    """One sample at once, then one each interval, until the caller cancels."""
    call = daemon.stub.WatchStats(pb.WatchStatsRequest(interval_seconds=0.1), timeout=10)
    samples = [next(call).stats for _ in range(3)]
    call.cancel()
    gap = samples[2].sample_time.ToNanoseconds() - samples[0].sample_time.ToNanoseconds()
    assert gap > 0.15e9
    eventually(lambda: daemon.log("rpc", method="WatchStats", code="CANCELLED"))


@pytest.mark.parametrize("seconds", [-1.0, 0.05, 3601.0, math.nan, math.inf])
def test_bad_intervals_are_refused(daemon: Daemon, seconds: float) -> None:
    """Neither a busy loop nor a watch that never wakes."""
    request = pb.WatchStatsRequest(interval_seconds=seconds)
    found = refused(lambda: next(daemon.stub.WatchStats(request, timeout=5)))
    assert (found.code, found.reason, found.fields) == (
        "INVALID_ARGUMENT",
        "INTERVAL_INVALID",
        ["interval_seconds"],
    )


def test_nodes_are_listed(daemon: Daemon, instance: Instance) -> None:
    """By name, with what they say of themselves."""
    generation = daemon.register("joy").generation
    answer = daemon.stub.ListNodes(pb.ListNodesRequest(), timeout=5)
    assert answer.generation == generation
    names = [node.name for node in answer.nodes]
    assert names == sorted(names)
    engine, worker = answer.nodes[0], answer.nodes[3]
    assert (engine.name, list(engine.roles)) == ("i1/engine-0-0-0", [NODE_ROLE_ENGINE])
    assert (engine.generation, engine.boot_id) == (
        generation,
        instance.nodes["engine-0"].boot_id,
    )
    assert (worker.tp_rank, worker.hidden_size, worker.model) == (1, HIDDEN, "org/model")
    assert worker.last_seen_time.seconds > 0
    assert worker.pid > 0


def test_health(daemon: Daemon) -> None:
    """The whole, the service and the nodes each have a status; others are unknown."""
    for service in ("", "hotwired.v1.SteeringService", "hotwired.nodes"):
        assert daemon.health(service) == "SERVING"
    stub = health_pb2_grpc.HealthStub(daemon.channel)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="nonsense"), timeout=5)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_reflection(daemon: Daemon) -> None:
    """A client without our protos can list the services."""
    stub = reflection_pb2_grpc.ServerReflectionStub(daemon.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=5)
    names = {service.name for service in answer.list_services_response.service}
    assert {"hotwired.v1.SteeringService", "grpc.health.v1.Health"} <= names


def test_default_policy(daemon: Daemon) -> None:
    """Unspecified is the strictest mode."""
    policy = daemon.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5).policy
    assert policy.dose_mode == DOSE_MODE_REJECT
