"""What is counted as it happens, each at one place. Of the process, like its log."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from prometheus_client import Counter, Histogram, disable_created_metrics

from hotwired.errors import HotwireError, known
from hotwired.metrics import families
from hotwired.metrics.families import Family
from hotwired.rpc_errors import subclasses

# When a counter was made is of no use to us, and doubles the series of the text format.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_CALLERS_FAULT = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ABORTED,
    }
)
OTHER = "OTHER"
"""What stands for the reasons that only a strange node has."""

PUSH_OUTCOMES = (
    "converged",
    "pending",
    "unchanged",
    "validated",
    "refused",
    "failed",
    "cancelled",
)


def _counter(family: Family) -> Counter:
    return Counter(family.name, family.meaning, family.labels, registry=None)


def _histogram(family: Family) -> Histogram:
    return Histogram(family.name, family.meaning, family.labels, registry=None, buckets=_SECONDS)


rpc_duration = _histogram(families.RPC_DURATION)
pushes = _counter(families.PUSHES)
push_duration = _histogram(families.PUSH_DURATION)
changes = _counter(families.CHANGES)
refusals = _counter(families.REFUSALS)

ALL = (rpc_duration, pushes, push_duration, changes, refusals)

# A rate knows its first event only if it has seen the zero before it.
for _outcome in PUSH_OUTCOMES:
    pushes.labels(_outcome)


def refused(kind: str, error: HotwireError) -> None:
    """Counts what a node refused. kind: "vector" or "snapshot". A reason of its own is OTHER."""
    ours = any(cls.reason == error.reason for cls in subclasses())
    refusals.labels(kind, error.reason if ours else OTHER).inc()


class Push:
    """A RegisterVector under way. outcome: one of PUSH_OUTCOMES, to be set when it is known."""

    outcome = "failed"


@contextmanager
def push() -> Iterator[Push]:
    """Counts a push by what became of it, and times it if all nodes came to use the vector."""
    started, under_way = time.monotonic(), Push()
    try:
        yield under_way
    except (asyncio.CancelledError, GeneratorExit):
        under_way.outcome = "cancelled"
        raise
    except Exception as exc:
        under_way.outcome = "refused" if known(exc).code in _CALLERS_FAULT else "failed"
        raise
    finally:
        pushes.labels(under_way.outcome).inc()
        if under_way.outcome == "converged":
            push_duration.observe(time.monotonic() - started)
