"""What a vector's record becomes by a registration or an update. Pure: nothing is stored here."""

from dataclasses import replace

from hotwired import expiry
from hotwired.errors import (
    CanaryInvalid,
    CanaryNotFound,
    FieldMaskInvalid,
    HotwireError,
    RevisionMismatch,
    VectorShapeMismatch,
    shown,
)
from hotwired.policy import timestamp
from hotwired.upload import Upload, check_percent, invalid
from hotwired.v1 import steering_service_pb2 as pb
from hotwired.v1 import vector_pb2

_DISABLED, _EXPIRE_TIME, _CANARY_PERCENT = "disabled", "expire_time", "canary_percent"
_SETTABLE = (_DISABLED, _EXPIRE_TIME, _CANARY_PERCENT)


def for_name(upload: Upload, current: vector_pb2.Vector) -> Upload:
    """Returns a canary's upload as one for the model that its name is for.

    Raises CanaryInvalid if it is the name's own revision, VectorShapeMismatch if its width, its
    layers or its model is another.
    """
    file = upload.vector
    if file.revision == current.revision:
        raise invalid(CanaryInvalid, "chunk", f"It is what {current.name!r} points to already.")
    for what in ("hidden_size", "layers", "any_layer"):
        if getattr(file, what) != getattr(current, what):
            raise _misfit("chunk", f"Its {what} is not that of {current.name!r}.")
    if file.model and file.model != current.model:
        stated = shown(current.model) if current.model else "stated for none"
        raise _misfit("header.model", f"Must be that of {current.name!r}, which is {stated}.")
    vector = vector_pb2.Vector()
    vector.CopyFrom(file)
    vector.model = current.model
    return replace(upload, vector=vector)


def says(current: vector_pb2.Vector | None, upload: Upload) -> bool:
    """Whether a name has an upload's revision, model, metadata and dtype already."""
    file = upload.vector
    if current is None or current.model != file.model:
        return False
    held = current if upload.canary_percent is None else current.canary
    return (held.revision, held.source_dtype, held.metadata) == (
        file.revision,
        file.source_dtype,
        file.metadata,
    )


def registered(
    upload: Upload,
    current: vector_pb2.Vector | None,
    generation: int,
    seconds: float,
    owner: str = "",
) -> vector_pb2.Vector:
    """Returns the record of a name after a registration; equal to the current one if unchanged.

    generation: the one that the registration makes. seconds: the wall clock's. owner: who asks; a
    name that is there stays whose it is, and only such a one gets a canary. Raises
    ExpireTimeInvalid if the name's expiry, given or kept, is not ahead.
    """
    if upload.canary_percent is None or current is None:
        vector = _pointed(upload.vector, current, generation, seconds)
        vector.owner = current.owner if current else owner
    else:
        vector = _copy(current)
        vector.canary.CopyFrom(_canary(upload, current.canary, generation, seconds))
    if upload.expire_time is not None:
        vector.expire_time.CopyFrom(upload.expire_time)
    expiry.check_ahead(vector, seconds)
    return vector


def _pointed(
    file: vector_pb2.Vector, current: vector_pb2.Vector | None, generation: int, seconds: float
) -> vector_pb2.Vector:
    """Returns a record that points to a file; what an operator set of the name stays."""
    vector, now = _copy(file), timestamp(seconds)
    vector.create_time.CopyFrom(current.create_time if current else now)
    vector.disabled = current.disabled if current else False
    if current is not None and current.HasField("expire_time"):
        vector.expire_time.CopyFrom(current.expire_time)
    if current is None or current.revision != file.revision:
        vector.update_time.CopyFrom(now)
        vector.generation = generation
        return vector
    vector.update_time.CopyFrom(current.update_time)
    vector.generation = current.generation
    if current.HasField("canary"):
        vector.canary.CopyFrom(current.canary)
    return vector


def _canary(
    upload: Upload, before: vector_pb2.Canary, generation: int, seconds: float
) -> vector_pb2.Canary:
    file = upload.vector
    same = before.revision == file.revision
    return vector_pb2.Canary(
        revision=file.revision,
        percent=upload.canary_percent,
        norms=file.norms,
        size_bytes=file.size_bytes,
        source_dtype=file.source_dtype,
        metadata=file.metadata,
        create_time=before.create_time if same else timestamp(seconds),
        generation=before.generation if same else generation,
    )


def updated(
    current: vector_pb2.Vector, request: pb.UpdateVectorRequest, generation: int, seconds: float
) -> vector_pb2.Vector:
    """Returns the record after an update; equal to the current one if that changes nothing.

    generation: the one that the update makes. seconds: the wall clock's. Raises RevisionMismatch,
    FieldMaskInvalid, ExpireTimeInvalid, CanaryInvalid or CanaryNotFound.
    """
    _check_revisions(current, request)
    paths = _masked(request)
    vector = _copy(current)
    if _DISABLED in paths:
        vector.disabled = request.disabled
    if _EXPIRE_TIME in paths:
        _put_expiry(vector, request, seconds)
    if _CANARY_PERCENT in paths:
        check_percent(request.canary_percent, _CANARY_PERCENT)
        _has_canary(vector).canary.percent = request.canary_percent
    if request.canary_action == pb.CANARY_ACTION_PROMOTE:
        _promote(_has_canary(vector), generation, seconds)
    elif request.canary_action == pb.CANARY_ACTION_DROP:
        _has_canary(vector).ClearField("canary")
    return vector


def detail(vector: vector_pb2.Vector) -> dict[str, str]:
    """Returns what the audit record says of a vector's flags and canary."""
    expires = vector.expire_time.ToJsonString() if vector.HasField("expire_time") else "never"
    said = {"disabled": str(vector.disabled).lower(), "expires": expires}
    if vector.HasField("canary"):
        canary = vector.canary
        said |= {"canary": canary.revision, "canary_percent": f"{canary.percent:g}"}
    return said


def _check_revisions(current: vector_pb2.Vector, request: pb.UpdateVectorRequest) -> None:
    pairs = (
        (request.revision, current.revision, "points to"),
        (request.canary_revision, current.canary.revision, "has as its canary"),
    )
    for stated, actual, how in pairs:
        if stated and stated != actual:
            raise mismatch(current.name, stated, actual, how)


def mismatch(name: str, stated: str, actual: str, how: str = "points to") -> RevisionMismatch:
    """Returns the error for a name that has another revision than the one stated."""
    return RevisionMismatch(
        f"{name!r} {how} {actual or 'nothing'}, not {shown(stated)}",
        metadata={"expected": shown(stated), "actual": actual},
    )


def _masked(request: pb.UpdateVectorRequest) -> frozenset[str]:
    """Returns the fields to change, checked to make sense beside the action."""
    paths = frozenset(request.update_mask.paths)
    action = request.canary_action
    settable = ", ".join(_SETTABLE)
    if unknown := sorted(paths - set(_SETTABLE)):
        problem = f"{shown(unknown[0])} can't be set; settable: {settable}."
        raise invalid(FieldMaskInvalid, "update_mask", problem)
    if not paths and action == pb.CANARY_ACTION_UNSPECIFIED:
        raise invalid(FieldMaskInvalid, "update_mask", f"Names nothing to change: {settable}.")
    if action not in pb.CanaryAction.values():
        raise invalid(CanaryInvalid, "canary_action", f"{action} is no action.")
    if action != pb.CANARY_ACTION_UNSPECIFIED and _CANARY_PERCENT in paths:
        raise invalid(FieldMaskInvalid, "update_mask", "A canary that ends has no share.")
    return paths


def _put_expiry(vector: vector_pb2.Vector, request: pb.UpdateVectorRequest, seconds: float) -> None:
    moment = expiry.asked(request, seconds)
    if moment is None:
        vector.ClearField("expire_time")
    else:
        vector.expire_time.CopyFrom(moment)


def _has_canary(vector: vector_pb2.Vector) -> vector_pb2.Vector:
    if not vector.HasField("canary"):
        message = f"vector {vector.name!r} has no canary"
        raise CanaryNotFound(message, metadata={"name": vector.name})
    return vector


def _promote(vector: vector_pb2.Vector, generation: int, seconds: float) -> None:
    canary = vector_pb2.Canary()
    canary.CopyFrom(vector.canary)
    for field in ("canary", "norms", "metadata"):
        vector.ClearField(field)
    vector.revision, vector.size_bytes = canary.revision, canary.size_bytes
    vector.source_dtype, vector.generation = canary.source_dtype, generation
    vector.norms.extend(canary.norms)
    vector.metadata.update(canary.metadata)
    vector.update_time.CopyFrom(timestamp(seconds))


def _copy(vector: vector_pb2.Vector) -> vector_pb2.Vector:
    result = vector_pb2.Vector()
    result.CopyFrom(vector)
    return result


def _misfit(field: str, problem: str) -> HotwireError:
    return VectorShapeMismatch(f"{field}: {problem}", violations=((field, problem),))
