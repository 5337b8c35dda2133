"""The error tree: one class for each gRPC status, and the daemon's details in every error."""

import pickle

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

import hotwire_client
from hotwire_client import HotwireError, InvalidArgumentError, errors


def rpc_error(
    code: grpc.StatusCode, text: str | None, trailer: tuple[tuple[str, str | bytes], ...] = ()
) -> grpc.aio.AioRpcError:
    """Makes an error as gRPC raises it."""
    return grpc.aio.AioRpcError(code, None, grpc.aio.Metadata(*trailer), text)


def details(*messages: object, code: int = 3) -> bytes:
    """Makes the trailer that carries the messages."""
    status = status_pb2.Status(code=code)
    for message in messages:
        packed = any_pb2.Any()
        packed.Pack(message)
        status.details.append(packed)
    return status.SerializeToString()


def test_every_status_but_ok_has_one_class() -> None:
    """No status is left out, and no class serves two."""
    assert set(errors.CLASS_BY_CODE) == set(grpc.StatusCode) - {grpc.StatusCode.OK}
    classes = set(errors.CLASS_BY_CODE.values())
    assert len(classes) == len(errors.CLASS_BY_CODE)
    assert classes == set(HotwireError.__subclasses__())


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """The drawing names every class with its status."""
    for code, kind in errors.CLASS_BY_CODE.items():
        assert any(
            line.split()[1:3] == [kind.__name__, code.name]
            for line in (errors.__doc__ or "").splitlines()
            if "──" in line
        )


def test_all_public_names_exist_and_all_errors_are_public() -> None:
    """`__all__` is what can be imported, sorted, and has the whole tree."""
    assert list(hotwire_client.__all__) == sorted(hotwire_client.__all__)
    for name in hotwire_client.__all__:
        assert hasattr(hotwire_client, name)
    for kind in errors.CLASS_BY_CODE.values():
        assert kind.__name__ in hotwire_client.__all__


def test_the_daemons_details_are_read() -> None:
    """Reason, metadata and violations come from google.rpc details."""
    info = error_details_pb2.ErrorInfo(
        domain="hotwired", reason="NAME_INVALID", metadata={"name": "A"}
    )
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="name", description="has an upper-case letter")
    trailer = (("grpc-status-details-bin", details(info, bad)),)
    error = errors.from_rpc_error(
        rpc_error(grpc.StatusCode.INVALID_ARGUMENT, "the name is bad", trailer)
    )
    assert type(error) is InvalidArgumentError
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "NAME_INVALID")
    assert (error.message, error.metadata) == ("the name is bad", {"name": "A"})
    assert error.violations == (("name", "has an upper-case letter"),)
    assert str(error) == "the name is bad (NAME_INVALID)"


@pytest.mark.parametrize(
    "trailer",
    [
        (),
        (("grpc-status-details-bin", b"\xff\xff\xff"),),
        (("grpc-status-details-bin", b""),),
        (("other-bin", b"\x00"),),
        (
            (
                "grpc-status-details-bin",
                details(error_details_pb2.ErrorInfo(domain="elsewhere", reason="ODD")),
            ),
        ),
    ],
)
def test_without_our_details_the_status_is_the_reason(
    trailer: tuple[tuple[str, str | bytes], ...],
) -> None:
    """Missing, broken and foreign details leave an error with a reason and a message."""
    error = errors.from_rpc_error(rpc_error(grpc.StatusCode.INTERNAL, None, trailer))
    assert (error.reason, error.message, error.metadata) == ("INTERNAL", "internal", {})


def test_errors_survive_pickling() -> None:
    """An error that crosses a process pool is the same at the other end."""
    violations = (errors.Violation("name", "is unknown"),)
    error = errors.make(
        grpc.StatusCode.NOT_FOUND, "VECTOR_NOT_FOUND", "no", {"name": "a"}, violations
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is hotwire_client.NotFoundError
    assert vars(copy) == vars(error)


@pytest.mark.parametrize(
    "text",
    [
        "Received message larger than max (17825792 vs. 16777216)",
        "SERVER: Received message larger than max (17825792 vs. 16777216)",
        "CLIENT: Sent message larger than max (17825792 vs. 16777216)",
    ],
)
def test_what_the_transport_finds_too_large_has_the_daemons_reason(text: str) -> None:
    """gRPC says it in its message alone."""
    error = errors.from_rpc_error(rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
    assert error.reason == "MESSAGE_TOO_LARGE"
    assert error.metadata == {"bytes": "17825792", "limit": "16777216"}
    other = errors.from_rpc_error(rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "no memory"))
    assert other.reason == "RESOURCE_EXHAUSTED"


def test_when_to_try_again_is_read() -> None:
    """From RetryInfo, in seconds; it survives pickling."""
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(1500)
    info = error_details_pb2.ErrorInfo(reason="RATE_LIMITED", domain="hotwired")
    trailer = (("grpc-status-details-bin", details(info, retry, code=8)),)
    error = errors.from_rpc_error(rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "slow", trailer))
    assert (error.reason, error.retry_seconds) == ("RATE_LIMITED", 1.5)
    assert pickle.loads(pickle.dumps(error)).retry_seconds == 1.5
