"""Every error has one code and one reason, and arrives as it was sent."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2

from hotwired import errors
from hotwired.errors import HotwireError, known, shown, to_status
from hotwired.rpc_errors import from_rpc_error, subclasses

ALL = [cls for cls in subclasses() if cls is not errors.RemoteError]


class FakeRpcError(grpc.RpcError):
    """What a stub raises for a status."""

    def __init__(self, code: grpc.StatusCode, message: str, details: bytes | None = None) -> None:
        self._code, self._message, self._details = code, message, details

    def code(self) -> grpc.StatusCode:
        """Returns the code."""
        return self._code

    def details(self) -> str:
        """Returns the message."""
        return self._message

    def trailing_metadata(self) -> list[tuple[str, bytes]]:
        """Returns the status details, if any."""
        return [] if self._details is None else [(errors.DETAILS_KEY, self._details)]


def details_of(exc: BaseException) -> Iterator[tuple[error_details_pb2.ErrorInfo, list[str]]]:
    """Yields the ErrorInfo of an exception's status, and its violations' fields."""
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    fields: list[str] = []
    for detail in to_status(exc).details:
        if detail.Unpack(bad):
            fields = [violation.field for violation in bad.field_violations]
        else:
            assert detail.Unpack(info)
    yield info, fields


def test_reasons_are_unique_and_speak_for_themselves() -> None:
    """A reason is one class's name in UPPER_SNAKE_CASE, at most 63 characters."""
    reasons = [cls.reason for cls in ALL]
    assert len(set(reasons)) == len(reasons)
    assert all(reason.replace("_", "").isupper() and len(reason) <= 63 for reason in reasons)
    assert errors.VectorNotFinite.reason == "VECTOR_NOT_FINITE"
    assert errors.BootIdMismatch.reason == "BOOT_ID_MISMATCH"


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Every class is drawn, and nothing else is."""
    drawn = {
        word
        for line in (errors.__doc__ or "").splitlines()
        for word in line.split()[:3]
        if word.isidentifier() and word[0].isupper() and not word.isupper()
    }
    assert drawn - {"Every"} == {"HotwireError", "RemoteError"} | {cls.__name__ for cls in ALL}


def test_no_code_is_unknown() -> None:
    """UNKNOWN would mean that nobody thought of it."""
    assert all(cls.code is not grpc.StatusCode.UNKNOWN for cls in ALL)


def test_every_reason_of_the_protos_is_a_class_with_that_code() -> None:
    """What the protos promise can be raised."""
    text = "".join(path.read_text() for path in Path("proto").rglob("*.proto"))
    by_reason = {cls.reason: cls.code.name for cls in ALL}
    promised = {
        "INVALID_ARGUMENT": "NAME_INVALID VECTOR_FORMAT_INVALID VECTOR_NOT_FINITE SIZE_MISMATCH "
        "VECTOR_SHAPE_MISMATCH DIGEST_MISMATCH UPLOAD_INVALID PAGE_INVALID POLICY_INVALID "
        "FIELD_MASK_INVALID INTERVAL_INVALID EXPIRE_TIME_INVALID CANARY_INVALID",
        "FAILED_PRECONDITION": "NODE_REJECTED ROLE_MISSING NODE_DISARMED NODE_STANDALONE",
        "RESOURCE_EXHAUSTED": "VECTOR_TOO_LARGE STORE_FULL",
        "DEADLINE_EXCEEDED": "UPLOAD_STALLED",
        "NOT_FOUND": "VECTOR_NOT_FOUND RECEIPT_NOT_FOUND CANARY_NOT_FOUND",
        "UNAVAILABLE": "NODE_UNREACHABLE",
        "DATA_LOSS": "BLOB_CORRUPT",
        "ABORTED": "REVISION_MISMATCH ETAG_MISMATCH GENERATION_STALE BOOT_ID_MISMATCH",
    }
    for code, reasons in promised.items():
        for reason in reasons.split():
            assert reason in text
            assert by_reason[reason] == code


@pytest.mark.parametrize("cls", ALL)
def test_a_status_carries_reason_metadata_and_fields(cls: type[HotwireError]) -> None:
    """ErrorInfo is always there, BadRequest when fields are bad, and a peer reads the same."""
    exc = cls("what went wrong", metadata={"layer": "3"}, violations=(("chunk", "bad"),))
    status = to_status(exc)
    assert (status.code, status.message) == (cls.code.value[0], "what went wrong")
    ((info, fields),) = details_of(exc)
    assert (info.reason, info.domain, dict(info.metadata)) == (
        cls.reason,
        "hotwired",
        {"layer": "3"},
    )
    assert fields == ["chunk"]
    read = from_rpc_error(FakeRpcError(cls.code, "what went wrong", status.SerializeToString()))
    assert type(read) is cls
    assert (read.message, read.metadata) == ("what went wrong", {"layer": "3"})


def test_what_is_not_ours_is_internal_and_tells_no_secret() -> None:
    """An exception's text may hold anything: only its class is told."""
    status = to_status(KeyError("secret"))
    assert status.code == grpc.StatusCode.INTERNAL.value[0]
    assert "secret" not in str(status)
    assert known(KeyError("x")).metadata == {"exception": "KeyError"}


def test_a_status_fits_into_trailers() -> None:
    """However long a message, its metadata and its violations are, gRPC can carry them."""
    exc = errors.NameInvalid(
        "x" * 100_000,
        metadata={"name": "y" * 100_000},
        violations=tuple(("f" * 1000, "d" * 1000) for _ in range(100)),
    )
    assert to_status(exc).ByteSize() < 8000


def test_a_peer_without_details_is_unreachable_or_remote() -> None:
    """A transport failure is told from a refusal; garbage in the details hides neither."""
    gone = from_rpc_error(FakeRpcError(grpc.StatusCode.UNAVAILABLE, "no socket"))
    assert isinstance(gone, errors.NodeUnreachable)
    odd = from_rpc_error(FakeRpcError(grpc.StatusCode.DATA_LOSS, "?", b"\xff\xff"))
    assert (odd.code, odd.reason) == (grpc.StatusCode.DATA_LOSS, "DATA_LOSS")
    newer = to_status(errors.NodeRejected("later"))
    newer.details[0].Pack(error_details_pb2.ErrorInfo(reason="NEWER_REASON", domain="hotwired"))
    remote = from_rpc_error(
        FakeRpcError(grpc.StatusCode.FAILED_PRECONDITION, "later", newer.SerializeToString())
    )
    assert (remote.reason, remote.code) == ("NEWER_REASON", grpc.StatusCode.FAILED_PRECONDITION)


def test_shown_text_is_harmless() -> None:
    """Control characters are escaped and the rest is cut."""
    assert shown("\x1b[31m\u202ered") == "'\\x1b[31m\\u202ered'"
    assert len(shown("a" * 1000)) < 90
