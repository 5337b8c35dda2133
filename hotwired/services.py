"""The methods of hotwired.v1.SteeringService: translate, call, translate."""

# ruff: noqa: N802, ARG002 -- the methods are named and called as gRPC has it

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from hotwired import download, names, receipts
from hotwired.accounts import current
from hotwired.config import Limits
from hotwired.errors import HotwireError, IntervalInvalid, PageInvalid, ShuttingDown
from hotwired.fleet import Fleet
from hotwired.metrics.counted import push
from hotwired.mutations import Mutations, Registered, Result
from hotwired.node_link import NodeLink
from hotwired.plan import Outcome
from hotwired.policy import timestamp
from hotwired.rpc import Context, caller, note, streaming, unary
from hotwired.stats import StatsCollector
from hotwired.store import Store
from hotwired.upload import Upload, Uploads, invalid
from hotwired.v1 import node_pb2 as public_pb2
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1 import steering_service_pb2_grpc, vector_pb2

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000
# A page stays well below the 4 MiB that a client takes unless told otherwise.
_PAGE_BYTES = 2 << 20
_TOKEN_HEAD = "1:"  # noqa: S105 -- the format of a page token


class SteeringService(steering_service_pb2_grpc.SteeringServiceServicer):
    """The public service."""

    def __init__(self, fleet: Fleet, store: Store, mutations: Mutations, limits: Limits) -> None:
        self._stopping = asyncio.Event()
        self._fleet = fleet
        self._store = store
        self._mutations = mutations
        self._limits = limits
        self._uploads = Uploads(limits)
        self.stats = StatsCollector(fleet, store, mutations.reconciler)

    def stop(self) -> None:
        """Ends watches and uploads, and lets no caller wait for nodes any more."""
        self._stopping.set()
        self._uploads.abort()
        self._mutations.stop()

    @unary
    async def RegisterVector(
        self, request_iterator: AsyncIterator[pb.RegisterVectorRequest], context: Context
    ) -> pb.RegisterVectorResponse:
        who = caller(context, self._limits.default_deadline_seconds)
        with push() as under_way:
            upload = await self._uploads.receive(request_iterator, current().take_upload)
            note(vector=upload.vector.name)
            done = await self._mutations.register(upload, who)
            under_way.outcome = _push_outcome(upload, done)
        note(generation=done.result.generation)
        return pb.RegisterVectorResponse(
            vector=done.vector, unchanged=done.unchanged, **_result_fields(done.result)
        )

    @unary
    async def GetVector(
        self, request: pb.GetVectorRequest, context: Context
    ) -> pb.GetVectorResponse:
        entries = self._store.desired.entries
        if request.name not in entries:
            raise names.not_found(request.name, entries)
        note(vector=request.name)
        return pb.GetVectorResponse(vector=entries[request.name].vector)

    @streaming
    async def DownloadVector(
        self, request: pb.DownloadVectorRequest, context: Context
    ) -> AsyncIterator[pb.DownloadVectorResponse]:
        note(vector=request.name)
        limit = self._limits.max_chunk_bytes
        async with aclosing(download.messages(self._store, request, limit)) as messages:
            async for message in messages:
                yield message

    @unary
    async def ListVectors(
        self, request: pb.ListVectorsRequest, context: Context
    ) -> pb.ListVectorsResponse:
        if request.page_size < 0:
            raise invalid(PageInvalid, "page_size", "Must not be negative.")
        size = min(request.page_size or DEFAULT_PAGE, LARGEST_PAGE)
        after = _after(request.page_token)
        entries = self._store.desired.entries
        rest = [entries[name].vector for name in sorted(entries) if name > after]
        page = _cut(rest, size)
        return pb.ListVectorsResponse(
            vectors=page,
            next_page_token=_token(page[-1].name) if len(page) < len(rest) else "",
            total_size=len(entries),
        )

    @unary
    async def UpdateVector(
        self, request: pb.UpdateVectorRequest, context: Context
    ) -> pb.UpdateVectorResponse:
        who = caller(context, self._limits.default_deadline_seconds)
        done = await self._mutations.update(request, who)
        note(vector=done.vector.name, generation=done.result.generation)
        return pb.UpdateVectorResponse(
            vector=done.vector, unchanged=done.unchanged, **_result_fields(done.result)
        )

    @unary
    async def DeleteVector(
        self, request: pb.DeleteVectorRequest, context: Context
    ) -> pb.DeleteVectorResponse:
        who = caller(context, self._limits.default_deadline_seconds)
        vector, result = await self._mutations.delete(request, who)
        note(vector=vector.name, generation=result.generation)
        return pb.DeleteVectorResponse(vector=vector, **_result_fields(result))

    @unary
    async def GetPolicy(
        self, request: pb.GetPolicyRequest, context: Context
    ) -> pb.GetPolicyResponse:
        desired = self._store.desired
        return pb.GetPolicyResponse(policy=desired.policy, generation=desired.generation)

    @unary
    async def SetPolicy(
        self, request: pb.SetPolicyRequest, context: Context
    ) -> pb.SetPolicyResponse:
        who = caller(context, self._limits.default_deadline_seconds)
        policy, result = await self._mutations.set_policy(request, who)
        note(generation=result.generation)
        return pb.SetPolicyResponse(policy=policy, **_result_fields(result))

    @unary
    async def Stats(self, request: pb.StatsRequest, context: Context) -> pb.StatsResponse:
        return pb.StatsResponse(stats=await self.stats.sample())

    @streaming
    async def WatchStats(
        self, request: pb.WatchStatsRequest, context: Context
    ) -> AsyncIterator[pb.WatchStatsResponse]:
        seconds = request.interval_seconds or 1.0
        if not 0.1 <= seconds <= 3600:
            raise invalid(IntervalInvalid, "interval_seconds", "Must be 0.1 to 3600, or 0 for 1.")
        while not self._stopping.is_set():
            yield pb.WatchStatsResponse(stats=await self.stats.sample())
            try:
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()
            except TimeoutError:
                continue
        raise ShuttingDown("the daemon is stopping")

    @unary
    async def GetReceipts(
        self, request: pb.GetReceiptsRequest, context: Context
    ) -> pb.GetReceiptsResponse:
        return await receipts.find(self._fleet, request.request_id)

    @unary
    async def ListNodes(
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        nodes = [_node(link, outcome) for link, outcome in self._mutations.reconciler.outcomes()]
        return pb.ListNodesResponse(nodes=nodes, generation=self._store.desired.generation)


def _push_outcome(upload: Upload, done: Registered) -> str:
    if upload.validate_only:
        return "validated"
    if not done.result.converged:
        return "pending"
    return "unchanged" if done.unchanged else "converged"


def _result_fields(result: Result) -> dict[str, Any]:
    nodes = [
        public_pb2.NodeOutcome(node=link.name, state=outcome.state, detail=outcome.detail)
        for link, outcome in result.nodes
    ]
    return {"generation": result.generation, "converged": result.converged, "nodes": nodes}


def _node(link: NodeLink, outcome: Outcome) -> public_pb2.Node:
    node = public_pb2.Node(
        name=link.name,
        state=outcome.state,
        detail=outcome.detail,
        revisions_held=len(link.held),
    )
    if (found := link.described) is not None:
        node.last_seen_time.CopyFrom(timestamp(link.last_seen))
        node.roles.extend(found.roles)
        node.sites.extend(found.sites)
        for name in _COPIED:
            setattr(node, name, getattr(found, name))
    return node


_COPIED = (
    "instance_id",
    "dp_rank",
    "pp_rank",
    "tp_rank",
    "generation",
    "boot_id",
    "pid",
    "model",
    "hidden_size",
    "num_layers",
    "dtype",
    "vllm_version",
    "plugin_version",
)


def _cut(vectors: list[vector_pb2.Vector], size: int) -> list[vector_pb2.Vector]:
    """Returns the first of the vectors: at most `size`, and as many as a page's bytes hold."""
    page: list[vector_pb2.Vector] = []
    room = _PAGE_BYTES
    for vector in vectors[:size]:
        room -= vector.ByteSize()
        if room < 0 and page:
            break
        page.append(vector)
    return page


def _token(name: str) -> str:
    return base64.urlsafe_b64encode((_TOKEN_HEAD + name).encode()).decode()


def _after(token: str) -> str:
    """Returns the name that a page token says to go on after; the empty name if none is given."""
    if not token:
        return ""
    try:
        text = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise _bad_token() from None
    name = text.removeprefix(_TOKEN_HEAD)
    if name == text or not names.is_valid(name):
        raise _bad_token()
    return name


def _bad_token() -> HotwireError:
    return invalid(PageInvalid, "page_token", "Is not a next_page_token of this daemon.")
