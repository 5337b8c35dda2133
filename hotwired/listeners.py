"""The servers that callers reach: one on the Unix socket, one on TCP if that is asked for.

Two servers and not one with two ports, so that what a caller must show is a matter of the server it
reached, never of what gRPC says of its peer, and TCP can lack reflection.
"""

from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from hotwired import access
from hotwired.accounts import Accounts
from hotwired.config import Config
from hotwired.decoding import TRANSPORT_FACTOR, Decoding
from hotwired.errors import ListenRefused
from hotwired.library_calls import LibraryCalls
from hotwired.rpc import SERVICE
from hotwired.run_dir import check_socket, socket_umask, target_of
from hotwired.services import SteeringService
from hotwired.tls import Certificates
from hotwired.v1 import steering_service_pb2_grpc

_TCP_OPTIONS = (
    # What a caller may have under way on one connection.
    ("grpc.max_concurrent_streams", 100),
    ("grpc.server_handshake_timeout_ms", 10_000),
)


@dataclass(frozen=True, slots=True)
class Served:
    """What each server serves."""

    service: SteeringService
    checks: health.aio.HealthServicer


def on_socket(config: Config, served: Served) -> grpc.aio.Server:
    """Returns the server on the Unix socket, bound. Raises SocketInvalid or OSError."""
    server = _server(config, served, access.of_socket(), reflects=config.unix.reflection)
    with socket_umask():
        server.add_insecure_port(target_of(config.socket))
    check_socket(config.socket)
    return server


def on_tcp(
    config: Config, served: Served, certificates: Certificates
) -> tuple[grpc.aio.Server, int]:
    """Returns the server on TCP, bound, and its port.

    Raises CertificateInvalid or ListenRefused.
    """
    guard = access.of_certificates(Accounts(config))
    server = _server(config, served, guard, _TCP_OPTIONS, reflects=config.tcp.reflection)
    credentials = certificates.credentials()
    try:
        return server, server.add_secure_port(config.tcp.listen, credentials)
    except RuntimeError as exc:
        raise ListenRefused(
            f"tcp.listen: can't listen on {config.tcp.listen}",
            metadata={"address": config.tcp.listen},
        ) from exc


def _server(
    config: Config,
    served: Served,
    guard: access.Access,
    options: tuple[tuple[str, int], ...] = (),
    *,
    reflects: bool,
) -> grpc.aio.Server:
    limit = config.limits.max_message_bytes
    server = grpc.aio.server(
        interceptors=(guard, Decoding(SERVICE, limit), LibraryCalls(SERVICE, limit)),
        options=(
            ("grpc.max_receive_message_length", TRANSPORT_FACTOR * limit),
            ("grpc.so_reuseport", 0),
            *options,
        ),
    )
    steering_service_pb2_grpc.add_SteeringServiceServicer_to_server(served.service, server)
    health_pb2_grpc.add_HealthServicer_to_server(served.checks, server)
    if reflects:
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    return server
