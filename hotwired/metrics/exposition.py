"""The daemon's own registry of metrics, rendered for who scrapes it, and served."""

import contextlib
from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from hotwired.log import get
from hotwired.metrics import counted
from hotwired.metrics.endpoint import Endpoint
from hotwired.metrics.listen import parsed
from hotwired.metrics.state import State
from hotwired.reconcile import Reconciler
from hotwired.stats import StatsCollector
from hotwired.store import Store


class Exposition:
    """Renders what is counted, what is known, and the process itself."""

    def __init__(self, stats: StatsCollector, store: Store, reconciler: Reconciler) -> None:
        self._stats = stats
        self._state = State(reconciler.outcomes, lambda: len(store.unreadable))
        self.registry = CollectorRegistry()
        for metric in counted.ALL:
            self.registry.register(metric)
        self.registry.register(self._state)
        ProcessCollector(registry=self.registry)

    async def render(self, accept: str) -> tuple[bytes, str]:
        """Returns all metrics, with fresh reports of the nodes that answer, and their type."""
        self._state.stats = await self._stats.sample()
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


@contextlib.asynccontextmanager
async def served(exposition: Exposition, listen: str) -> AsyncIterator[None]:
    """Serves metrics while it is entered, if `listen` says where. Raises as Endpoint.start."""
    if not listen:
        yield
        return
    endpoint = Endpoint(exposition.render)
    address = await endpoint.start(parsed(listen))
    get().info("metrics served", address=str(address))
    try:
        yield
    finally:
        await endpoint.close()
        if address.path is not None:
            address.path.unlink(missing_ok=True)
