"""What the daemon knows already, as metrics: the desired state, its nodes, their last reports."""

import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import grpc
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hotwired import __version__
from hotwired.metrics import families
from hotwired.metrics.counted import OTHER
from hotwired.metrics.families import Family
from hotwired.node_link import NodeLink
from hotwired.plan import Outcome
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.v1.stats_pb2 import EngineStats, Stats

MAX_REASONS = 64
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_STATES = tuple(
    (value, name.removeprefix("NODE_STATE_").lower())
    for name, value in public_pb2.NodeState.items()
    if value != public_pb2.NODE_STATE_UNSPECIFIED
)
_OF_DAEMON: tuple[tuple[Family, Callable[[Stats], float]], ...] = (
    (families.GENERATION, lambda s: s.generation),
    (families.CONVERGED, lambda s: s.converged),
    (families.KILL_SWITCH, lambda s: s.kill_switch),
    (families.VECTORS, lambda s: s.vectors),
    (families.STORE_BYTES, lambda s: s.store_bytes),
)
_OF_ENGINE: tuple[tuple[Family, Callable[[EngineStats], float]], ...] = (
    (families.REQUESTS, lambda e: e.requests_total),
    (families.STEERED, lambda e: e.requests_steered_total),
    (families.LIVE, lambda e: e.requests_live),
    (families.TOKENS, lambda e: e.steered_tokens_total),
    (families.ROWS, lambda e: e.rows_in_use),
    (families.ROWS_CAPACITY, lambda e: e.rows_capacity),
    (families.SLOTS, lambda e: e.slots_in_use),
    (families.SLOTS_CAPACITY, lambda e: e.slots_capacity),
    (families.FILL_STEPS, lambda e: e.fill_steps_total),
    (families.FILL_SECONDS, lambda e: e.fill_seconds_total),
)
_OF_ENGINE_BY_WORD: tuple[tuple[Family, Callable[[EngineStats], Mapping[str, int]]], ...] = (
    (families.UNSTEERED, lambda e: e.requests_unsteered_total),
    (families.DOSES, lambda e: e.dose_decisions_total),
    (families.PROGRAM_ERRORS, lambda e: e.program_errors_total),
)

Outcomes = Callable[[], list[tuple[NodeLink, Outcome]]]


class State(Collector):
    """Collects from the last sample of Stats and from the links as they are.

    stats: the sample, to be set before each collection. outcomes: returns each node and how far it
    is. unreadable: returns how many stored vectors can't be read. A node's counters are as it says:
    they start again from 0 when it does, as Prometheus expects. Nodes that are gone are left out.
    """

    def __init__(self, outcomes: Outcomes, unreadable: Callable[[], int]) -> None:
        self.stats = Stats()
        self._outcomes = outcomes
        self._unreadable = unreadable

    def describe(self) -> Iterable[Metric]:
        """Yields all families without their samples."""
        return map(_metric, families.READ)

    def collect(self) -> Iterator[Metric]:
        """Yields all families as of now."""
        versions = (__version__, platform.python_version(), grpc.__version__)
        yield _one(families.BUILD_INFO, versions, 1)
        for family, value in _OF_DAEMON:
            yield _one(family, (), value(self.stats))
        yield _one(families.UNREADABLE, (), self._unreadable())
        yield from _nodes(self._outcomes())
        yield from _engines(self.stats.engines)


def _metric(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    cls = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    return cls(family.name, family.meaning, labels=family.labels)


def _one(family: Family, labels: tuple[str, ...], value: float) -> Metric:
    metric = _metric(family)
    metric.add_metric(labels, value)
    return metric


def _nodes(outcomes: list[tuple[NodeLink, Outcome]]) -> Iterator[Metric]:
    states, seen = _metric(families.NODE_STATE), _metric(families.NODE_SEEN)
    generations = _metric(families.NODE_GENERATION)
    held, size = _metric(families.NODE_VECTORS), _metric(families.NODE_BYTES)
    for link, outcome in outcomes:
        labels = (link.name.partition("/")[0], link.name)
        for value, name in _STATES:
            states.add_metric((*labels, name), outcome.state == value)
        if link.described is None:
            continue
        seen.add_metric(labels, link.last_seen)
        if link.is_admitting:
            generations.add_metric(labels, link.described.generation)
        if link.is_worker:
            held.add_metric(labels, len(link.held))
            size.add_metric(labels, link.report.worker.blob_bytes)
    yield from (states, seen, generations, held, size)


def _engines(engines: Iterable[EngineStats]) -> Iterator[Metric]:
    labelled = [((engine.engine.rpartition("/")[0], engine.engine), engine) for engine in engines]
    for family, value in _OF_ENGINE:
        metric = _metric(family)
        for labels, engine in labelled:
            metric.add_metric(labels, value(engine))
        yield metric
    for family, counts in _OF_ENGINE_BY_WORD:
        metric = _metric(family)
        for labels, engine in labelled:
            for word, count in bounded(counts(engine)).items():
                metric.add_metric((*labels, word), count)
        yield metric


def bounded(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns counts by words that can be labels; what a strange node says counts as OTHER."""
    result: dict[str, int] = {}
    for word in sorted(counts):
        fit = _WORD.fullmatch(word) and len(result) < MAX_REASONS
        key = word if fit else OTHER
        result[key] = result.get(key, 0) + counts[word]
    return result
