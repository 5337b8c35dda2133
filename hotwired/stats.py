"""Counters of the daemon and of every engine, gathered from the nodes when asked for."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from google.protobuf.internal.containers import ScalarMap

from hotwired.errors import HotwireError
from hotwired.fleet import Fleet, Group
from hotwired.node.v1 import node_pb2
from hotwired.node_link import NodeLink
from hotwired.plan import is_settled
from hotwired.policy import timestamp
from hotwired.reconcile import Reconciler
from hotwired.store import Store
from hotwired.v1 import stats_pb2

REPORT_SECONDS = 1.0
FRESH_SECONDS = 0.05
"""Samples closer together than this share one answer, however many callers watch."""


class StatsCollector:
    """Makes Stats."""

    def __init__(self, fleet: Fleet, store: Store, reconciler: Reconciler) -> None:
        self._fleet = fleet
        self._store = store
        self._reconciler = reconciler
        self._started = time.monotonic()
        self._lock = asyncio.Lock()
        self._sampled = (float("-inf"), stats_pb2.Stats())

    async def sample(self) -> stats_pb2.Stats:
        """Returns the figures as of now. A node that doesn't answer counts as it last did."""
        async with self._lock:
            if time.monotonic() - self._sampled[0] > FRESH_SECONDS:
                await self._fetch_reports()
                self._sampled = (time.monotonic(), self._stats())
            return self._sampled[1]

    async def _fetch_reports(self) -> None:
        links = [
            link
            for link in self._fleet.links.values()
            if (link.is_engine or link.is_worker) and not link.failures
        ]
        await asyncio.gather(*(_fetch(link) for link in links))

    def _stats(self) -> stats_pb2.Stats:
        desired = self._store.desired
        outcomes = self._reconciler.outcomes()
        reachable = [(link, outcome) for link, outcome in outcomes if not link.failures]
        return stats_pb2.Stats(
            sample_time=timestamp(time.time()),
            generation=desired.generation,
            vectors=len(desired.entries),
            store_bytes=self._store.blob_bytes,
            kill_switch=desired.policy.kill_switch,
            converged=all(is_settled(link, outcome) for link, outcome in reachable),
            engines=[
                engine_stats(instance.instance_id, group)
                for instance in self._fleet.instances()
                for group in instance.groups.values()
                if group.engine is not None
            ],
            uptime_seconds=time.monotonic() - self._started,
            daemon_rss_bytes=rss_bytes(),
        )


async def _fetch(link: NodeLink) -> None:
    # If it fails, its state says so, and the last report stands.
    with contextlib.suppress(HotwireError):
        await link.fetch_report(REPORT_SECONDS)


def engine_stats(instance_id: str, group: Group) -> stats_pb2.EngineStats:
    """Returns the counters of an engine and its workers, from their last reports."""
    engine = group.engine.report.engine if group.engine else node_pb2.EngineReport()
    workers = [worker.report.worker for worker in group.workers]

    def most(field: Callable[[node_pb2.WorkerReport], float]) -> int:
        return int(max(map(field, workers), default=0))

    stats = stats_pb2.EngineStats(
        engine=f"{instance_id}/{group.dp_rank}",
        generation=engine.generation,
        requests_total=engine.requests_total,
        requests_steered_total=engine.requests_steered_total,
        requests_unsteered_total=engine.requests_unsteered_total,
        dose_decisions_total=engine.dose_decisions_total,
        requests_live=engine.requests_live,
        steered_tokens_total=min((w.steered_tokens_total for w in workers), default=0),
        rows_in_use=most(lambda w: w.rows_in_use),
        rows_capacity=most(lambda w: w.rows_capacity),
        slots_in_use=most(lambda w: w.slots_in_use),
        slots_capacity=most(lambda w: w.slots_capacity),
        fill_steps_total=most(lambda w: w.fill_steps_total),
        fill_seconds_total=max((w.fill_seconds_total for w in workers), default=0.0),
        canary_requests_total=engine.canary_requests_total,
        workers=[_worker_stats(worker) for worker in sorted(group.workers, key=lambda w: w.name)],
    )
    _most_by_reason(stats.program_errors_total, workers)
    return stats


def _worker_stats(worker: NodeLink) -> stats_pb2.WorkerStats:
    report = worker.report.worker
    return stats_pb2.WorkerStats(
        node=worker.name,
        steered_tokens_total=report.steered_tokens_total,
        program_errors_total=report.program_errors_total,
    )


def _most_by_reason(target: ScalarMap[str, int], workers: Iterable[node_pb2.WorkerReport]) -> None:
    for worker in workers:
        for reason, count in worker.program_errors_total.items():
            target[reason] = max(target[reason], count)


def rss_bytes() -> int:
    """Returns this process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
