"""The synchronous client."""

import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from hotwire_client import connection, downloads, requests
from hotwire_client.destination import Destination
from hotwired.v1 import steering_service_pb2 as api
from hotwired.v1.policy_pb2 import Policy
from hotwired.v1.stats_pb2 import Stats
from hotwired.v1.steering_service_pb2_grpc import SteeringServiceStub
from hotwired.v1.vector_pb2 import Vector

Response = TypeVar("Response")


class Client:
    """A connection to hotwired, made at the first call; it may be shared by threads.

    Every method takes `timeout`, the seconds within which the whole call has to be over, and
    raises `HotwireError`.

    Args:
        server: `unix:PATH`, an absolute path, `tls://host:port` or `host:port`; by default
            $HOTWIRE_SERVER, else the daemon's socket in the run directory. For TLS, the files are
            those that $HOTWIRE_CA, $HOTWIRE_CERT, $HOTWIRE_KEY and $HOTWIRE_TOKEN_FILE name; a
            `Destination` names its own.
        timeout: The seconds a call may take, unless it says otherwise.
        connect_timeout: The seconds to wait for a daemon that does not answer yet.
        credentials: For TLS, in place of the files.

    Raises:
        OSError: One of the files can't be read.
        ValueError: The address, a timeout or the token is malformed, or a key is missing.
    """

    def __init__(
        self,
        server: str | Destination | None = None,
        *,
        timeout: float = connection.DEFAULT_TIMEOUT,
        connect_timeout: float = connection.DEFAULT_CONNECT_TIMEOUT,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._endpoint = connection.Endpoint(server, timeout, connect_timeout)
        credentials = credentials or self._endpoint.destination.credentials()
        self._channel = (
            grpc.insecure_channel(self._endpoint.target, connection.OPTIONS)
            if credentials is None
            else grpc.secure_channel(self._endpoint.target, credentials, connection.OPTIONS)
        )
        self._stub = SteeringServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    @property
    def server(self) -> str:
        """The address in use."""
        return self._endpoint.server

    def register_vector(
        self,
        source: requests.Source,
        *,
        name: str | None = None,
        model: str = "",
        ttl: float | None = None,
        canary_percent: float | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> api.RegisterVectorResponse:
        """Registers a safetensors file, given by its path or as bytes.

        Returns once every node uses the vector, or shortly before the deadline with
        `converged` false. The name is the file's stem unless one is given; bytes need one.

        With a `ttl`, in seconds, the name expires after that. With a `canary_percent`, above 0 and
        below 100, the file becomes the canary of a name that is there: so many of the requests get
        it, the others what the name points to.

        Raises:
            OSError: The file cannot be read.
            ValueError: The source is bytes and no name is given, or the ttl is no finite time.
        """
        upload = requests.upload(
            source,
            name,
            model,
            ttl=ttl,
            canary_percent=canary_percent,
            validate_only=validate_only,
        )
        return self._call(self._stub.RegisterVector, upload.messages(), timeout)

    def update_vector(
        self,
        name: str,
        update: requests.VectorUpdate,
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> api.UpdateVectorResponse:
        """Changes a vector's flags or its canary, and returns once every node uses the change.

        Raises:
            ValueError: The ttl is not a number, or more than a duration holds.
        """
        request = update.request(name, validate_only=validate_only)
        return self._call(self._stub.UpdateVector, request, timeout)

    def get_vector(self, name: str, *, timeout: float | None = None) -> Vector:
        """Returns the vector that the name points to."""
        return self._call(self._stub.GetVector, api.GetVectorRequest(name=name), timeout).vector

    def download_vector(
        self, name: str, *, revision: str = "", timeout: float | None = None
    ) -> downloads.Download:
        """Returns a vector's bytes, checked: of the name's own revision unless one is given.

        Raises:
            AbortedError: The revision is neither the name's own nor its canary.
            DataLossError: The bytes are damaged, in the daemon's store or on their way.
        """
        deadline = self._endpoint.deadline(timeout)
        wait = self._endpoint.connect(deadline)
        request = api.DownloadVectorRequest(name=name, revision=revision)
        stream = self._stub.DownloadVector(
            request, timeout=deadline.remaining(), wait_for_ready=wait
        )
        found = downloads.Assembly()
        try:
            for message in stream:
                found.take(message)
        except grpc.RpcError as error:
            raise self._endpoint.failed(error, deadline.seconds) from error
        finally:
            stream.cancel()
        return found.whole()

    def list_vectors(self, *, timeout: float | None = None) -> list[Vector]:
        """Returns all vectors in the order of their names; the timeout is that of each page."""
        vectors: list[Vector] = []
        request = api.ListVectorsRequest(page_size=requests.LIST_PAGE_SIZE)
        while True:
            page = self._call(self._stub.ListVectors, request, timeout)
            vectors.extend(page.vectors)
            if not page.next_page_token:
                return vectors
            request.page_token = page.next_page_token

    def delete_vector(
        self, name: str, *, revision: str = "", timeout: float | None = None
    ) -> api.DeleteVectorResponse:
        """Deletes the name; if a revision is given, only while it points to that one."""
        request = api.DeleteVectorRequest(name=name, revision=revision)
        return self._call(self._stub.DeleteVector, request, timeout)

    def get_policy(self, *, timeout: float | None = None) -> api.GetPolicyResponse:
        """Returns the policy in force."""
        return self._call(self._stub.GetPolicy, api.GetPolicyRequest(), timeout)

    def set_policy(
        self,
        policy: Policy,
        *,
        fields: Sequence[str] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> api.SetPolicyResponse:
        """Sets the named fields of the policy, or all if fields is None.

        A named field that is unset in `policy` is cleared. If `policy` has an etag, the call is
        refused unless it is that of the policy in force.

        Raises:
            ValueError: The list of fields is empty.
        """
        request = requests.set_policy(policy, fields, validate_only=validate_only)
        return self._call(self._stub.SetPolicy, request, timeout)

    def set_kill_switch(
        self,
        engaged: bool,  # noqa: FBT001 - the one thing there is to say
        *,
        timeout: float | None = None,
    ) -> api.SetPolicyResponse:
        """Stops all steering, that of running requests too, or allows it again."""
        return self.set_policy(
            Policy(kill_switch=engaged), fields=("kill_switch",), timeout=timeout
        )

    def stats(self, *, timeout: float | None = None) -> Stats:
        """Returns the counters of the daemon and of every engine."""
        return self._call(self._stub.Stats, api.StatsRequest(), timeout).stats

    def watch_stats(
        self, interval: float = 1.0, *, timeout: float | None = None
    ) -> Iterator[Stats]:
        """Yields the counters every `interval` seconds (0.1 to 3600), until it is closed.

        Raises:
            DeadlineExceededError: A sample is late by more than the timeout.
        """
        deadline = self._endpoint.deadline(timeout)
        wait = self._endpoint.connect(deadline)
        patience = interval + deadline.seconds
        request = api.WatchStatsRequest(interval_seconds=interval)
        stream = self._stub.WatchStats(request, wait_for_ready=wait)
        try:
            while (sample := self._next(stream, stream.cancel, patience)) is not None:
                yield sample.stats
        finally:
            stream.cancel()

    def list_nodes(self, *, timeout: float | None = None) -> api.ListNodesResponse:
        """Returns every node the daemon knows, in the order of their names."""
        return self._call(self._stub.ListNodes, api.ListNodesRequest(), timeout)

    def get_receipts(
        self, request_id: str, *, timeout: float | None = None
    ) -> api.GetReceiptsResponse:
        """Returns what came of a request, a receipt for each of its prompts and choices.

        The id is that of the response, the X-Request-Id that was sent, or the engine's own.

        Raises:
            NotFoundError: It asked for no steering, was forgotten, or never reached an engine.
        """
        request = api.GetReceiptsRequest(request_id=request_id)
        return self._call(self._stub.GetReceipts, request, timeout)

    def health(
        self, service: str = "", *, timeout: float | None = None
    ) -> health_pb2.HealthCheckResponse:
        """Returns the health of the daemon, or of one service of it, by grpc.health.v1.

        Raises:
            NotFoundError: The daemon knows no such service.
        """
        request = health_pb2.HealthCheckRequest(service=service)
        response: health_pb2.HealthCheckResponse = self._call(self._health.Check, request, timeout)
        return response

    def close(self) -> None:
        """Closes the connection; calls under way are cancelled."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(
        self, method: Callable[..., Response], request: object, timeout: float | None
    ) -> Response:
        deadline = self._endpoint.deadline(timeout)
        wait = self._endpoint.connect(deadline)
        try:
            return method(request, timeout=deadline.remaining(), wait_for_ready=wait)
        except grpc.RpcError as error:
            raise self._endpoint.failed(error, deadline.seconds) from error

    def _next(
        self,
        samples: Iterator[api.WatchStatsResponse],
        cancel: Callable[[], object],
        seconds: float,
    ) -> api.WatchStatsResponse | None:
        # The stream as a whole has no deadline, but each sample has one.
        late = threading.Event()

        def give_up() -> None:
            late.set()
            cancel()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            return next(samples, None)
        except grpc.RpcError as error:
            if late.is_set():
                raise self._endpoint.late(seconds) from None
            raise self._endpoint.failed(error, seconds) from error
        finally:
            timer.cancel()
