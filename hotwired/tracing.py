"""Traces, if the environment names a collector and the extra `otel` is there; else nothing.

OTEL_EXPORTER_OTLP_ENDPOINT (or ..._TRACES_ENDPOINT) says where, the other OTEL_ variables how. An
RPC is a span, with what it makes nodes do below it: what a worker stages, and what is committed
for its generation. What the reconciler does of itself is in the log, and in no trace.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotwired.errors import known
from hotwired.log import get

if TYPE_CHECKING:
    from hotwired.otel import Span, Tracer

Metadata = Iterable[tuple[str, str | bytes]]
CallMetadata = tuple[tuple[str, str], ...] | None

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CAUSE_SECONDS = 60.0

_tracer: "Tracer | None" = None
_current: ContextVar["Span | None"] = ContextVar("hotwired_span", default=None)
# The newest generation, the span of the RPC that made it, and until when that counts as the cause.
_cause: "tuple[int, Span | None, float]" = (0, None, 0.0)


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment names a collector and does not turn traces off."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    none = environ.get("OTEL_TRACES_EXPORTER", "otlp") == "none"
    return any(environ.get(name) for name in _ENDPOINTS) and not (off or none)


@contextmanager
def configured(socket: Path) -> Iterator[None]:
    """Traces while it is entered, if that is wanted. socket: where the daemon listens."""
    tracer = _made(socket) if is_wanted(os.environ) else None
    use(tracer)
    try:
        yield
    finally:
        use(None)
        if tracer is not None:
            tracer.close()


def use(tracer: "Tracer | None") -> None:
    """Makes a tracer the process's; None for no traces."""
    global _tracer  # noqa: PLW0603 -- as the log, it is of the process
    _tracer = tracer


def _made(socket: Path) -> "Tracer | None":
    try:
        from hotwired.otel import Tracer
    except ImportError as exc:
        get().warning("traces off", error=f"hotwired[otel] is not installed: {exc}")
        return None
    try:
        return Tracer.to_collector(socket)
    except Exception as exc:  # noqa: BLE001 -- whatever its variables say, the daemon serves
        get().warning("traces off", error=f"{type(exc).__name__}: {exc}"[:500])
        return None


def started(method: str, metadata: Metadata) -> "Span | None":
    """Starts the span of an RPC, below its caller's, and returns it; None without traces."""
    span = None
    if _tracer is not None:
        carrier = {key: value for key, value in metadata if isinstance(value, str)}
        span = _tracer.server(method, carrier)
    _current.set(span)
    return span


def ended(span: "Span | None", code: str, attributes: Mapping[str, Any]) -> None:
    """Ends the span of an RPC. code: its gRPC code. attributes: what is known of it by now."""
    _current.set(None)
    if span is not None:
        for key in ("vector", "generation"):
            if key in attributes:
                span.set(f"hotwired.{key}", attributes[key])
        span.end(code)


@contextmanager
def call(method: str, node: str, cause: "Span | None" = None) -> Iterator[CallMetadata]:
    """Traces a call to a node, below `cause` or the RPC it is in; yields the call's metadata."""
    parent = cause or _current.get()
    if _tracer is None or parent is None:
        yield None
        return
    span = _tracer.client(method, parent)
    span.set("hotwired.node", node)
    code = "CANCELLED"
    try:
        yield span.metadata()
        code = "OK"
    except Exception as exc:
        code = known(exc).code.name
        raise
    finally:
        span.end(code)


def remember(generation: int) -> None:
    """Takes the RPC that this runs in for what made a generation."""
    global _cause  # noqa: PLW0603 -- there is one newest generation
    _cause = generation, _current.get(), time.monotonic() + _CAUSE_SECONDS


def cause_of(generation: int) -> "Span | None":
    """Returns the span of the RPC that made a generation, for a minute; else None."""
    made, span, until = _cause
    return span if made == generation and time.monotonic() < until else None
