"""Refuses bytes that are no message: gRPC itself would answer them with UNKNOWN."""

import functools
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from hotwired.errors import RequestInvalid


class Undecodable:
    """Stands for a message whose bytes are none of its type."""

    def __init__(self, problem: str) -> None:
        self.problem = problem


def checked(message: Any) -> Any:
    """Returns a message. Raises RequestInvalid if it could not be decoded."""
    if isinstance(message, Undecodable):
        raise RequestInvalid(message.problem)
    return message


class Decoding(grpc.aio.ServerInterceptor):
    """Lets a service's methods refuse what gRPC would answer with UNKNOWN: undecodable bytes."""

    def __init__(self, service: str) -> None:
        self._prefix = f"/{service}/"

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Puts a decoder that never raises before the methods of the service."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(self._prefix):
            return handler
        return handler._replace(request_deserializer=undecoded(handler.request_deserializer))


def undecoded(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Returns a decoder that returns an Undecodable where the given one raises."""
    return functools.partial(_decoded, decode)


def _decoded(decode: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return decode(raw)
    except DecodeError as exc:
        return Undecodable(str(exc))
