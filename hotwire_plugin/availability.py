"""Whether a request may have the vectors that it names, and which revision it gets. Pure."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from hotwire_plugin.resolve import DeclinedError
from hotwire_plugin.snapshot import Snapshot, VectorMeta
from hotwire_plugin.spec import Spec
from hotwire_plugin.spec_error import shown

VECTOR_DISABLED = "VECTOR_DISABLED"
VECTOR_EXPIRED = "VECTOR_EXPIRED"
AVAILABILITY_REASONS = frozenset({VECTOR_DISABLED, VECTOR_EXPIRED})


class Arm(StrEnum):
    """Which revision of a vector with a canary a request got; see CanaryArm of hotwired.v1."""

    STABLE = "stable"
    CANARY = "canary"
    FALLBACK = "fallback"


class ArmUse(NamedTuple):
    """A request's use of a vector with a canary: its name, the revision, and which arm that is.

    For Arm.FALLBACK the revision is the canary's, which the request did not get.
    """

    vector: str
    revision: str
    arm: Arm


def share_of(request_id: str) -> float:
    """Returns where a request stands among all, 0 <= share < 100, evenly spread and always alike.

    Those that stand below a canary's percentage get it: more of them, as it grows, and never
    others. It is the same for all vectors, so that a request is on trial or is not.
    """
    digest = hashlib.blake2b(request_id.encode("utf-8", "replace"), digest_size=8).digest()
    # The upper 53 bits: more would round up to 100.
    return (int.from_bytes(digest) >> 11) * 2.0**-53 * 100.0


def canaries_of(vectors: Mapping[str, VectorMeta]) -> dict[str, float]:
    """Returns the percentage of each canary there is, by its vector's name."""
    return {n: meta.canary_percent for n, meta in vectors.items() if meta.canary is not None}


def drawn(canaries: Mapping[str, float], request_id: str) -> frozenset[str]:
    """Returns the vectors whose canary a request gets; without an id it gets none."""
    if not canaries or not request_id:
        return frozenset()
    share = share_of(request_id)
    return frozenset(name for name, percent in canaries.items() if share < percent)


def next_expiry(vectors: Mapping[str, VectorMeta], now: float) -> float:
    """Returns when the next vector expires after now, in seconds; infinite if none does."""
    ahead = (meta.expires for meta in vectors.values() if meta.expires > now)
    return min(ahead, default=math.inf)


def check(spec: Spec, vectors: Mapping[str, VectorMeta], now: float) -> None:
    """Raises DeclinedError if a vector that is named is disabled, or expired at now, in seconds.

    What is not there at all is left to others.
    """
    for meta in _named(spec, vectors):
        if meta.disabled:
            raise DeclinedError(VECTOR_DISABLED, f"vector {shown(meta.name)} is disabled")
        if meta.expires <= now:
            raise DeclinedError(VECTOR_EXPIRED, f"vector {shown(meta.name)} has expired")


def with_canaries(
    spec: Spec, snapshot: Snapshot, drawn_names: frozenset[str]
) -> tuple[Snapshot, tuple[ArmUse, ...]]:
    """Returns a snapshot in which those of these names that are named point to their canaries.

    With it, the uses of vectors with a canary, in the order of names. The snapshot is the same
    object if no name points elsewhere.
    """
    named = {m.name: m for m in _named(spec, snapshot.vectors) if m.canary is not None}
    found = {n: m.canary for n, m in named.items() if n in drawn_names and m.canary is not None}
    arms = [
        ArmUse(name, found[name].revision, Arm.CANARY)
        if name in found
        else ArmUse(name, meta.revision, Arm.STABLE)
        for name, meta in sorted(named.items())
    ]
    vectors = {**snapshot.vectors, **found}
    return replace(snapshot, vectors=vectors) if found else snapshot, tuple(arms)


def fallen_back(arms: Iterable[ArmUse]) -> tuple[ArmUse, ...]:
    """Returns the uses of a request that gets none of its canaries since they can't be used."""
    return tuple(u._replace(arm=Arm.FALLBACK) if u.arm is Arm.CANARY else u for u in arms)


def _named(spec: Spec, vectors: Mapping[str, VectorMeta]) -> Iterator[VectorMeta]:
    """Yields the vectors there are that a specification names, in its order."""
    for entry in spec.entries:
        for name in (entry.id, entry.target):
            if name and (meta := vectors.get(name)) is not None:
                yield meta
