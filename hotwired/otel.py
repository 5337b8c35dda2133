"""Spans of OpenTelemetry, as its conventions for RPC have them. Imported only if it's installed."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hotwired import __version__

CLOSE_SECONDS = 2.0
"""How long the last spans may take to get away when the daemon stops."""

# Those that are the server's fault, by the conventions. To a client, any but OK is an error.
_SERVER_ERRORS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
_PROPAGATOR = TraceContextTextMapPropagator()


class Span:
    """One span of an RPC, ours or a node's."""

    def __init__(self, span: trace.Span, *, is_server: bool) -> None:
        self._span = span
        self._is_server = is_server

    @property
    def trace_id(self) -> str:
        """The trace's id, 32 hex digits."""
        return trace.format_trace_id(self._span.get_span_context().trace_id)

    @property
    def span_id(self) -> str:
        """The span's id, 16 hex digits."""
        return trace.format_span_id(self._span.get_span_context().span_id)

    def set(self, key: str, value: str | int) -> None:
        """Sets an attribute."""
        self._span.set_attribute(key, value)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns what carries the span to who is called."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(self._span))
        return tuple(carrier.items())

    def below(self) -> Context:
        """Returns the context of a span below this one."""
        return trace.set_span_in_context(self._span)

    def end(self, code: str) -> None:
        """Ends it. code: the gRPC code's name."""
        self.set("rpc.response.status_code", code)
        if code in _SERVER_ERRORS or (code != "OK" and not self._is_server):
            self.set("error.type", code)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()


class Tracer:
    """Starts spans, and hands those that have ended to a processor."""

    def __init__(self, processor: SpanProcessor, socket: Path) -> None:
        named = SERVICE_NAME in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        resource = {SERVICE_VERSION: __version__}
        if not (named or os.environ.get("OTEL_SERVICE_NAME")):
            resource[SERVICE_NAME] = "hotwired"
        self._provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("hotwired", __version__)
        self._socket = socket

    @classmethod
    def to_collector(cls, socket: Path) -> "Tracer":
        """Returns one that sends in batches, from a thread of its own that nobody waits for."""
        return cls(BatchSpanProcessor(OTLPSpanExporter()), socket)

    def server(self, method: str, carrier: Mapping[str, str]) -> Span:
        """Starts the span of a call that came in, below the one that its metadata carries.

        method: "package.Service/Method".
        """
        span = self._tracer.start_span(
            method,
            context=_PROPAGATOR.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes={**_of(method), "server.address": str(self._socket)},
        )
        return Span(span, is_server=True)

    def client(self, method: str, parent: Span) -> Span:
        """Starts the span of a call that goes out."""
        span = self._tracer.start_span(
            method, context=parent.below(), kind=trace.SpanKind.CLIENT, attributes=_of(method)
        )
        return Span(span, is_server=False)

    def close(self) -> None:
        """Sends what is left, if that takes no longer than CLOSE_SECONDS."""
        thread = threading.Thread(target=self._provider.shutdown, daemon=True, name="traces-end")
        thread.start()
        thread.join(CLOSE_SECONDS)


def _of(method: str) -> dict[str, str]:
    return {"rpc.system.name": "grpc", "rpc.method": method}
