"""What both clients send: pure functions from arguments to messages."""

import hashlib
import math
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from hotwire_client import errors
from hotwired.v1.policy_pb2 import Policy
from hotwired.v1.steering_service_pb2 import (
    CanaryAction,
    RegisterVectorHeader,
    RegisterVectorRequest,
    SetPolicyRequest,
    UpdateVectorRequest,
)

#: The bytes of one message of an upload; the daemon takes up to 1 MiB.
CHUNK_BYTES = 256 * 1024

#: A file larger than this is no steering vector, whatever the daemon's own limit is.
MAX_FILE_BYTES = 1024 * 1024 * 1024

LIST_PAGE_SIZE = 1000

Source = str | os.PathLike[str] | bytes


@dataclass(frozen=True, slots=True)
class Upload:
    """A vector to register: its header and the bytes of its file."""

    header: RegisterVectorHeader
    data: bytes

    def messages(self) -> Iterator[RegisterVectorRequest]:
        """Yields the header and then the chunks."""
        yield RegisterVectorRequest(header=self.header)
        for start in range(0, len(self.data), CHUNK_BYTES):
            yield RegisterVectorRequest(chunk=self.data[start : start + CHUNK_BYTES])


def upload(
    source: Source,
    name: str | None,
    model: str,
    *,
    ttl: float | None = None,
    canary_percent: float | None = None,
    validate_only: bool,
) -> Upload:
    """Reads the source, whose name is the file's stem unless one is given; ttl is in seconds.

    Raises:
        OSError: The file cannot be read, or is no regular file.
        ResourceExhaustedError: The file is far too large for a vector.
        ValueError: The source is bytes and no name is given, or the ttl is no finite time.
    """
    if not isinstance(source, bytes):
        name = Path(source).stem if name is None else name
        source = _read(Path(source))
    if name is None:
        raise ValueError("bytes have no name of their own: give one")
    header = RegisterVectorHeader(
        name=name,
        size_bytes=len(source),
        sha256=hashlib.sha256(source).hexdigest(),
        model=model,
        validate_only=validate_only,
        ttl=None if ttl is None else _duration(ttl),
        canary_percent=canary_percent,
    )
    return Upload(header, source)


@dataclass(frozen=True, slots=True)
class VectorUpdate:
    """What to change of a vector; what is None stays.

    Attributes:
        disabled: Whether requests that name it are to be declined.
        ttl: The seconds after which it is to expire; infinite for never.
        canary_percent: Its canary's share of requests.
        canary: What is to happen to its canary.
        revision: If given, the change is made only while the name points to this revision.
        canary_revision: If given, it is made only while the canary is this revision.
    """

    disabled: bool | None = None
    ttl: float | None = None
    canary_percent: float | None = None
    canary: CanaryAction = CanaryAction.CANARY_ACTION_UNSPECIFIED
    revision: str = ""
    canary_revision: str = ""

    def request(self, name: str, *, validate_only: bool) -> UpdateVectorRequest:
        """Returns the request that makes this change of a vector.

        Raises:
            ValueError: The ttl is not a number, or more than a duration holds.
        """
        changed = {
            "disabled": self.disabled,
            "expire_time": self.ttl,
            "canary_percent": self.canary_percent,
        }
        never = self.ttl is None or self.ttl == math.inf
        return UpdateVectorRequest(
            name=name,
            update_mask=FieldMask(paths=[f for f, value in changed.items() if value is not None]),
            disabled=self.disabled or False,
            ttl=None if never else _duration(self.ttl or 0.0),
            canary_percent=self.canary_percent or 0.0,
            canary_action=self.canary,
            revision=self.revision,
            canary_revision=self.canary_revision,
            validate_only=validate_only,
        )


def _duration(seconds: float) -> Duration:
    if not math.isfinite(seconds):
        raise ValueError(f"a ttl is a finite number of seconds, not {seconds}")
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def _read(path: Path) -> bytes:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is no regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise errors.make(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "VECTOR_TOO_LARGE",
            f"{path} is {status.st_size} bytes long, and {MAX_FILE_BYTES} is the most",
            {"size_bytes": str(status.st_size), "limit_bytes": str(MAX_FILE_BYTES)},
        )
    return path.read_bytes()


def set_policy(
    policy: Policy, fields: Sequence[str] | None, *, validate_only: bool
) -> SetPolicyRequest:
    """Returns the request that changes the named fields, or all if fields is None.

    Raises:
        ValueError: The list of fields is empty, which the daemon would take as "all".
    """
    request = SetPolicyRequest(policy=policy, validate_only=validate_only)
    if fields is not None:
        if not fields:
            raise ValueError("no field is named: give None to change all")
        request.update_mask.CopyFrom(FieldMask(paths=fields))
    return request


def checked_seconds(value: float, what: str) -> float:
    """Returns the value if it is finite and above 0.

    Raises:
        ValueError: It is not.
    """
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{what} must be a finite number of seconds above 0, not {value}")
    return value
