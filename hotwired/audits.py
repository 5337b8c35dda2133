"""What the audit trail says of each change."""

from hotwired import policy, vectors
from hotwired.errors import shown
from hotwired.registry import Audit
from hotwired.staging import Caller
from hotwired.upload import Upload
from hotwired.v1 import policy_pb2, vector_pb2


def registration(
    upload: Upload, vector: vector_pb2.Vector, current: vector_pb2.Vector | None, caller: Caller
) -> Audit:
    """Returns the record of a registration. vector: as it is now. current: as it was."""
    before, file = current or vector_pb2.Vector(), upload.vector
    is_canary = upload.canary_percent is not None
    more = {"model": shown(file.model), "largest_norm": f"{max(file.norms):.6g}"}
    return Audit(
        "register_canary" if is_canary else "register",
        caller.peer,
        vector.name,
        old=before.canary.revision if is_canary else before.revision,
        new=file.revision,
        detail={**more, **vectors.detail(vector)},
        caller=caller.name,
    )


def update(vector: vector_pb2.Vector, current: vector_pb2.Vector, caller: Caller) -> Audit:
    """Returns the record of a change of flags or canary."""
    return Audit(
        "update",
        caller.peer,
        vector.name,
        old=current.revision,
        new=vector.revision,
        detail=vectors.detail(vector),
        caller=caller.name,
    )


def deletion(vector: vector_pb2.Vector, caller: Caller) -> Audit:
    """Returns the record of a deletion."""
    return Audit("delete", caller.peer, vector.name, old=vector.revision, caller=caller.name)


def policy_change(before: policy_pb2.Policy, after: policy_pb2.Policy, caller: Caller) -> Audit:
    """Returns the record of a change of the policy."""
    return Audit(
        "set_policy",
        caller.peer,
        old=before.etag,
        new=after.etag,
        detail=policy.detail(after),
        caller=caller.name,
    )
