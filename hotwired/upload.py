"""Receives a vector: a header and then chunks, within limits, or an error and nothing kept."""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from google.protobuf import timestamp_pb2

from hotwired import expiry, names
from hotwired.config import Limits
from hotwired.decoding import checked
from hotwired.errors import (
    CanaryInvalid,
    DigestMismatch,
    HotwireError,
    InvalidInput,
    ShuttingDown,
    SizeMismatch,
    UploadInvalid,
    UploadsBusy,
    UploadStalled,
    VectorTooLarge,
)
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1 import vector_pb2
from hotwired.vector_file import VectorData, canonical_bytes, parse_upload, revision_of

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MODEL_LIMIT = 512
# Above this, checking takes long enough to be taken off the event loop.
_INLINE_BYTES = 1 << 20
_CANCELLED_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Upload:
    """A vector as uploaded and checked, without times and a generation.

    data: its rows. canonical: its bytes, whose sha256 is vector.revision. expire_time: when the
    name is to expire, None if that is not said. canary_percent: its share of requests if it is to
    be the canary, else None.
    """

    vector: vector_pb2.Vector
    data: VectorData
    canonical: bytes
    validate_only: bool
    expire_time: timestamp_pb2.Timestamp | None = None
    canary_percent: float | None = None


class Uploads:
    """Receives uploads, of which many may be under way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way = 0
        self._receiving: set[asyncio.Task[object]] = set()
        self._aborted = False

    def abort(self) -> None:
        """Ends all uploads, also those to come, with ShuttingDown."""
        self._aborted = True
        for task in self._receiving:
            task.cancel()

    async def receive(
        self, messages: AsyncIterator[pb.RegisterVectorRequest], take: Callable[[int], None]
    ) -> Upload:
        """Returns what a stream uploads.

        take: gets the declared bytes before they come, and may refuse them. Raises NameInvalid,
        UploadInvalid, UploadStalled, UploadsBusy, VectorTooLarge, SizeMismatch, DigestMismatch or
        ShuttingDown, or as `take` or parse_upload.
        """
        with self._abortable():
            try:
                async with asyncio.timeout(self._limits.upload_seconds):
                    return await self._receive(messages, take)
            except TimeoutError:
                seconds = f"{self._limits.upload_seconds:g}"
                raise UploadStalled(f"the upload took longer than {seconds} s") from None

    async def _receive(
        self, messages: AsyncIterator[pb.RegisterVectorRequest], take: Callable[[int], None]
    ) -> Upload:
        header = await self._header(messages)
        take(header.size_bytes)
        with self._counted(header.size_bytes):
            data = await self._body(messages, header)
            if len(data) <= _INLINE_BYTES:
                return _checked(header, data)
            return await asyncio.to_thread(_checked, header, data)

    @contextmanager
    def _abortable(self) -> Iterator[None]:
        task = asyncio.current_task()
        if task is None or self._aborted:
            raise ShuttingDown("the daemon is stopping")
        self._receiving.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._aborted:
                raise
            task.uncancel()
            raise ShuttingDown("the daemon is stopping") from None
        finally:
            self._receiving.discard(task)

    async def _header(
        self, messages: AsyncIterator[pb.RegisterVectorRequest]
    ) -> pb.RegisterVectorHeader:
        first = await self._next(messages)
        if first is None or first.WhichOneof("payload") != "header":
            raise invalid(UploadInvalid, "header", "The first message must be the header.")
        header = first.header
        names.check(header.name, "header.name")
        if not _SHA256.fullmatch(header.sha256):
            raise invalid(UploadInvalid, "header.sha256", "Must be 64 lower-case hex digits.")
        if header.size_bytes == 0:
            raise invalid(UploadInvalid, "header.size_bytes", "Must be above 0.")
        if len(header.model) > _MODEL_LIMIT:
            raise invalid(UploadInvalid, "header.model", f"At most {_MODEL_LIMIT} characters.")
        expiry.asked(header, time.time(), "header.")
        if header.HasField("canary_percent"):
            check_percent(header.canary_percent, "header.canary_percent")
        if header.size_bytes > self._limits.max_vector_bytes:
            raise VectorTooLarge(
                f"the file has {header.size_bytes} bytes; "
                f"the limit is {self._limits.max_vector_bytes}",
                metadata={
                    "bytes": str(header.size_bytes),
                    "limit": str(self._limits.max_vector_bytes),
                },
                violations=(("header.size_bytes", f"At most {self._limits.max_vector_bytes}."),),
            )
        return header

    async def _body(
        self, messages: AsyncIterator[pb.RegisterVectorRequest], header: pb.RegisterVectorHeader
    ) -> bytearray:
        body = bytearray()
        while (message := await self._next(messages)) is not None:
            if message.WhichOneof("payload") != "chunk":
                raise invalid(UploadInvalid, "chunk", "Every message after the first is a chunk.")
            if not 0 < len(message.chunk) <= self._limits.max_chunk_bytes:
                limit = self._limits.max_chunk_bytes
                raise invalid(
                    UploadInvalid, "chunk", f"{len(message.chunk)} bytes; wanted 1 to {limit}."
                )
            body += message.chunk
            if len(body) > header.size_bytes:
                raise _wrong_size(header.size_bytes, len(body), "or more bytes came")
        if len(body) < header.size_bytes:
            # A stream also ends when its caller goes away, of which we hear a moment later.
            await asyncio.sleep(_CANCELLED_SECONDS)
            raise _wrong_size(header.size_bytes, len(body), "bytes came")
        return body

    async def _next(
        self, messages: AsyncIterator[pb.RegisterVectorRequest]
    ) -> pb.RegisterVectorRequest | None:
        try:
            async with asyncio.timeout(self._limits.stall_seconds):
                return checked(await anext(messages, None))  # type: ignore[no-any-return]
        except TimeoutError:
            seconds = f"{self._limits.stall_seconds:g}"
            raise UploadStalled(
                f"no message came for {seconds} s", metadata={"seconds": seconds}
            ) from None

    @contextmanager
    def _counted(self, size: int) -> Iterator[None]:
        limit = self._limits.uploads_bytes
        if self._under_way + size > limit:
            raise UploadsBusy(
                f"{self._under_way} bytes are being uploaded already; the limit is {limit}",
                metadata={"bytes": str(self._under_way), "limit": str(limit)},
            )
        self._under_way += size
        try:
            yield
        finally:
            self._under_way -= size


def invalid(cls: type[InvalidInput], field: str, problem: str) -> HotwireError:
    """Returns an error that blames one field."""
    return cls(f"{field}: {problem}", violations=((field, problem),))


def check_percent(percent: float, field: str) -> None:
    """Raises CanaryInvalid, blaming a field, unless a share is above 0 and below 100."""
    if not 0.0 < percent < 100.0:
        raise invalid(CanaryInvalid, field, f"{percent:g} is not above 0 and below 100.")


def _wrong_size(expected: int, actual: int, came: str) -> HotwireError:
    return SizeMismatch(
        f"{actual} {came}; {expected} were declared",
        metadata={"expected": str(expected), "actual": str(actual)},
        violations=(("header.size_bytes", f"{actual} {came}."),),
    )


def _checked(header: pb.RegisterVectorHeader, data: bytearray) -> Upload:
    actual = hashlib.sha256(data).hexdigest()
    if actual != header.sha256:
        raise DigestMismatch(
            f"the file has sha256 {actual}, not {header.sha256}",
            metadata={"expected": header.sha256, "actual": actual},
            violations=(("header.sha256", f"The file's is {actual}."),),
        )
    parsed = parse_upload(data)
    canonical = canonical_bytes(parsed)
    vector = vector_pb2.Vector(
        name=header.name,
        revision=revision_of(canonical),
        model=header.model or parsed.metadata.get("model", ""),
        hidden_size=parsed.hidden_size,
        layers=parsed.layers,
        any_layer=parsed.any_layer,
        norms=parsed.norms,
        size_bytes=len(canonical),
        source_dtype=parsed.source_dtype,
        metadata=parsed.metadata,
    )
    return Upload(
        vector,
        parsed,
        canonical,
        header.validate_only,
        expire_time=expiry.asked(header, time.time(), "header."),
        canary_percent=header.canary_percent if header.HasField("canary_percent") else None,
    )
