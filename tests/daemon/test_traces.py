"""One registration is one trace: from the caller, through the daemon, into each node."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hotwired.v1 import steering_service_pb2 as pb
from tests.daemon.harness import Fleet, a_file, eventually, refused, upload
from tests.support.collector import Collector, Received

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = ("traceparent", f"00-{TRACE}-{SPAN}-01")
RPC = "hotwired.v1.SteeringService/"
NODE = "hotwired.node.v1.NodeService/"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the daemons of a test send to, at once."""
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{made.port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    yield made
    made.close()


@pytest.fixture
def in_nodes(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the nodes of a test trace: they run here, and have an SDK that is set up."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


def named(spans: list[Received], name: str) -> list[Received]:
    """Returns the spans of a name."""
    return [span for span in spans if span.name == name]


def parent_of(span: ReadableSpan) -> str:
    """Returns the id of a span's parent."""
    assert span.parent is not None
    return trace.format_span_id(span.parent.span_id)


def register(daemon: Any, name: str, data: bytes, *metadata: tuple[str, str]) -> Any:
    """Registers a vector, with metadata."""
    messages = iter(upload(name, data))
    return daemon.stub.RegisterVector(messages, timeout=10, metadata=metadata)


def test_a_registration_is_one_trace(
    fleet: Fleet, collector: Collector, in_nodes: InMemorySpanExporter
) -> None:
    """The caller's span, the RPC's, one for each stage and commit, and theirs in the nodes."""
    daemon = fleet.daemon()
    fleet.instance(tp_size=2)
    daemon.wait_for(4)
    collector.spans.clear()
    answer = register(daemon, "joy", a_file(), TRACEPARENT)
    assert answer.converged
    eventually(lambda: len([s for s in collector.spans if s.trace_id == TRACE]) >= 5)
    spans = [span for span in collector.spans if span.trace_id == TRACE]
    (rpc,) = named(spans, RPC + "RegisterVector")
    assert (rpc.kind, rpc.parent_id, rpc.status, rpc.service) == ("SERVER", SPAN, 0, "hotwired")
    assert rpc.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": RPC + "RegisterVector",
        "rpc.response.status_code": "OK",
        "server.address": str(daemon.socket),
        "hotwired.vector": "joy",
        "hotwired.generation": answer.generation,
    }
    stages, commits = named(spans, NODE + "Stage"), named(spans, NODE + "Commit")
    assert {s.attributes["hotwired.node"] for s in stages} == {"i1/worker-0-0-0", "i1/worker-0-0-1"}
    assert {s.attributes["hotwired.node"] for s in commits} == {
        "i1/engine-0-0-0",
        "i1/frontend-0-0-0",
    }
    assert {(s.kind, s.parent_id) for s in stages + commits} == {("CLIENT", rpc.span_id)}
    assert len(spans) == 5
    below = {parent_of(span): span for span in in_nodes.get_finished_spans()}
    assert set(below) == {s.span_id for s in stages + commits}
    for span in stages + commits:
        found = below[span.span_id]
        assert (found.name, found.kind) == (span.name, trace.SpanKind.SERVER)
        assert trace.format_trace_id(found.context.trace_id) == TRACE
        assert found.attributes["rpc.response.status_code"] == "OK"
    (line,) = daemon.log("rpc", method="RegisterVector")
    assert (line["trace_id"], line["span_id"]) == (TRACE, rpc.span_id)
    (audit,) = daemon.log("audit", action="register")
    assert audit["trace_id"] == TRACE


def test_a_refusal_is_an_error_where_it_was_one(
    fleet: Fleet, collector: Collector, in_nodes: InMemorySpanExporter
) -> None:
    """Of the worker's call, and in the worker; the RPC answered as it should."""
    daemon = fleet.daemon()
    instance = fleet.instance()
    daemon.wait_for(3)
    blobs = instance.nodes["worker-0"].blobs
    assert blobs is not None
    blobs.max_bytes = 1
    assert refused(lambda: register(daemon, "joy", a_file(), TRACEPARENT)).reason == "NODE_REJECTED"
    eventually(lambda: named(collector.spans, RPC + "RegisterVector"))
    (rpc,) = named(collector.spans, RPC + "RegisterVector")
    (stage,) = named(collector.spans, NODE + "Stage")
    assert (rpc.status, rpc.attributes["rpc.response.status_code"]) == (0, "FAILED_PRECONDITION")
    assert (stage.status, stage.attributes["error.type"]) == (2, "RESOURCE_EXHAUSTED")
    (inside,) = in_nodes.get_finished_spans()
    assert inside.status.status_code is trace.StatusCode.ERROR
    assert inside.attributes["rpc.response.status_code"] == "RESOURCE_EXHAUSTED"


def test_each_rpc_without_a_trace_begins_one(fleet: Fleet, collector: Collector) -> None:
    """And what the daemon does of itself begins none: nodes are asked, and join, untraced."""
    daemon = fleet.daemon()
    fleet.instance()
    daemon.wait_for(3)
    daemon.generation()
    daemon.stub.GetPolicy(pb.GetPolicyRequest(), timeout=5, metadata=(("traceparent", "junk"),))
    eventually(lambda: len(named(collector.spans, RPC + "GetPolicy")) == 2)
    roots = [span for span in collector.spans if not span.parent_id]
    assert roots == collector.spans
    assert len({span.trace_id for span in roots}) == len(roots)
    assert {span.kind for span in roots} == {"SERVER"}


@pytest.mark.parametrize("answers", [False, True], ids=["refused", "silent"])
def test_a_dead_collector_costs_nothing(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """One that is not there, or takes the connection and says nothing: calls and stop are quick."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if answers:
            listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        daemon = fleet.daemon()
        fleet.instance()
        daemon.wait_for(3)
        started = time.monotonic()
        for number in range(20):
            assert register(daemon, f"v{number}", a_file(1.0 + number)).converged
        assert time.monotonic() - started < 5
        slowest = max(line["duration_ms"] for line in daemon.log("rpc", method="RegisterVector"))
        assert slowest < 1000
        started = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - started < 6


def test_traces_are_off_unless_asked_for(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no line has ids, though the caller has a trace."""
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    daemon = fleet.daemon()
    fleet.instance()
    daemon.wait_for(3)
    register(daemon, "joy", a_file(), TRACEPARENT)
    assert all("trace_id" not in line for line in daemon.log("rpc"))
