"""An OpenTelemetry collector for tests: takes spans over OTLP/gRPC, and keeps them."""

# ruff: noqa: N802, ANN001, ANN201 -- the method is what gRPC calls

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True)
class Received:
    """One span: its name, kind ("SERVER" or "CLIENT"), ids in hex, attributes and status code."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    status: int
    service: str


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """The service. spans: what it was given."""

    spans: list[Received] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(max_workers=2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def Export(self, request, context):
        """Takes spans."""
        for resource in request.resource_spans:
            service = _attributes(resource.resource)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [_received(span, service) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def close(self) -> None:
        """Stops."""
        self._server.stop(0).wait()


def _received(span: Any, service: str) -> Received:
    return Received(
        span.name,
        {2: "SERVER", 3: "CLIENT"}[span.kind],
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _attributes(span),
        span.status.code,
        service,
    )


def _attributes(holder: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in holder.attributes
    }
