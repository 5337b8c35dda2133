"""The details of a status, cut to what travels in HTTP/2 trailers, of which gRPC takes 8 KiB."""

import math
from typing import Any

from google.protobuf import any_pb2
from google.rpc import error_details_pb2  # type: ignore[import-untyped]

VALUE_LIMIT = 256
_MAX_VIOLATIONS = 8


def bad_request(violations: tuple[tuple[str, str], ...]) -> error_details_pb2.BadRequest:
    """Returns the detail that names bad fields. violations: (field, description) of each."""
    return error_details_pb2.BadRequest(
        field_violations=[
            error_details_pb2.BadRequest.FieldViolation(
                field=field[:VALUE_LIMIT], description=description[:VALUE_LIMIT]
            )
            for field, description in violations[:_MAX_VIOLATIONS]
        ]
    )


def retry_info(seconds: float) -> error_details_pb2.RetryInfo:
    """Returns the detail that says when to try again."""
    detail = error_details_pb2.RetryInfo()
    detail.retry_delay.FromMilliseconds(math.ceil(seconds * 1000))
    return detail


def packed(message: Any) -> any_pb2.Any:
    """Returns a message as a status has it among its details."""
    result = any_pb2.Any()
    result.Pack(message)
    return result
