"""The asyncio client."""

# ruff: noqa: ASYNC109 - the timeout is no local one: it travels to the daemon as the deadline

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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


class AsyncClient:
    """A connection to hotwired for one event loop: `Client`, with every method awaited.

    It is to be made where the loop runs. The arguments and errors are those of `Client`.
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
            grpc.aio.insecure_channel(self._endpoint.target, connection.OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(self._endpoint.target, credentials, connection.OPTIONS)
        )
        self._stub = SteeringServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    @property
    def server(self) -> str:
        """The address in use."""
        return self._endpoint.server

    async def register_vector(
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
        """Registers a safetensors file, given by its path or as bytes; see `Client`."""
        upload = await asyncio.to_thread(
            requests.upload,
            source,
            name,
            model,
            ttl=ttl,
            canary_percent=canary_percent,
            validate_only=validate_only,
        )
        return await self._call(self._stub.RegisterVector, upload.messages(), timeout)

    async def update_vector(
        self,
        name: str,
        update: requests.VectorUpdate,
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> api.UpdateVectorResponse:
        """Changes a vector's flags or its canary; see `Client`."""
        request = update.request(name, validate_only=validate_only)
        return await self._call(self._stub.UpdateVector, request, timeout)

    async def get_vector(self, name: str, *, timeout: float | None = None) -> Vector:
        """Returns the vector that the name points to."""
        request = api.GetVectorRequest(name=name)
        return (await self._call(self._stub.GetVector, request, timeout)).vector

    async def download_vector(
        self, name: str, *, revision: str = "", timeout: float | None = None
    ) -> downloads.Download:
        """Returns a vector's bytes, checked; see `Client`."""
        deadline = self._endpoint.deadline(timeout)
        wait = await self._connect(deadline)
        request = api.DownloadVectorRequest(name=name, revision=revision)
        stream = self._stub.DownloadVector(
            request, timeout=deadline.remaining(), wait_for_ready=wait
        )
        found = downloads.Assembly()
        try:
            async for message in stream:
                found.take(message)
        except grpc.RpcError as error:
            raise self._endpoint.failed(error, deadline.seconds) from error
        finally:
            stream.cancel()
        return found.whole()

    async def list_vectors(self, *, timeout: float | None = None) -> list[Vector]:
        """Returns all vectors in the order of their names; the timeout is that of each page."""
        vectors: list[Vector] = []
        request = api.ListVectorsRequest(page_size=requests.LIST_PAGE_SIZE)
        while True:
            page = await self._call(self._stub.ListVectors, request, timeout)
            vectors.extend(page.vectors)
            if not page.next_page_token:
                return vectors
            request.page_token = page.next_page_token

    async def delete_vector(
        self, name: str, *, revision: str = "", timeout: float | None = None
    ) -> api.DeleteVectorResponse:
        """Deletes the name; if a revision is given, only while it points to that one."""
        request = api.DeleteVectorRequest(name=name, revision=revision)
        return await self._call(self._stub.DeleteVector, request, timeout)

    async def get_policy(self, *, timeout: float | None = None) -> api.GetPolicyResponse:
        """Returns the policy in force."""
        return await self._call(self._stub.GetPolicy, api.GetPolicyRequest(), timeout)

    async def set_policy(
        self,
        policy: Policy,
        *,
        fields: Sequence[str] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> api.SetPolicyResponse:
        """Sets the named fields of the policy, or all if fields is None; see `Client`."""
        request = requests.set_policy(policy, fields, validate_only=validate_only)
        return await self._call(self._stub.SetPolicy, request, timeout)

    async def set_kill_switch(
        self,
        engaged: bool,  # noqa: FBT001 - the one thing there is to say
        *,
        timeout: float | None = None,
    ) -> api.SetPolicyResponse:
        """Stops all steering, that of running requests too, or allows it again."""
        return await self.set_policy(
            Policy(kill_switch=engaged), fields=("kill_switch",), timeout=timeout
        )

    async def stats(self, *, timeout: float | None = None) -> Stats:
        """Returns the counters of the daemon and of every engine."""
        return (await self._call(self._stub.Stats, api.StatsRequest(), timeout)).stats

    async def watch_stats(
        self, interval: float = 1.0, *, timeout: float | None = None
    ) -> AsyncIterator[Stats]:
        """Yields the counters every `interval` seconds (0.1 to 3600), until it is closed.

        Raises:
            DeadlineExceededError: A sample is late by more than the timeout.
        """
        deadline = self._endpoint.deadline(timeout)
        wait = await self._connect(deadline)
        request = api.WatchStatsRequest(interval_seconds=interval)
        stream = self._stub.WatchStats(request, wait_for_ready=wait)
        samples = aiter(stream)
        try:
            while (sample := await self._next(samples, interval + deadline.seconds)) is not None:
                yield sample.stats
        finally:
            stream.cancel()

    async def list_nodes(self, *, timeout: float | None = None) -> api.ListNodesResponse:
        """Returns every node the daemon knows, in the order of their names."""
        return await self._call(self._stub.ListNodes, api.ListNodesRequest(), timeout)

    async def get_receipts(
        self, request_id: str, *, timeout: float | None = None
    ) -> api.GetReceiptsResponse:
        """Returns what came of a request; see `Client`."""
        request = api.GetReceiptsRequest(request_id=request_id)
        return await self._call(self._stub.GetReceipts, request, timeout)

    async def health(
        self, service: str = "", *, timeout: float | None = None
    ) -> health_pb2.HealthCheckResponse:
        """Returns the health of the daemon, or of one service of it, by grpc.health.v1."""
        request = health_pb2.HealthCheckRequest(service=service)
        response: health_pb2.HealthCheckResponse = await self._call(
            self._health.Check, request, timeout
        )
        return response

    async def close(self) -> None:
        """Closes the connection; calls under way are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(
        self, method: Callable[..., Awaitable[Response]], request: object, timeout: float | None
    ) -> Response:
        deadline = self._endpoint.deadline(timeout)
        wait = await self._connect(deadline)
        try:
            return await method(request, timeout=deadline.remaining(), wait_for_ready=wait)
        except grpc.RpcError as error:
            raise self._endpoint.failed(error, deadline.seconds) from error

    async def _connect(self, deadline: connection.Deadline) -> bool:
        if self._endpoint.connected:
            return False
        return await asyncio.to_thread(self._endpoint.connect, deadline)

    async def _next(
        self, samples: AsyncIterator[api.WatchStatsResponse], seconds: float
    ) -> api.WatchStatsResponse | None:
        # The stream as a whole has no deadline, but each sample has one.
        try:
            return await asyncio.wait_for(anext(samples, None), seconds)
        except TimeoutError:
            raise self._endpoint.late(seconds) from None
        except grpc.RpcError as error:
            raise self._endpoint.failed(error, seconds) from error
