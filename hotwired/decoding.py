"""Refuses bytes that are no message, or too many, with a reason, which gRPC itself does not."""

import functools
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from hotwired.errors import HotwireError, MessageTooLarge, RequestInvalid

TRANSPORT_FACTOR = 4
"""How many times our own limit the transport takes: what is above ours but not above that is read,
to be refused with details. Above it, gRPC's own RESOURCE_EXHAUSTED has none."""


class Undecodable:
    """Stands for a message that was not decoded, and says why."""

    def __init__(self, error: HotwireError) -> None:
        self.error = error


def checked(message: Any) -> Any:
    """Returns a message. Raises RequestInvalid or MessageTooLarge if it was not decoded."""
    if isinstance(message, Undecodable):
        raise message.error
    return message


class Decoding(grpc.aio.ServerInterceptor):
    """Lets a service's methods refuse undecodable bytes, and messages of more than `limit`."""

    def __init__(self, service: str, limit: int) -> None:
        self._prefix = f"/{service}/"
        self._limit = limit

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Puts a decoder that never raises before the methods of the service."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(self._prefix):
            return handler
        decode = undecoded(handler.request_deserializer, self._limit)
        return handler._replace(request_deserializer=decode)


def undecoded(decode: Callable[[bytes], Any], limit: int) -> Callable[[bytes], Any]:
    """Returns a decoder with an Undecodable for what the given one raises at, or is too large."""
    return functools.partial(_decoded, decode, limit)


def _decoded(decode: Callable[[bytes], Any], limit: int, raw: bytes) -> Any:
    if len(raw) > limit:
        return Undecodable(too_large(len(raw), limit))
    try:
        return decode(raw)
    except DecodeError as exc:
        return Undecodable(RequestInvalid(str(exc)))


def too_large(size: int, limit: int) -> MessageTooLarge:
    """Returns the refusal of a message of so many bytes."""
    return MessageTooLarge(
        f"the message has {size} bytes; the limit is {limit}",
        metadata={"bytes": str(size), "limit": str(limit)},
    )
