"""What a call can raise: one class for each gRPC status, and a reason in every one.

    HotwireError              code, reason, message, metadata, violations
    ├── CancelledError            CANCELLED
    ├── UnknownError              UNKNOWN
    ├── InvalidArgumentError      INVALID_ARGUMENT     NAME_INVALID, CANARY_INVALID, ...
    ├── DeadlineExceededError     DEADLINE_EXCEEDED    UPLOAD_STALLED, DEADLINE_EXCEEDED
    ├── NotFoundError             NOT_FOUND            VECTOR_NOT_FOUND, RECEIPT_NOT_FOUND
    ├── AlreadyExistsError        ALREADY_EXISTS
    ├── PermissionDeniedError     PERMISSION_DENIED    ROLE_TOO_LOW, SOCKET_NOT_TRUSTED
    ├── ResourceExhaustedError    RESOURCE_EXHAUSTED   VECTOR_TOO_LARGE, RATE_LIMITED, ...
    ├── FailedPreconditionError   FAILED_PRECONDITION  NODE_REJECTED
    ├── AbortedError              ABORTED              REVISION_MISMATCH, ETAG_MISMATCH
    ├── OutOfRangeError           OUT_OF_RANGE
    ├── UnimplementedError        UNIMPLEMENTED
    ├── InternalError             INTERNAL             INTERNAL
    ├── UnavailableError          UNAVAILABLE          DAEMON_UNREACHABLE, TLS_FAILED
    ├── DataLossError             DATA_LOSS            BLOB_CORRUPT, DOWNLOAD_DAMAGED
    └── UnauthenticatedError      UNAUTHENTICATED      CALLER_UNKNOWN, TOKEN_INVALID

The reason is the daemon's (google.rpc.ErrorInfo, domain "hotwired"); an error that was not made
by the daemon has the name of its status as reason, but for those made by this package.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

DOMAIN = "hotwired"
_DETAILS_KEY = "grpc-status-details-bin"
_TOO_LARGE = re.compile(r"message larger than max \((\d+) vs\. (\d+)\)")


class Violation(NamedTuple):
    """What is wrong with one field of the request."""

    field: str
    description: str


class HotwireError(Exception):
    """Raised when a call fails.

    Attributes:
        code: The gRPC status.
        reason: Why, in UPPER_SNAKE_CASE.
        message: The same as one sentence.
        metadata: Every part of the message that varies.
        violations: The fields at fault, if the request was.
        retry_seconds: When to try again, if the daemon has said so.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        metadata: Mapping[str, str] | None = None,
        violations: tuple[Violation, ...] = (),
    ) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = violations
        self.retry_seconds: float | None = None
        super().__init__(code, reason, message, self.metadata, violations)

    def __str__(self) -> str:
        return f"{self.message} ({self.reason})"


class CancelledError(HotwireError):
    """The call was cancelled."""


class UnknownError(HotwireError):
    """The server failed without saying how."""


class InvalidArgumentError(HotwireError):
    """The request is wrong whatever the daemon's state; see `violations`."""


class DeadlineExceededError(HotwireError):
    """No answer came in time. What was asked for may have happened."""


class NotFoundError(HotwireError):
    """What was named does not exist."""


class AlreadyExistsError(HotwireError):
    """What was to be created exists."""


class PermissionDeniedError(HotwireError):
    """The caller may not do this, or the daemon's socket is not to be trusted."""


class ResourceExhaustedError(HotwireError):
    """Something is too large, or full."""


class FailedPreconditionError(HotwireError):
    """The state of the daemon or of a node does not allow it."""


class AbortedError(HotwireError):
    """What was to be changed has changed meanwhile."""


class OutOfRangeError(HotwireError):
    """The request reaches past an end."""


class UnimplementedError(HotwireError):
    """The daemon does not know the call: it is older than this client."""


class InternalError(HotwireError):
    """The daemon has a fault."""


class UnavailableError(HotwireError):
    """The daemon cannot be reached, or is stopping."""


class DataLossError(HotwireError):
    """Stored bytes are damaged."""


class UnauthenticatedError(HotwireError):
    """The caller did not say who it is."""


CLASS_BY_CODE: Mapping[grpc.StatusCode, type[HotwireError]] = {
    grpc.StatusCode.CANCELLED: CancelledError,
    grpc.StatusCode.UNKNOWN: UnknownError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRangeError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DATA_LOSS: DataLossError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
}


def make(
    code: grpc.StatusCode,
    reason: str,
    message: str,
    metadata: Mapping[str, str] | None = None,
    violations: tuple[Violation, ...] = (),
) -> HotwireError:
    """Returns an error of the class that belongs to the status."""
    return CLASS_BY_CODE.get(code, HotwireError)(code, reason, message, metadata, violations)


def from_rpc_error(error: grpc.RpcError) -> HotwireError:
    """Returns the error that a call of either API has raised, with the daemon's own details."""
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in _status(error).details:
        for message in (info, bad, retry):
            if detail.Is(message.DESCRIPTOR):
                detail.Unpack(message)
    if info.domain != DOMAIN:
        return _of_transport(error)
    made = make(
        error.code(),
        info.reason or error.code().name,
        _text(error),
        dict(info.metadata),
        tuple(Violation(v.field, v.description) for v in bad.field_violations),
    )
    if retry.HasField("retry_delay"):
        made.retry_seconds = retry.retry_delay.ToMilliseconds() / 1000
    return made


def _of_transport(error: grpc.RpcError) -> HotwireError:
    """Returns the error for what gRPC, and not the daemon, refused."""
    code, text = error.code(), _text(error)
    # The daemon refuses a message that is somewhat too large itself, with the same reason.
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and (match := _TOO_LARGE.search(text)):
        size, limit = match.groups()
        message = f"the message has {size} bytes; the limit of the transport is {limit}"
        return make(code, "MESSAGE_TOO_LARGE", message, {"bytes": size, "limit": limit})
    return make(code, code.name, text)


def _text(error: grpc.RpcError) -> str:
    return error.details() or error.code().name.lower().replace("_", " ")


def _status(error: grpc.RpcError) -> status_pb2.Status:
    trailer = cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ())
    for key, value in trailer:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                break
    return status_pb2.Status()
