"""Every way in which a call can fail, and the one place that maps it to a gRPC status.

HotwireError
├── InvalidInput             INVALID_ARGUMENT: the caller sent something wrong
│   ├── NameInvalid
│   ├── VectorFormatInvalid
│   ├── VectorNotFinite
│   ├── VectorShapeMismatch
│   ├── DigestMismatch
│   ├── SizeMismatch
│   ├── UploadInvalid
│   ├── ExpireTimeInvalid
│   ├── CanaryInvalid
│   ├── PolicyInvalid
│   ├── ReferenceNormsMismatch
│   ├── FieldMaskInvalid
│   ├── PageInvalid
│   ├── IntervalInvalid
│   ├── BackupInvalid
│   └── RequestInvalid
├── NotIdentified            UNAUTHENTICATED: who calls is not known
│   ├── CallerUnknown
│   └── TokenInvalid
├── RoleTooLow               PERMISSION_DENIED
├── VectorNotFound           NOT_FOUND
├── ReceiptNotFound          NOT_FOUND
├── CanaryNotFound           NOT_FOUND
├── Conflict                 ABORTED: read again, then retry
│   ├── RevisionMismatch
│   ├── EtagMismatch
│   ├── GenerationStale
│   └── BootIdMismatch
├── Exhausted                RESOURCE_EXHAUSTED
│   ├── VectorTooLarge
│   ├── MessageTooLarge
│   ├── UploadsBusy
│   ├── RateLimited
│   ├── QuotaExceeded
│   └── StoreFull
├── TimedOut                 DEADLINE_EXCEEDED
│   ├── UploadStalled
│   └── MutationTimeout
├── NotReady                 FAILED_PRECONDITION: the state of a node forbids it
│   ├── NodeRejected
│   ├── RoleMissing
│   ├── NodeDisarmed
│   └── NodeStandalone
├── Unavailable              UNAVAILABLE: retry later
│   ├── NodeUnreachable
│   ├── StoreUnavailable
│   └── ShuttingDown
├── StartRefused             FAILED_PRECONDITION: the process does not start
│   ├── ConfigInvalid
│   ├── CertificateInvalid
│   ├── ListenRefused
│   ├── DaemonLocked
│   ├── StoreTooNew
│   ├── StateNotEmpty
│   ├── SocketInvalid
│   ├── SocketInUse
│   └── DirectoryUnsafe
├── StoreCorrupt             DATA_LOSS
├── BlobCorrupt              DATA_LOSS
├── RemoteError              what a peer answered, where no class here has its reason
└── Internal                 INTERNAL: a fault of ours
"""

import re
from collections.abc import Mapping
from typing import ClassVar

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from hotwired.error_details import VALUE_LIMIT, bad_request, packed, retry_info

DOMAIN = "hotwired"
DETAILS_KEY = "grpc-status-details-bin"

_MESSAGE_LIMIT = 1000


class HotwireError(Exception):
    """A failure with a gRPC code and a reason, which is its class's name in UPPER_SNAKE_CASE.

    message: one sentence for people. metadata: every dynamic part of it, for programs.
    violations: (field, description) of each bad field of the request. retry_seconds: when to try
    again, if that is known.
    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL
    reason: ClassVar[str] = "INTERNAL"

    def __init_subclass__(cls) -> None:
        cls.reason = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()

    def __init__(
        self,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: tuple[tuple[str, str], ...] = (),
        retry_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = violations
        self.retry_seconds = retry_seconds


class InvalidInput(HotwireError):
    """The caller sent something wrong; sending it again cannot help."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NameInvalid(InvalidInput):
    """The vector's name breaks the rule for names."""


class VectorFormatInvalid(InvalidInput):
    """The file is not a safetensors file of a form we read."""


class VectorNotFinite(InvalidInput):
    """A value is NaN or infinite, or becomes so in the model's dtype."""


class VectorShapeMismatch(InvalidInput):
    """The width or the layers don't fit together, or don't fit the model."""


class DigestMismatch(InvalidInput):
    """The bytes don't have the digest that was declared."""


class SizeMismatch(InvalidInput):
    """More or fewer bytes came than were declared."""


class UploadInvalid(InvalidInput):
    """The messages of an upload are not one header and then chunks, or one of them is malformed."""


class ExpireTimeInvalid(InvalidInput):
    """The moment at which a vector is to expire is malformed, or not ahead."""


class CanaryInvalid(InvalidInput):
    """A canary's share is out of range, or it is the revision that its name has already."""


class PolicyInvalid(InvalidInput):
    """A value of the policy is out of range."""


class ReferenceNormsMismatch(InvalidInput):
    """The reference norms are of another model than one that is served."""


class FieldMaskInvalid(InvalidInput):
    """The mask names a field that can't be set."""


class PageInvalid(InvalidInput):
    """The page size or the page token is malformed."""


class IntervalInvalid(InvalidInput):
    """The interval between two samples is out of range."""


class BackupInvalid(InvalidInput):
    """The file is not a backup, or not a whole one."""


class RequestInvalid(InvalidInput):
    """The message can't be decoded."""


class NotIdentified(HotwireError):
    """Nobody that the configuration knows calls."""

    code = grpc.StatusCode.UNAUTHENTICATED


class CallerUnknown(NotIdentified):
    """No caller has a name of the certificate, and no token came."""


class TokenInvalid(NotIdentified):
    """No caller has the token, or what came is none."""


class RoleTooLow(HotwireError):
    """The caller's role does not allow the call."""

    code = grpc.StatusCode.PERMISSION_DENIED


class VectorNotFound(HotwireError):
    """No vector has this name."""

    code = grpc.StatusCode.NOT_FOUND


class ReceiptNotFound(HotwireError):
    """No engine keeps a receipt of this request."""

    code = grpc.StatusCode.NOT_FOUND


class CanaryNotFound(HotwireError):
    """The vector has no canary."""

    code = grpc.StatusCode.NOT_FOUND


class Conflict(HotwireError):
    """The state is not the one that the caller knew."""

    code = grpc.StatusCode.ABORTED


class RevisionMismatch(Conflict):
    """The name points to another revision than the one stated."""


class EtagMismatch(Conflict):
    """The policy was changed since it was read."""


class GenerationStale(Conflict):
    """A newer generation is in force."""


class BootIdMismatch(Conflict):
    """The node was restarted since it was described."""


class Exhausted(HotwireError):
    """A limit is reached."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class VectorTooLarge(Exhausted):
    """The vector is over the size limit, or over the memory set aside for vectors."""


class MessageTooLarge(Exhausted):
    """A message is over the size limit of messages."""


class RateLimited(Exhausted):
    """The caller calls more often than it may."""


class QuotaExceeded(Exhausted):
    """The caller has uploaded, or owns, as much as it may."""


class UploadsBusy(Exhausted):
    """Too many bytes are being uploaded at once."""


class StoreFull(Exhausted):
    """The disk, or the quota, of the store is full."""


class TimedOut(HotwireError):
    """Something took too long."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class UploadStalled(TimedOut):
    """The next message of an upload did not come in time."""


class MutationTimeout(TimedOut):
    """The call's time was used up before the change could be stored; nothing was changed."""


class NotReady(HotwireError):
    """The state of a node forbids it."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class NodeRejected(NotReady):
    """A worker refused the vector; nothing was changed anywhere."""


class RoleMissing(NotReady):
    """The process has not the role that the call needs."""


class NodeDisarmed(NotReady):
    """The process cannot steer."""


class NodeStandalone(NotReady):
    """The process took its vectors from its environment and takes none from a daemon."""


class Unavailable(HotwireError):
    """Not now; a retry may succeed."""

    code = grpc.StatusCode.UNAVAILABLE


class NodeUnreachable(Unavailable):
    """A node did not answer in time."""


class StoreUnavailable(Unavailable):
    """The store can't be read or written."""


class ShuttingDown(Unavailable):
    """The daemon is stopping."""


class StartRefused(HotwireError):
    """The process does not start as things are."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class ConfigInvalid(StartRefused):
    """The configuration can't be read, or settings of it are not allowed; violations has each."""


class CertificateInvalid(StartRefused):
    """A certificate, its key or an authority can't be read, or they don't belong together."""


class ListenRefused(StartRefused):
    """The system gives us no port at the address."""


class DaemonLocked(StartRefused):
    """Another daemon uses this socket or this state."""


class StoreTooNew(StartRefused):
    """The store was written by a newer version."""


class StateNotEmpty(StartRefused):
    """There is something in the directory that a backup would be restored to."""


class SocketInvalid(StartRefused):
    """The socket's path can't be used."""


class SocketInUse(StartRefused):
    """Another process listens on the socket."""


class DirectoryUnsafe(StartRefused):
    """Other users could put things into the directory."""


class StoreCorrupt(HotwireError):
    """The database is damaged; it is left as it is."""

    code = grpc.StatusCode.DATA_LOSS


class BlobCorrupt(HotwireError):
    """A stored blob is missing or hasn't its digest; register the vector again."""

    code = grpc.StatusCode.DATA_LOSS


class Internal(HotwireError):
    """A fault of ours."""


class RemoteError(HotwireError):
    """What a peer answered, where no class here has its reason."""

    def __init__(
        self, message: str, code: grpc.StatusCode, reason: str, metadata: Mapping[str, str]
    ) -> None:
        super().__init__(message, metadata=metadata)
        # An answer's code and reason are its own, not its class's.
        self.__dict__.update(code=code, reason=reason)


def shown(text: str, limit: int = 80) -> str:
    """Returns untrusted text as printable ASCII in quotes, cut to a limit of characters."""
    cut = text if len(text) <= limit else text[:limit] + "..."
    return ascii(cut)


def known(exc: BaseException) -> HotwireError:
    """Returns the exception itself if it is one of ours, an Internal without its text if not."""
    if isinstance(exc, HotwireError):
        return exc
    return Internal("internal error", metadata={"exception": type(exc).__name__})


def to_status(exc: BaseException) -> status_pb2.Status:
    """Returns the google.rpc.Status of an exception: ErrorInfo, BadRequest if fields are bad, and
    RetryInfo if it is known when to try again.

    The one place of mapping: what is not ours becomes INTERNAL, never UNKNOWN.
    """
    error = known(exc)
    metadata = {key: value[:VALUE_LIMIT] for key, value in error.metadata.items()}
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    details = [packed(info)]
    if error.violations:
        details.append(packed(bad_request(error.violations)))
    if error.retry_seconds is not None:
        details.append(packed(retry_info(error.retry_seconds)))
    return status_pb2.Status(
        code=error.code.value[0], message=error.message[:_MESSAGE_LIMIT], details=details
    )
