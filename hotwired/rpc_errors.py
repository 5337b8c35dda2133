"""Reads what a peer refused: the way back of errors.to_status."""

from collections.abc import Iterable, Iterator
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from hotwired.errors import DETAILS_KEY, HotwireError, NodeUnreachable, RemoteError


def subclasses(root: type[HotwireError] = HotwireError) -> Iterator[type[HotwireError]]:
    """Yields every class of the tree below root."""
    for child in root.__subclasses__():
        yield child
        yield from subclasses(child)


def from_rpc_error(exc: grpc.RpcError) -> HotwireError:
    """Returns what a peer's refusal says, sync or asyncio: our class for its reason if it has one.

    Without an ErrorInfo the transport failed: NodeUnreachable, or RemoteError for other codes.
    """
    code: grpc.StatusCode = exc.code()
    info = _error_info(exc)
    message = exc.details() or code.name
    if info is None:
        return _transport_error(code, message)
    classes = {cls.reason: cls for cls in subclasses() if cls is not RemoteError}
    cls = classes.get(info.reason)
    if cls is None or cls.code is not code:
        return RemoteError(message, code, info.reason, info.metadata)
    return cls(message, metadata=info.metadata)


def _transport_error(code: grpc.StatusCode, message: str) -> HotwireError:
    gone = (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    )
    if code in gone:
        return NodeUnreachable(message, metadata={"code": code.name})
    return RemoteError(message, code, code.name, {})


def _error_info(exc: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    metadata: Iterable[Any] = exc.trailing_metadata() or ()
    raw = next((value for key, value in metadata if key == DETAILS_KEY), None)
    return None if raw is None else _first_error_info(raw)


def _first_error_info(raw: bytes) -> error_details_pb2.ErrorInfo | None:
    try:
        status = status_pb2.Status.FromString(raw)
    except Exception:  # noqa: BLE001 -- a peer's garbage must not hide that it refused
        return None
    info = error_details_pb2.ErrorInfo()
    return next((info for detail in status.details if detail.Unpack(info)), None)
