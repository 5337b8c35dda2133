"""The daemon's traces go on here, if this process has OpenTelemetry and someone set it up.

vLLM imports OpenTelemetry, and sets it up when asked for traces; nothing here does either. Only
calls of the daemon that carry a trace are looked at: no step and no request is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from hotwired.errors import known

Metadata = Iterable[tuple[str, Any]]

_API = "opentelemetry.trace"


@contextmanager
def continued(method: str, metadata: Metadata) -> Iterator[None]:
    """Trace a call of the daemon, below its span. method: "package.Service/Method"."""
    span = _started(method, metadata)
    if span is None:
        yield
        return
    code = "OK"
    with sys.modules[_API].use_span(span, end_on_exit=True, record_exception=False):
        try:
            yield
        except Exception as exc:
            code = known(exc).code.name
            raise
        finally:
            span.set_attribute("rpc.response.status_code", code)


def with_trace(
    _logger: object, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Put the ids of the current span on a line of the log, if there is one."""
    api = sys.modules.get(_API)
    context = api.get_current_span().get_span_context() if api is not None else None
    if context is not None and context.is_valid:
        line["trace_id"] = f"{context.trace_id:032x}"
        line["span_id"] = f"{context.span_id:016x}"
    return line


def _started(method: str, metadata: Metadata) -> Any:
    """Return a new span; None without OpenTelemetry or a trace, or if it fails."""
    carrier = {key: value for key, value in metadata if key in {"traceparent", "tracestate"}}
    api = sys.modules.get(_API)
    if api is None or not carrier:
        return None
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = TraceContextTextMapPropagator().extract(carrier)
        return api.get_tracer("hotwire_plugin").start_span(
            method,
            context=parent,
            kind=api.SpanKind.SERVER,
            attributes={"rpc.system.name": "grpc", "rpc.method": method},
        )
    except Exception:  # noqa: BLE001 -- a trace is worth no call
        return None
