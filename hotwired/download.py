"""Sends a vector's bytes: a header and then chunks."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from hotwired import names, vectors
from hotwired.store import Store
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1 import vector_pb2


async def messages(
    store: Store, request: pb.DownloadVectorRequest, chunk_bytes: int
) -> AsyncGenerator[pb.DownloadVectorResponse, None]:
    """Yields the messages that answer a request.

    Raises VectorNotFound, RevisionMismatch, BlobCorrupt or StoreUnavailable, before the first one.
    """
    entries = store.desired.entries
    if request.name not in entries:
        raise names.not_found(request.name, entries)
    header = _header(entries[request.name].vector, request.revision)
    async with aclosing(store.blob_chunks(header.sha256, chunk_bytes)) as chunks:
        # The first chunk says that the blob is whole; only then is anything promised.
        first = await anext(chunks)
        yield pb.DownloadVectorResponse(header=header)
        yield pb.DownloadVectorResponse(chunk=first)
        async for chunk in chunks:
            yield pb.DownloadVectorResponse(chunk=chunk)


def _header(vector: vector_pb2.Vector, revision: str) -> pb.DownloadVectorHeader:
    sizes = {vector.revision: vector.size_bytes}
    if vector.HasField("canary"):
        sizes[vector.canary.revision] = vector.canary.size_bytes
    wanted = revision or vector.revision
    if wanted not in sizes:
        raise vectors.mismatch(vector.name, revision, vector.revision)
    return pb.DownloadVectorHeader(vector=vector, sha256=wanted, size_bytes=sizes[wanted])
