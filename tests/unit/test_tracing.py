"""Traces without a collector: what the environment asks for, and what is never done."""

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hotwire_plugin.tracing import continued, with_trace
from hotwired import tracing
from hotwired.errors import GenerationStale
from hotwired.otel import Tracer

METHOD = "hotwired.v1.SteeringService/SetPolicy"
TRACEPARENT = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """What the daemon's side traces."""
    made = InMemorySpanExporter()
    tracing.use(Tracer(SimpleSpanProcessor(made), Path("/run/hotwired.sock")))
    yield made
    tracing.use(None)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_the_environment_decides(environ: dict[str, str], *, wanted: bool) -> None:
    """By OpenTelemetry's own variables."""
    assert tracing.is_wanted(environ) is wanted


def test_without_traces_nothing_is_imported() -> None:
    """Neither by the daemon nor by the plugin's part of it."""
    code = (
        "import sys; import hotwired.main, hotwire_plugin.node_service as n;"
        "from hotwired import tracing; from hotwire_plugin.tracing import continued\n"
        "with tracing.configured('/x'): assert tracing.started('m', ()) is None\n"
        f"with continued('m', ({TRACEPARENT},)): pass\n"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry')]"
    )
    path = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], check=True, env=path, timeout=30)


def test_without_the_extra_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the daemon runs on without traces."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
    monkeypatch.setitem(sys.modules, "hotwired.otel", None)
    with tracing.configured(Path("/x")):
        assert tracing.started(METHOD, ()) is None
    assert "hotwired[otel] is not installed" in capsys.readouterr().out


def test_a_call_is_traced_below_what_caused_it(exporter: InMemorySpanExporter) -> None:
    """The RPC it is in, or the one that made the generation; without either it isn't traced."""
    with tracing.call("n/Stage", "i/worker") as metadata:
        assert metadata is None
    span = tracing.started(METHOD, [TRACEPARENT])
    tracing.remember(7)
    with tracing.call("n/Stage", "i/worker") as inner:
        assert inner is not None
    tracing.ended(span, "OK", {"generation": 7, "peer": "no attribute"})
    with (
        pytest.raises(GenerationStale),
        tracing.call("n/Commit", "i/engine", tracing.cause_of(7)),
    ):
        raise GenerationStale("older")
    stage, rpc, commit = exporter.get_finished_spans()
    assert stage.parent.span_id == commit.parent.span_id == rpc.context.span_id
    assert "peer" not in rpc.attributes
    assert commit.attributes["error.type"] == "ABORTED"
    assert commit.status.status_code is trace.StatusCode.ERROR
    assert rpc.resource.attributes["service.name"] == "hotwired"


def test_a_cause_is_forgotten(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute, and with the next generation: a node that joins later is no part of it."""
    tracing.started(METHOD, ())
    tracing.remember(7)
    assert tracing.cause_of(7) is not None
    assert tracing.cause_of(6) is None
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert tracing.cause_of(7) is None
    tracing.ended(None, "OK", {})


def test_a_service_is_called_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SERVICE_NAME beats ours."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "steering-eu")
    made = InMemorySpanExporter()
    Tracer(SimpleSpanProcessor(made), Path("/x")).server(METHOD, {}).end("OK")
    (span,) = made.get_finished_spans()
    assert span.resource.attributes["service.name"] == "steering-eu"


def test_a_nodes_lines_carry_the_trace() -> None:
    """Within a call that has one, even if this process sends no traces itself."""
    with continued("n/Commit", [TRACEPARENT, ("other", b"-bin")]):
        line = with_trace(None, "", {"event": "x"})
    assert line["trace_id"] == TRACEPARENT[1].split("-")[1]
    assert with_trace(None, "", {"event": "x"}) == {"event": "x"}


def test_a_broken_opentelemetry_fails_no_call(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it raises is its own affair."""
    broken = ModuleType("opentelemetry.trace")
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", broken)
    with caplog.at_level(logging.ERROR), continued("n/Commit", [TRACEPARENT]):
        done = True
    assert done


def test_a_variable_that_means_nothing_only_turns_traces_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The daemon serves without them."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")
    with tracing.configured(Path("/run/hotwired.sock")):
        assert tracing.started(METHOD, ()) is None
