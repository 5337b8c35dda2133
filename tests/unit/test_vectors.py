"""What a record becomes by a registration or an update, by the rules alone."""

import math
from dataclasses import replace
from typing import Any

import pytest

from hotwired import errors, vectors
from hotwired.upload import Upload
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1.vector_pb2 import Vector
from hotwired.vector_file import VectorData

R, S, T = "r" * 64, "s" * 64, "t" * 64
NOW = 1000.0


def upload(revision: str, percent: float | None = None, **fields: Any) -> Upload:
    """Returns an upload of joy."""
    given = {"name": "joy", "hidden_size": 8, "layers": [1], "norms": [2.0], "size_bytes": 64}
    vector = Vector(revision=revision, **{**given, "source_dtype": "F32", **fields})
    return Upload(vector, VectorData((), True, None, ""), b"", False, None, percent)  # type: ignore[arg-type]


def registered(*uploads: Upload, seconds: float = NOW) -> Vector:
    """Returns joy after registrations, one a generation from 2 on."""
    current = None
    for generation, one in enumerate(uploads, 2):
        current = vectors.registered(one, current, generation, seconds)
    assert current is not None
    return current


def updated(current: Vector, *paths: str, seconds: float = NOW, **fields: Any) -> Vector:
    """Returns a vector after an update in generation 9."""
    request = pb.UpdateVectorRequest(name="joy", **fields)
    request.update_mask.paths.extend(paths)
    return vectors.updated(current, request, 9, seconds)


def test_a_canary_stands_beside_the_names_own() -> None:
    """With facts of its own; the rest stays."""
    plain = registered(upload(R))
    both = registered(upload(R), upload(S, 5.0, norms=[3.0], metadata={"note": "n"}))
    canary = both.canary
    assert (canary.revision, canary.percent, list(canary.norms)) == (S, 5.0, [3.0])
    assert (canary.generation, dict(canary.metadata), canary.size_bytes) == (3, {"note": "n"}, 64)
    assert canary.create_time.seconds == NOW
    both.ClearField("canary")
    assert both == plain


def test_the_same_again_is_equal() -> None:
    """Registrations that change nothing give the record there is, whatever the time is."""
    uploads = [upload(R), upload(S, 5.0)]
    both = registered(*uploads)
    for one in uploads:
        assert vectors.registered(one, both, 99, NOW + 5) == both
        assert vectors.says(both, one)
    more = vectors.registered(upload(S, 6.0), both, 99, NOW + 5)
    assert (more.canary.percent, more.canary.generation) == (6.0, 3)
    assert not vectors.says(both, upload(T))
    assert not vectors.says(both, upload(R, 5.0))
    assert not vectors.says(None, upload(R))


def test_another_revision_ends_the_canary_and_the_same_one_does_not() -> None:
    """Metadata are no other revision; the canary's own, registered plainly, is a promotion."""
    both = registered(upload(R), upload(S, 5.0))
    noted = vectors.registered(upload(R, metadata={"note": "n"}), both, 4, NOW)
    assert noted.canary == both.canary
    for revision in (S, T):
        moved = vectors.registered(upload(revision), both, 4, NOW)
        assert (moved.revision, moved.HasField("canary")) == (revision, False)


def test_flags_stay_with_the_name() -> None:
    """A registration enables nothing by itself, and lets nothing live longer."""
    flagged = updated(registered(upload(R)), "disabled", "expire_time", disabled=True,
                      ttl={"seconds": 60})  # fmt: skip
    moved = vectors.registered(upload(S), flagged, 4, NOW)
    assert (moved.disabled, moved.expire_time.seconds) == (True, NOW + 60)
    renewed = replace(upload(S), expire_time=vectors.timestamp(NOW + 99))
    assert vectors.registered(renewed, moved, 5, NOW).expire_time.seconds == NOW + 99
    with pytest.raises(errors.ExpireTimeInvalid, match="expired"):
        vectors.registered(upload(S), moved, 5, NOW + 60)
    assert vectors.registered(renewed, moved, 5, NOW + 60).expire_time.seconds == NOW + 99


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"revision": R}, errors.CanaryInvalid),
        ({"hidden_size": 9}, errors.VectorShapeMismatch),
        ({"layers": [1, 2]}, errors.VectorShapeMismatch),
        ({"layers": [], "any_layer": True}, errors.VectorShapeMismatch),
        ({"model": "other"}, errors.VectorShapeMismatch),
    ],
)
def test_a_canary_must_fit_its_name(fields: dict[str, Any], error: type[Exception]) -> None:
    """So that a request that can be honoured with one can be with the other."""
    current = registered(upload(R, model="m"))
    with pytest.raises(error):
        vectors.for_name(upload(fields.pop("revision", S), 5.0, **fields), current)
    assert vectors.for_name(upload(S, 5.0), current).vector.model == "m"
    assert vectors.for_name(upload(S, 5.0, model="m"), current).vector.model == "m"


def test_promotion() -> None:
    """The canary's content under the name's flags; the shape is one anyway."""
    both = registered(
        upload(R, metadata={"a": "1"}), upload(S, 5.0, norms=[3.0], source_dtype="F16")
    )
    flagged = updated(both, "disabled", disabled=True)
    now = updated(flagged, seconds=NOW + 1, canary_action=pb.CANARY_ACTION_PROMOTE)
    assert (now.revision, list(now.norms), now.source_dtype) == (S, [3.0], "F16")
    assert (dict(now.metadata), now.HasField("canary"), now.disabled) == ({}, False, True)
    assert (now.generation, now.update_time.seconds) == (9, NOW + 1)
    assert now.create_time == both.create_time


def test_dropping_and_changing_the_share() -> None:
    """All that is not named stays."""
    both = registered(upload(R), upload(S, 5.0))
    assert updated(both, "canary_percent", canary_percent=50.0).canary.percent == 50.0
    assert updated(both, canary_action=pb.CANARY_ACTION_DROP) == registered(upload(R))
    assert updated(both, "disabled") == both


def test_expiry_is_set_and_cleared() -> None:
    """A span from now, a moment, or never; to the microsecond."""
    plain = registered(upload(R))
    span = updated(plain, "expire_time", ttl={"seconds": 1, "nanos": 500_000_999})
    assert (span.expire_time.seconds, span.expire_time.nanos) == (1001, 500_000_000)
    assert updated(plain, "expire_time", expire_time={"seconds": 1001}).expire_time.seconds == 1001
    assert updated(span, "expire_time") == plain
    assert updated(span, "disabled", ttl={"seconds": 7}) == span


BAD = {
    "nothing named": ((), {}, errors.FieldMaskInvalid),
    "an unknown field": (("revision",), {}, errors.FieldMaskInvalid),
    "all fields": (("*",), {}, errors.FieldMaskInvalid),
    "no span": (("expire_time",), {"ttl": {}}, errors.ExpireTimeInvalid),
    "a span back": (("expire_time",), {"ttl": {"seconds": -1}}, errors.ExpireTimeInvalid),
    "malformed": (("expire_time",), {"ttl": {"nanos": -5}}, errors.ExpireTimeInvalid),
    "now": (("expire_time",), {"expire_time": {"seconds": 1000}}, errors.ExpireTimeInvalid),
    "too far": (("expire_time",), {"ttl": {"seconds": 2**60}}, errors.ExpireTimeInvalid),
    "none of it": (("canary_percent",), {}, errors.CanaryInvalid),
    "all of it": (("canary_percent",), {"canary_percent": 100.0}, errors.CanaryInvalid),
    "nan": (("canary_percent",), {"canary_percent": math.nan}, errors.CanaryInvalid),
    "both": (("canary_percent",), {"canary_percent": 5.0, "canary_action": 2},
             errors.FieldMaskInvalid),
    "no such action": ((), {"canary_action": 77}, errors.CanaryInvalid),
    "another revision": (("disabled",), {"revision": S}, errors.RevisionMismatch),
    "another canary": (("disabled",), {"canary_revision": R}, errors.RevisionMismatch),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_updates_are_refused(case: str) -> None:
    """By the field at fault, with or without a canary; the record is left as it is."""
    paths, fields, error = BAD[case]
    for current in (registered(upload(R)), registered(upload(R), upload(S, 5.0))):
        before = Vector.FromString(current.SerializeToString())
        with pytest.raises(error):
            updated(current, *paths, **fields)
        assert current == before


@pytest.mark.parametrize("fields", [{"canary_action": 1}, {"canary_action": 2}])
def test_what_needs_a_canary(fields: dict[str, Any]) -> None:
    """Without one: CANARY_NOT_FOUND, for a share too."""
    for paths, more in (((), fields), (("canary_percent",), {"canary_percent": 5.0})):
        with pytest.raises(errors.CanaryNotFound):
            updated(registered(upload(R)), *paths, **more)
