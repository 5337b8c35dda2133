"""What both clients do about the connection: channel options, deadlines, and failures of it."""

import json
import time
from typing import Final

import grpc

from hotwire_client import address, errors, requests
from hotwire_client.destination import Destination

DEFAULT_TIMEOUT = 10.0

#: How long the first call waits for a daemon that is starting.
DEFAULT_CONNECT_TIMEOUT = 2.0

# Between two looks for a daemon that is starting, in seconds.
_PAUSE = 0.05

_SERVICE = "hotwired.v1.SteeringService"
_READS = ("GetVector", "ListVectors", "GetPolicy", "Stats", "ListNodes", "GetReceipts")

# Only what changes nothing is sent again by itself, and only if the daemon could not be reached.
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": _SERVICE, "method": method} for method in _READS],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}

OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A failed attempt of one client must not make the next one wait.
    ("grpc.use_local_subchannel_pool", 1),
    # A web proxy is of no use to a control plane, least of all to one on the same host.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)


class Deadline:
    """The moment by which one call, connecting included, has to be over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Returns the seconds left, a millisecond at least."""
        return max(self._end - time.monotonic(), 0.001)


class Endpoint:
    """A daemon's address and the patience to have with it."""

    def __init__(
        self, server: str | Destination | None, timeout: float, connect_timeout: float
    ) -> None:
        self.destination = (
            server if isinstance(server, Destination) else Destination.from_environment(server)
        )
        self.server = self.destination.server
        self.target = address.target_of(self.server)
        self.timeout = requests.checked_seconds(timeout, "timeout")
        self.connect_timeout = requests.checked_seconds(connect_timeout, "connect_timeout")
        self.connected = False

    def deadline(self, timeout: float | None) -> Deadline:
        """Starts the clock of one call."""
        return Deadline(
            self.timeout if timeout is None else requests.checked_seconds(timeout, "timeout")
        )

    def connect(self, deadline: Deadline) -> bool:
        """Waits until something listens at the address; it blocks, for `connect_timeout` at most.

        Returns whether the call that follows should wait for the channel, which may have given up
        on the address for a moment.

        Raises:
            PermissionDeniedError: A stranger owns the directory of the default socket.
            UnavailableError: Nothing listens in time.
        """
        if self.connected:
            return False
        self._check_trusted()
        end = time.monotonic() + min(deadline.remaining(), self.connect_timeout)
        while (error := self._try(end - time.monotonic())) is not None:
            if isinstance(error, PermissionError) or time.monotonic() + _PAUSE >= end:
                raise self.unreachable(error) from error
            time.sleep(_PAUSE)
        self.connected = True
        # A failed handshake must be told of, and a call that waits would be late instead.
        return not self.destination.is_tls

    def _try(self, seconds: float) -> OSError | None:
        try:
            address.try_to_connect(self.server, max(seconds, 0.001))
        except OSError as error:
            return error
        return None

    def _check_trusted(self) -> None:
        if (owner := address.foreign_owner(self.server)) is not None:
            raise errors.make(
                grpc.StatusCode.PERMISSION_DENIED,
                "SOCKET_NOT_TRUSTED",
                f"the directory of {self.server} belongs to another user, uid {owner}",
                {"server": self.server, "uid": str(owner)},
            )

    def unreachable(self, error: OSError | None = None) -> errors.HotwireError:
        """Returns the error for a daemon that does not answer."""
        return errors.make(
            grpc.StatusCode.UNAVAILABLE,
            "DAEMON_UNREACHABLE",
            address.why_unreachable(self.server, error),
            {"server": self.server},
        )

    def _not_secured(self, error: errors.HotwireError) -> errors.HotwireError:
        # What connects and is then unavailable has most often refused one of the certificates.
        return errors.make(
            grpc.StatusCode.UNAVAILABLE,
            "TLS_FAILED",
            f"something listens at {self.server}, but the TLS connection failed: {error.message}",
            {"server": self.server},
        )

    def late(self, seconds: float) -> errors.HotwireError:
        """Returns the error for an answer that did not come in time."""
        return errors.make(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "DEADLINE_EXCEEDED",
            f"the daemon at {self.server} did not answer within {seconds:g} s",
            {"server": self.server, "timeout": f"{seconds:g}"},
        )

    def failed(self, error: grpc.RpcError, seconds: float) -> errors.HotwireError:
        """Returns the error for a failed call, in plain words where gRPC itself made it."""
        mine = errors.from_rpc_error(error)
        if mine.code is grpc.StatusCode.UNAVAILABLE:
            self.connected = False
        if mine.reason == "UNAVAILABLE":
            return self._not_secured(mine) if self.destination.is_tls else self.unreachable()
        return self.late(seconds) if mine.reason == "DEADLINE_EXCEEDED" else mine
