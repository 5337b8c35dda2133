"""The desired state that an engine admits requests by: names, revisions and policy.

A snapshot never changes; a newer one takes its place. Pure except for a lock.
"""

import itertools
import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hotwire_plugin.log import named
from hotwired.dose import DoseMode, DosePolicy
from hotwired.errors import GenerationStale

if TYPE_CHECKING:
    from hotwired.node.v1 import node_pb2
    from hotwired.v1 import policy_pb2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VectorMeta:
    """What admission knows of a vector.

    name: what requests call it. revision: 64 lower-case hex digits. layers: those with a row,
    ascending; empty if any_layer. norms: the L2 norm of each row in that order, one if any_layer.
    any_layer: whether its one row may be used at any layer. disabled: whether requests that name it
    are declined. expires: from when on they are, in seconds since the epoch; infinite for never.
    canary: the revision that canary_percent % of the requests get, None if there is none.
    Raises ValueError if norms and layers don't belong together or layers don't ascend.
    """

    name: str
    revision: str
    layers: tuple[int, ...]
    norms: tuple[float, ...]
    any_layer: bool = False
    disabled: bool = False
    expires: float = math.inf
    canary: "VectorMeta | None" = None
    canary_percent: float = 0.0
    _norm_by_layer: Mapping[int, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = 1 if self.any_layer else len(self.layers)
        if len(self.norms) != rows or (self.any_layer and self.layers):
            raise ValueError(f"vector {self.name!r} has {len(self.norms)} norms for {rows} rows")
        if any(after <= before for before, after in itertools.pairwise(self.layers)):
            raise ValueError(f"the layers of vector {self.name!r} do not ascend")
        object.__setattr__(self, "_norm_by_layer", dict(zip(self.layers, self.norms, strict=False)))

    def norm_at(self, layer: int) -> float | None:
        """Returns the L2 norm of the row used at a layer, or None if there is no row for it."""
        return self.norms[0] if self.any_layer else self._norm_by_layer.get(layer)


@dataclass(frozen=True, slots=True)
class EnginePolicy:
    """What requests may do.

    kill_switch: nothing is steered. strict: what can't be honoured is refused. dose: the limits.
    live_limit: the most that is added to a token's stream over its own norm; infinite for none.
    apply_to_running: whether that holds requests, too, that were admitted before.
    default_spec: what a request asks for that asks for nothing; None for nothing. default_adds:
    whether it goes before what others ask for, too.
    """

    kill_switch: bool = False
    strict: bool = False
    dose: DosePolicy = field(default_factory=DosePolicy)
    live_limit: float = math.inf
    apply_to_running: bool = False
    default_spec: str | None = None
    default_adds: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole desired state: generation 0 is none yet; vectors by name; policy."""

    generation: int
    vectors: Mapping[str, VectorMeta]
    policy: EnginePolicy


EMPTY = Snapshot(0, {}, EnginePolicy())


class SnapshotHolder:
    """The snapshot in force.

    `lock` is re-entrant. Who admits a request holds it from reading `current` until what the
    request uses is on record: a commit then never returns while a revision of the snapshot it
    replaced is about to be used unseen.

    `listeners` are called with each new snapshot, in order of generation, under the lock: they
    must be quick and take no lock that is held around an admission.
    """

    def __init__(self, snapshot: Snapshot = EMPTY) -> None:
        self.lock = threading.RLock()
        self.listeners: list[Callable[[Snapshot], None]] = []
        self._current = snapshot

    @property
    def current(self) -> Snapshot:
        """The snapshot in force."""
        return self._current

    @property
    def generation(self) -> int:
        """The generation in force; 0 if none."""
        return self._current.generation

    def commit(self, snapshot: Snapshot) -> None:
        """Puts a snapshot in force. Raises GenerationStale if a newer one is."""
        with self.lock:
            if snapshot.generation < self._current.generation:
                raise GenerationStale(
                    f"generation {snapshot.generation} is older than the one in force",
                    metadata={
                        "generation": str(snapshot.generation),
                        "generation_in_force": str(self._current.generation),
                    },
                )
            if snapshot != self._current:
                self._current = snapshot
                self._notify(snapshot)

    def _notify(self, snapshot: Snapshot) -> None:
        for listener in self.listeners:
            try:
                listener(snapshot)
            except Exception:
                logger.exception(
                    "a listener failed on generation %d",
                    snapshot.generation,
                    extra=named("listener failed", generation=snapshot.generation),
                )


def snapshot_from_proto(
    message: "node_pb2.Snapshot", known: Mapping[str, VectorMeta] | None = None
) -> Snapshot:
    """Reads a snapshot off the wire. Raises ValueError if it contradicts itself.

    known: vectors by name, of the snapshot in force say; those of an unchanged revision are used
    as they are, since a revision never changes and most of a snapshot is like the one before.
    """
    vectors = {vector.name: _meta(vector, known or {}) for vector in message.vectors}
    policy = message.policy
    return Snapshot(message.generation, vectors, _engine_policy(policy))


def _engine_policy(policy: "policy_pb2.Policy") -> EnginePolicy:
    from hotwired.v1 import policy_pb2

    live_set = policy.HasField("max_live_relative_dose")
    return EnginePolicy(
        kill_switch=policy.kill_switch,
        strict=policy.strict,
        dose=_dose_policy(policy),
        live_limit=policy.max_live_relative_dose if live_set else math.inf,
        apply_to_running=policy.apply_to_running,
        default_spec=policy.default_spec or None,
        default_adds=policy.default_mode == policy_pb2.DEFAULT_MODE_ADD,
    )


def _meta(vector: "node_pb2.SnapshotVector", known: Mapping[str, VectorMeta]) -> VectorMeta:
    meta = known.get(vector.name)
    if meta is None or meta.revision != vector.revision:
        meta = VectorMeta(
            name=vector.name,
            revision=vector.revision,
            layers=tuple(vector.layers),
            norms=tuple(vector.norms),
            any_layer=vector.any_layer,
        )
    return _with_terms(meta, vector)


def _with_terms(meta: VectorMeta, vector: "node_pb2.SnapshotVector") -> VectorMeta:
    """Returns a vector with the flags and the canary of its name; itself if it has those."""
    expires = math.inf
    if vector.HasField("expire_time"):
        expires = vector.expire_time.seconds + vector.expire_time.nanos / 1e9
    canary, percent = vector.canary.revision or None, vector.canary.percent
    held = meta.canary.revision if meta.canary is not None else None
    terms = (vector.disabled, expires, canary, percent)
    if terms == (meta.disabled, meta.expires, held, meta.canary_percent):
        return meta
    return replace(
        meta,
        disabled=vector.disabled,
        expires=expires,
        canary=_canary(meta, vector.canary) if canary is not None else None,
        canary_percent=percent,
    )


def _canary(meta: VectorMeta, canary: "node_pb2.SnapshotCanary") -> VectorMeta:
    norms = tuple(canary.norms)
    return VectorMeta(meta.name, canary.revision, meta.layers, norms, meta.any_layer)


def _dose_policy(policy: "policy_pb2.Policy") -> DosePolicy:
    from hotwired.v1 import policy_pb2

    modes = {
        policy_pb2.DOSE_MODE_CLAMP: DoseMode.CLAMP,
        policy_pb2.DOSE_MODE_WARN: DoseMode.WARN,
        policy_pb2.DOSE_MODE_SHADOW: DoseMode.SHADOW,
    }
    total_set = policy.HasField("max_total_relative_dose")
    return DosePolicy(
        # Unspecified, and any mode of a newer daemon, is the strictest one.
        mode=modes.get(policy.dose_mode, DoseMode.REJECT),
        max_relative_dose=(
            policy.max_relative_dose if policy.HasField("max_relative_dose") else None
        ),
        max_total_relative_dose=policy.max_total_relative_dose if total_set else None,
        allow_unmonitored=policy.allow_unmonitored,
        reference_norms=dict(policy.reference_norms),
        by_vector=dict(policy.max_relative_dose_by_vector),
        by_caller=dict(policy.max_relative_dose_by_caller),
    )
