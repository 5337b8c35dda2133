"""The daemon as a whole: claims its places, serves, and stops in good order."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable

import grpc
from grpc_health.v1 import health, health_pb2  # type: ignore[import-untyped]

from hotwired import __version__, listeners, log
from hotwired.config import Config
from hotwired.fleet import Fleet
from hotwired.listeners import Served
from hotwired.locks import claimed
from hotwired.log import get
from hotwired.metrics.exposition import Exposition, served
from hotwired.mutations import Mutations
from hotwired.reconcile import Reconciler
from hotwired.rpc import SERVICE
from hotwired.services import SteeringService
from hotwired.store import Store
from hotwired.systemd import Notifier
from hotwired.tls import Certificates
from hotwired.v1 import node_pb2 as public_pb2

NODES_SERVICE = "hotwired.nodes"
"""The health of the fleet: SERVING if there is a node and none is away, disarmed or refusing."""

GRACE_SECONDS = 5.0
STUCK_SECONDS = 10.0
"""How long every round of the reconcile loop may fail before the daemon says it isn't well."""

_BAD_STATES = (
    public_pb2.NODE_STATE_UNREACHABLE,
    public_pb2.NODE_STATE_DISARMED,
    public_pb2.NODE_STATE_REJECTED,
)
_hangup_calls: list[Callable[[], None]] = []
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def serve(config: Config) -> None:
    """Runs the daemon until SIGTERM or SIGINT.

    Raises a StartRefused, StoreCorrupt, StoreUnavailable or OSError if it can't start.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _on_hangup(log.reopen)
    with claimed(config):
        store = Store(config.state_dir)
        store.open()
        try:
            async with (
                _running(config, store) as exposition,
                served(exposition, config.metrics.listen),
            ):
                await stop.wait()
        finally:
            store.close()
            config.socket.unlink(missing_ok=True)
    get().info("stopped")


@contextlib.asynccontextmanager
async def _running(config: Config, store: Store) -> AsyncIterator[Exposition]:
    fleet = Fleet(config.run_dir)
    mutations = Mutations(fleet, store)
    service = SteeringService(fleet, store, mutations, config.limits)
    checks = health.aio.HealthServicer()
    servers, bound = _servers(config, Served(service, checks))
    notifier = Notifier()
    tasks = [asyncio.create_task(mutations.reconciler.run(notifier.alive))]
    for server in servers:
        await server.start()
    for name in ("", SERVICE):
        await checks.set(name, _SERVING)
    notifier.ready()
    tasks.append(
        asyncio.create_task(_watch_nodes(fleet, store, mutations.reconciler, checks, notifier))
    )
    get().info(
        "serving",
        version=__version__,
        socket=str(config.socket),
        tcp=bound,
        state_dir=str(config.state_dir),
        run_dir=str(config.run_dir),
        generation=store.desired.generation,
        vectors=len(store.desired.entries),
    )
    try:
        yield Exposition(service.stats, store, mutations.reconciler)
    finally:
        get().info("stopping")
        notifier.stopping()
        await checks.enter_graceful_shutdown()
        service.stop()
        await asyncio.gather(*(server.stop(GRACE_SECONDS) for server in servers))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await fleet.close()


def _servers(config: Config, served: Served) -> tuple[list[grpc.aio.Server], str]:
    """Returns the servers, bound, and the address that TCP is served at, empty if it is not."""
    servers = [listeners.on_socket(config, served)]
    if not config.tcp.listen:
        return servers, ""
    certificates = Certificates(config.tcp)
    tcp, port = listeners.on_tcp(config, served, certificates)
    # Files that have changed are seen anyway; the signal reads them also if they seem not to have.
    _on_hangup(certificates.look_again)
    host = config.tcp.listen.rpartition(":")[0]
    return [*servers, tcp], f"{host}:{port}"


def _on_hangup(call: Callable[[], None]) -> None:
    """Has SIGHUP make a call, besides those that it makes already."""
    _hangup_calls.append(call)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: [each() for each in _hangup_calls])


async def _watch_nodes(
    fleet: Fleet,
    store: Store,
    reconciler: Reconciler,
    checks: health.aio.HealthServicer,
    notifier: Notifier,
) -> None:
    """Keeps the health of daemon and fleet current, and the line that the service manager shows."""
    said: dict[str, bool] = {}
    while True:
        states = [outcome.state for _, outcome in reconciler.outcomes()]
        good = bool(states) and not any(state in _BAD_STATES for state in states)
        well = time.monotonic() - reconciler.last_round < STUCK_SECONDS
        for name, state in {"": well, SERVICE: well, NODES_SERVICE: good}.items():
            if said.get(name) is not state:
                await checks.set(name, _SERVING if state else _NOT_SERVING)
                said[name] = state
        notifier.status(_summary(store, states))
        await fleet.changed.wait(1.0)
        # A push fires many times; health can be a moment late.
        await asyncio.sleep(0.1)


def _summary(store: Store, states: list[public_pb2.NodeState]) -> str:
    desired = store.desired
    there = states.count(public_pb2.NODE_STATE_CONVERGED)
    return (
        f"generation {desired.generation}, {len(desired.entries)} vectors, "
        f"{there} of {len(states)} nodes converged"
    )
