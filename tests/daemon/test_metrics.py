"""The metrics of a real daemon with real node servers, over HTTP."""

import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from hotwired.metrics.families import FAMILIES
from hotwired.node.v1 import node_pb2
from tests.daemon.harness import Daemon, Fleet, a_file, eventually, refused

ROOT = Path(__file__).parents[2]


def scrape(daemon: Daemon, accept: str = "text/plain") -> str:
    """Returns the text that Prometheus would get."""
    (line,) = daemon.log("metrics served")
    request = urllib.request.Request(
        f"http://{line['address']}/metrics", headers={"Accept": accept}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read().decode()


def samples(daemon: Daemon) -> dict[str, list[Any]]:
    """Returns the samples of a scrape, by the name of their series."""
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(scrape(daemon)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


@pytest.fixture
def daemon(fleet: Fleet) -> Daemon:
    """A daemon that serves its metrics on a free port."""
    return fleet.daemon("--metrics-listen", "127.0.0.1:0")


def test_all_that_is_documented_is_exposed(fleet: Fleet, daemon: Daemon) -> None:
    """With these labels, this type, and nothing besides; OpenMetrics is understood, too."""
    instance = fleet.instance(tp_size=2)
    daemon.wait_for(4)
    engine = node_pb2.EngineReport(requests_total=5, requests_steered_total=3)
    engine.requests_unsteered_total["KILL_SWITCH"] = 2
    engine.dose_decisions_total["clamped"] = 1
    worker = node_pb2.WorkerReport(steered_tokens_total=40, fill_seconds_total=0.5)
    worker.program_errors_total["SLOTS_EXHAUSTED"] = 1
    instance.nodes["engine-0"].engine_report = lambda: engine
    instance.nodes["worker-1"].worker_report = lambda: worker
    assert daemon.register("joy").converged
    refused(lambda: daemon.get("nobody"))
    fleet.fake("worker", rank=2).refuse["Stage"] = lambda: ValueError("no")
    eventually(lambda: "hotwired_node_refusals_total" in samples(daemon))
    families = {f.name: f for f in text_string_to_metric_families(scrape(daemon))}
    for family in FAMILIES:
        found = families[family.name.removesuffix("_total")]
        assert (found.type, found.documentation) == (family.kind, family.meaning)
        assert {frozenset(s.labels) - {"le"} for s in found.samples} == {frozenset(family.labels)}
    ours = {family.name.removesuffix("_total") for family in FAMILIES}
    text = (ROOT / "docs" / "metrics.md").read_text()
    process = {n.removesuffix("_total") for n in re.findall(r"`(process_\w+)`", text)}
    assert set(families) == ours | process
    assert {f.name for f in openmetrics(scrape(daemon, "application/openmetrics-text"))} == (
        set(families)
    )


def test_what_happens_is_seen(fleet: Fleet, daemon: Daemon) -> None:
    """Pushes, changes, RPCs and the state of each node; a node that goes takes its series along."""
    instance = fleet.instance()
    daemon.wait_for(3)
    daemon.register("joy")
    daemon.set_policy("kill_switch", kill_switch=True)
    refused(lambda: daemon.register("bad name"))
    found = samples(daemon)
    pushes = {s.labels["outcome"]: s.value for s in found["hotwired_pushes_total"]}
    assert (pushes["converged"], pushes["refused"], pushes["failed"]) == (1, 1, 0)
    assert found["hotwired_push_duration_seconds_count"][0].value == 1
    assert 0 < found["hotwired_push_duration_seconds_sum"][0].value < 5
    assert {s.labels["action"] for s in found["hotwired_changes_total"]} == {
        "register",
        "set_policy",
    }
    ended = {
        (s.labels["method"], s.labels["code"]) for s in found["hotwired_rpc_duration_seconds_count"]
    }
    assert {("RegisterVector", "OK"), ("RegisterVector", "INVALID_ARGUMENT")} <= ended
    (switch,), (vectors,) = found["hotwired_kill_switch"], found["hotwired_vectors"]
    assert (switch.value, vectors.value) == (1, 1)
    generations = {s.labels["node"]: s.value for s in found["hotwired_node_generation"]}
    newest = found["hotwired_generation"][0].value
    assert generations == {"i1/engine-0-0-0": newest, "i1/frontend-0-0-0": newest}
    instance.stop_node("frontend-0")
    eventually(lambda: len(samples(daemon)["hotwired_node_generation"]) == 1)


def test_a_node_that_hangs_holds_up_no_scrape(fleet: Fleet, daemon: Daemon) -> None:
    """The rest is there within the second that a report may take."""
    fleet.fake("engine")
    worker = fleet.fake("worker")
    daemon.wait_for(2)
    worker.hung.set()
    assert samples(daemon)["hotwired_requests_total"]


def test_nothing_is_served_unasked(fleet: Fleet) -> None:
    """And a daemon that can't serve its metrics where it is told does not start."""
    daemon = fleet.daemon()
    daemon.register("joy", a_file())
    assert not daemon.log("metrics served")
    assert daemon.stop() == 0
    process = daemon.spawn("--metrics-listen", "0.0.0.0:9464")
    assert (process.wait(20), b"loopback" in process.stderr.read()) == (2, True)
    process = daemon.spawn("--metrics-listen", "unix:" + "/x" * 60)
    assert (process.wait(20), b"SOCKET_INVALID" in process.stderr.read()) == (1, True)
