"""When a vector expires: what a caller may ask for, and whether the moment has passed."""

from google.protobuf.timestamp_pb2 import Timestamp

from hotwired.errors import ExpireTimeInvalid
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1 import vector_pb2

# The last second that a Timestamp may hold: the end of the year 9999.
_LAST_SECOND = 253_402_300_799
_NANOS = 10**9


def asked(
    message: pb.RegisterVectorHeader | pb.UpdateVectorRequest, seconds: float, prefix: str = ""
) -> Timestamp | None:
    """Returns the moment that a message asks for, None if it names none.

    seconds: the wall clock's. prefix: of the fields in an error, such as "header.". Raises
    ExpireTimeInvalid if the moment is not ahead, or is beyond what a Timestamp holds.
    """
    field = message.WhichOneof("expiration")
    if field is None:
        return None
    now = round(seconds * _NANOS)
    found = message.ttl if field == "ttl" else message.expire_time
    if not 0 <= found.nanos < _NANOS or found.seconds < 0:
        raise _invalid(prefix + field, "Is malformed or negative.")
    at = found.seconds * _NANOS + found.nanos + (now if field == "ttl" else 0)
    if not now < at <= _LAST_SECOND * _NANOS:
        raise _invalid(prefix + field, "Must end ahead, and before the year 10000.")
    # To the microsecond, as all times here.
    return Timestamp(seconds=at // _NANOS, nanos=at % _NANOS // 1000 * 1000)


def check_ahead(vector: vector_pb2.Vector, seconds: float) -> None:
    """Raises ExpireTimeInvalid if a vector expired before the wall clock's seconds."""
    if vector.HasField("expire_time") and at_seconds(vector.expire_time) <= seconds:
        moment = vector.expire_time.ToJsonString()
        raise _invalid("header.ttl", f"{vector.name!r} expired at {moment}: give another expiry.")


def at_seconds(moment: Timestamp) -> float:
    """Returns a moment in seconds since the epoch."""
    return moment.seconds + moment.nanos / _NANOS


def _invalid(field: str, problem: str) -> ExpireTimeInvalid:
    return ExpireTimeInvalid(f"{field}: {problem}", violations=((field, problem),))
