"""GET /metrics over HTTP/1.1 on the daemon's own loop: one request a connection, all bounded.

Whoever is slow, sends too much or comes in crowds loses its connection, and holds up nobody.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from hotwired.log import get
from hotwired.metrics.listen import Address
from hotwired.run_dir import (
    check_socket,
    check_socket_path,
    clear_stale,
    make_shared,
    socket_umask,
)

PATH = "/metrics"
MAX_CONNECTIONS = 16
MAX_HEAD_BYTES = 8 << 10
READ_SECONDS = 5.0
WRITE_SECONDS = 10.0

Render = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Returns the metrics and their content type for an Accept header."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    accept: str


class _Refused(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Endpoint:
    """Serves what `render` returns. read_seconds, write_seconds: what a client has for each."""

    def __init__(
        self,
        render: Render,
        read_seconds: float = READ_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._render = render
        self._read_seconds = read_seconds
        self._write_seconds = write_seconds
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()

    async def start(self, address: Address) -> Address:
        """Listens and returns where, with the port that it got.

        Raises SocketInvalid, SocketInUse, DirectoryUnsafe or OSError.
        """
        if (path := address.path) is not None:
            check_socket_path(path)
            make_shared(path.parent)
            clear_stale(path)
            with socket_umask():
                self._server = await asyncio.start_unix_server(
                    self._accept, path, limit=MAX_HEAD_BYTES
                )
            check_socket(path)
            return address
        self._server = await asyncio.start_server(
            self._accept, address.host, address.port, limit=MAX_HEAD_BYTES
        )
        port = self._server.sockets[0].getsockname()[1]
        return Address(host=address.host, port=port)

    async def close(self) -> None:
        """Stops listening and ends all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._busy) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._busy.add(task)
        try:
            # Who is slow or goes away is nobody's fault of ours.
            with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        except Exception:  # noqa: BLE001 -- a fault of ours; the daemon goes on
            get().exception("metrics not served")
        finally:
            self._busy.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._read_seconds):
            answer = await self._answer(reader)
        async with asyncio.timeout(self._write_seconds):
            writer.write(answer)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            request = await _read(reader)
            body, kind = await self._render(request.accept)
        except _Refused as exc:
            body, kind = f"{exc.status.phrase}\n".encode(), "text/plain; charset=utf-8"
            return _head(exc.status, kind, len(body)) + body
        head = _head(HTTPStatus.OK, kind, len(body))
        return head if request.method == "HEAD" else head + body


async def _read(reader: asyncio.StreamReader) -> _Request:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
    first, *rest = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    method, target, _ = parts
    if target.partition("?")[0] != PATH:
        raise _Refused(HTTPStatus.NOT_FOUND)
    if method not in {"GET", "HEAD"}:
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED)
    headers = (line.partition(":") for line in rest)
    accepts = (value.strip() for name, _, value in headers if name.lower() == "accept")
    return _Request(method, target, ",".join(accepts))


def _head(status: HTTPStatus, kind: str, size: int) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {size}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
