"""The daemon as a whole: claims its places, serves, and stops in good order."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from hotwired import __version__, log
from hotwired.config import Config
from hotwired.decoding import Decoding
from hotwired.fleet import Fleet
from hotwired.library_calls import LibraryCalls
from hotwired.locks import claimed
from hotwired.log import get
from hotwired.metrics.exposition import Exposition, served
from hotwired.mutations import Mutations
from hotwired.reconcile import Reconciler
from hotwired.rpc import SERVICE
from hotwired.run_dir import check_socket_mode, private_umask, target_of
from hotwired.services import SteeringService
from hotwired.store import Store
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.v1 import steering_service_pb2_grpc

NODES_SERVICE = "hotwired.nodes"
"""The health of the fleet: SERVING if there is a node and none is away, disarmed or refusing."""

GRACE_SECONDS = 5.0

_BAD_STATES = (
    public_pb2.NODE_STATE_UNREACHABLE,
    public_pb2.NODE_STATE_DISARMED,
    public_pb2.NODE_STATE_REJECTED,
)
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def serve(config: Config) -> None:
    """Runs the daemon until SIGTERM or SIGINT.

    Raises DaemonLocked, StoreCorrupt, StoreTooNew, StoreUnavailable, SocketInvalid, SocketInUse,
    DirectoryUnsafe or OSError if it can't start.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if config.log_file is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, log.reopen)
    with claimed(config):
        store = Store(config.state_dir)
        store.open()
        try:
            async with (
                _running(config, store) as exposition,
                served(exposition, config.metrics_listen),
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
    server = _server(config, service, checks)
    tasks = [asyncio.create_task(mutations.reconciler.run())]
    await server.start()
    for name in ("", SERVICE):
        await checks.set(name, _SERVING)
    tasks.append(asyncio.create_task(_watch_nodes(fleet, mutations.reconciler, checks)))
    get().info(
        "serving",
        version=__version__,
        socket=str(config.socket),
        state_dir=str(config.state_dir),
        run_dir=str(config.run_dir),
        generation=store.desired.generation,
        vectors=len(store.desired.entries),
    )
    try:
        yield Exposition(service.stats, store, mutations.reconciler)
    finally:
        get().info("stopping")
        await checks.enter_graceful_shutdown()
        service.stop()
        await server.stop(GRACE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await fleet.close()


def _server(
    config: Config, service: SteeringService, checks: health.aio.HealthServicer
) -> grpc.aio.Server:
    server = grpc.aio.server(
        interceptors=(Decoding(SERVICE), LibraryCalls(SERVICE)),
        options=(
            ("grpc.max_receive_message_length", config.limits.max_message_bytes),
            ("grpc.so_reuseport", 0),
        ),
    )
    steering_service_pb2_grpc.add_SteeringServiceServicer_to_server(service, server)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    with private_umask():
        server.add_insecure_port(target_of(config.socket))
    check_socket_mode(config.socket)
    return server


async def _watch_nodes(
    fleet: Fleet, reconciler: Reconciler, checks: health.aio.HealthServicer
) -> None:
    """Keeps the health of the fleet current."""
    before = None
    while True:
        states = [outcome.state for _, outcome in reconciler.outcomes()]
        good = bool(states) and not any(state in _BAD_STATES for state in states)
        if good is not before:
            await checks.set(NODES_SERVICE, _SERVING if good else _NOT_SERVING)
            before = good
        await fleet.changed.wait(1.0)
        # A push fires many times; health can be a moment late.
        await asyncio.sleep(0.1)
