"""The desired state of all engines, and the part of it that one model can use."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from hotwired import fingerprint
from hotwired.errors import ReferenceNormsMismatch, VectorShapeMismatch
from hotwired.node.v1 import node_pb2
from hotwired.v1 import policy_pb2, vector_pb2
from hotwired.vector_file import check_shape


@dataclass(frozen=True, slots=True)
class Facts:
    """What a vector must fit: the model's name, hidden size, number of layers and dtype."""

    model: str
    hidden_size: int
    num_layers: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered vector, and the same as a snapshot has it."""

    vector: vector_pb2.Vector
    in_snapshot: node_pb2.SnapshotVector

    @classmethod
    def of(cls, vector: vector_pb2.Vector) -> "Entry":
        """Makes an entry."""
        in_snapshot = node_pb2.SnapshotVector(
            name=vector.name,
            revision=vector.revision,
            layers=vector.layers,
            norms=vector.norms,
            any_layer=vector.any_layer,
            disabled=vector.disabled,
            expire_time=vector.expire_time if vector.HasField("expire_time") else None,
            canary=_in_snapshot(vector.canary) if vector.HasField("canary") else None,
        )
        return cls(vector, in_snapshot)

    @property
    def revisions(self) -> tuple[str, ...]:
        """The revision that the name points to and, if there is one, its canary's."""
        return revisions_of(self.vector)

    def without(self, revisions: Container[str]) -> "Entry | None":
        """Returns what is left if no request may get these; None without the name's own.

        Without its canary all requests get the name's own.
        """
        if self.vector.revision in revisions:
            return None
        if not self.vector.HasField("canary") or self.vector.canary.revision not in revisions:
            return self
        in_snapshot = node_pb2.SnapshotVector()
        in_snapshot.CopyFrom(self.in_snapshot)
        in_snapshot.ClearField("canary")
        return Entry(self.vector, in_snapshot)


def revisions_of(vector: vector_pb2.Vector) -> tuple[str, ...]:
    """Returns the revision that a vector points to and, if there is one, its canary's."""
    canary = (vector.canary.revision,) if vector.HasField("canary") else ()
    return (vector.revision, *canary)


def _in_snapshot(canary: vector_pb2.Canary) -> node_pb2.SnapshotCanary:
    return node_pb2.SnapshotCanary(
        revision=canary.revision, norms=canary.norms, percent=canary.percent
    )


class Fitting:
    """The entries that fit a model, by name, and their revisions."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = entries
        self.revisions = frozenset(
            revision for entry in entries.values() for revision in entry.revisions
        )

    def changed(self, facts: Facts, delete: str, entry: Entry | None) -> "Fitting":
        """Returns what fits after one name was deleted, or given another entry."""
        if entry is not None and not fits(entry.vector, facts):
            delete, entry = entry.vector.name, None
        if entry is None and delete not in self.entries:
            return self
        return Fitting(_replaced(self.entries, delete, entry))


@dataclass(frozen=True, eq=False)
class Desired:
    """The whole desired state at one generation. Never changed; a change makes a new one.

    entries: by name.
    """

    generation: int
    policy: policy_pb2.Policy
    entries: Mapping[str, Entry]
    _fitting: dict[Facts, "Fitting"] = field(default_factory=dict)
    _snapshots: dict[object, node_pb2.Snapshot] = field(default_factory=dict, init=False)

    def changed(
        self,
        generation: int,
        *,
        put: vector_pb2.Vector | None = None,
        delete: str = "",
        policy: policy_pb2.Policy | None = None,
    ) -> "Desired":
        """Returns the desired state after a change, which costs no look at the other entries."""
        entry = Entry.of(put) if put is not None else None
        return Desired(
            generation,
            policy if policy is not None else self.policy,
            _replaced(self.entries, delete, entry),
            {facts: old.changed(facts, delete, entry) for facts, old in self._fitting.items()},
        )

    def names_of(self, revision: str) -> list[str]:
        """Returns the names that point to a revision, or have it as their canary."""
        return [n for n, entry in self.entries.items() if revision in entry.revisions]

    def fitting(self, facts: Facts) -> "Fitting":
        """Returns the entries that fit a model."""
        if facts not in self._fitting:
            self._fitting[facts] = Fitting(
                {name: entry for name, entry in self.entries.items() if fits(entry.vector, facts)}
            )
        return self._fitting[facts]

    def snapshot(
        self, key: object, entries: Callable[[], Iterable[Entry]], facts: Facts | None
    ) -> node_pb2.Snapshot:
        """Returns the snapshot with these entries for a model, made once for each key."""
        if key not in self._snapshots:
            self._snapshots[key] = node_pb2.Snapshot(
                generation=self.generation,
                vectors=[entry.in_snapshot for entry in entries()],
                policy=policy_for(self.policy, facts),
            )
        return self._snapshots[key]


def _replaced(
    entries: Mapping[str, Entry], delete: str, entry: Entry | None
) -> Mapping[str, Entry]:
    result = dict(entries)
    result.pop(delete, None)
    if entry is not None:
        result[entry.vector.name] = entry
    return result


def fits(vector: vector_pb2.Vector, facts: Facts) -> bool:
    """Whether a vector fits a model: its name if stated, its width and its layers."""
    return misfit(vector, facts) is None


def misfit(vector: vector_pb2.Vector, facts: Facts) -> VectorShapeMismatch | None:
    """Returns why a vector doesn't fit a model, or None."""
    if vector.model and not same_model(vector.model, facts.model):
        message = f"the vector is for model {vector.model!r}, not {facts.model!r}"
        metadata = {"expected": facts.model, "actual": vector.model}
        return VectorShapeMismatch(
            message, metadata=metadata, violations=(("header.model", message),)
        )
    try:
        check_shape(
            vector.hidden_size,
            vector.layers,
            hidden_size=facts.hidden_size,
            num_layers=facts.num_layers,
        )
    except VectorShapeMismatch as exc:
        return exc
    return None


def policy_for(policy: policy_pb2.Policy, facts: Facts | None) -> policy_pb2.Policy:
    """Returns the policy for a model: without reference norms if they are of another."""
    if facts is None or norms_misfit(policy, facts) is None:
        return policy
    bare = policy_pb2.Policy()
    bare.CopyFrom(policy)
    bare.ClearField("reference_norms")
    bare.ClearField("reference_norms_fingerprint")
    return bare


def norms_misfit(policy: policy_pb2.Policy, facts: Facts) -> ReferenceNormsMismatch | None:
    """Returns why the reference norms are not of a model, or None if they may be.

    A node says its model's shape and no digest, so the shape is all that is compared.
    """
    if not policy.HasField("reference_norms_fingerprint"):
        return None
    shape = fingerprint.shape_of(policy.reference_norms_fingerprint)
    if shape == (facts.num_layers, facts.hidden_size):
        return None
    stated = f"{shape.num_layers}x{shape.hidden_size}"
    served = f"{facts.num_layers}x{facts.hidden_size}"
    message = f"the reference norms are of a {stated} model; {facts.model!r} is {served}"
    return ReferenceNormsMismatch(
        message,
        metadata={"model": facts.model, "expected": served, "actual": stated},
        violations=(("policy.reference_norms", message),),
    )


def same_model(stated: str, served: str) -> bool:
    """Whether two names mean the same model.

    A model served from a folder is known by the folder's name: "/models/Llama-3-8B" is
    "meta-llama/Llama-3-8B". Two names that are no paths must be equal.
    """
    if stated == served:
        return True
    if not any(name.startswith(("/", "./", "../", "~")) for name in (stated, served)):
        return False
    return PurePosixPath(stated).name.casefold() == PurePosixPath(served).name.casefold()
