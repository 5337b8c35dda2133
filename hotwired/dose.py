"""Relative dose: how large what is added is, against the residual stream it is added to.

The dose of a layer is the sum over what stacks there of |scale| * ||row||, divided by the
reference norm of the residual stream after that layer: an upper bound of ||added|| / ||stream||.
An operation that is relative to the stream in itself adds its own bound, without a norm. The total
is the sum over layers. Pure: no I/O, standard library only.
"""

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

ALLOWED = "allowed"
CLAMPED = "clamped"
WARNED = "warned"
REJECTED = "rejected"
UNMONITORED = "unmonitored"
SHADOWED = "shadowed"
OUTCOMES = (ALLOWED, CLAMPED, WARNED, REJECTED, UNMONITORED, SHADOWED)

DOSE_EXCEEDED = "DOSE_EXCEEDED"
DOSE_UNKNOWN_NORM = "DOSE_UNKNOWN_NORM"
DOSE_SHADOWED = "DOSE_SHADOWED"

# The smallest normal fp32 number: a residual stream held in fp32 or less has no smaller norm, and
# a limit below it can't be met by any scale that a worker can represent.
_TINY = 2.0**-126
# The smallest normal fp64 number: a smaller factor has lost bits.
_LEAST_FACTOR = 2.0**-1022
# A clamped dose stays this much below the limit, so that the rounding of the products and of
# their sum can't lift it over.
_MARGIN = 1.0 - 2.0**-40


class Contribution(NamedTuple):
    """What one operation adds at one layer, at most.

    Attributes:
        layer: the layer after which the stream is changed; -1 is before the first.
        amount: the L2 norm of what is added, in the stream's own units.
        relative: what is added besides, over the norm of the token's own stream.
        vector: the vector's name. target: that of the vector a swap goes to; empty for none.
    """

    layer: int
    amount: float
    relative: float = 0.0
    vector: str = ""
    target: str = ""


class DoseMode(enum.Enum):
    """What happens to a request whose dose is over a limit."""

    REJECT = "reject"
    CLAMP = "clamp"
    WARN = "warn"
    SHADOW = "shadow"


@dataclass(frozen=True, slots=True)
class DosePolicy:
    """The limits and the table they are measured against.

    mode: what happens over a limit.
    max_relative_dose: the limit at each layer, finite and >= 0; None is no limit.
    max_total_relative_dose: the limit of the sum over layers, finite and >= 0; None is no limit.
    allow_unmonitored: whether a layer without a usable reference norm may be steered.
    reference_norms: layer -> mean L2 norm of the residual stream after it.
    by_vector: vector's name -> the limit at each layer of what it contributes by itself.
    by_caller: a caller's label -> its limit at each layer, beside the one for everybody.
    Raises ValueError for a limit that is NaN, infinite or negative: such a limit limits nothing.
    """

    mode: DoseMode = DoseMode.REJECT
    max_relative_dose: float | None = None
    max_total_relative_dose: float | None = None
    allow_unmonitored: bool = False
    reference_norms: Mapping[int, float] = field(default_factory=dict)
    by_vector: Mapping[str, float] = field(default_factory=dict)
    by_caller: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits: dict[str, float | None] = {
            "max_relative_dose": self.max_relative_dose,
            "max_total_relative_dose": self.max_total_relative_dose,
        }
        limits |= {f"by_vector[{name}]": limit for name, limit in self.by_vector.items()}
        limits |= {f"by_caller[{label}]": limit for label, limit in self.by_caller.items()}
        for name, limit in limits.items():
            if limit is not None and not 0.0 <= limit < math.inf:
                raise ValueError(f"{name} must be finite and >= 0, is {limit}")

    def of(self, caller: str) -> "DosePolicy":
        """Returns the policy for one caller: the lower of its own limit and everybody's."""
        own, everybodys = self.by_caller.get(caller), self.max_relative_dose
        if own is None or (everybodys is not None and everybodys <= own):
            return self
        return replace(self, max_relative_dose=own)

    @property
    def limited(self) -> bool:
        """Whether all that a request adds is limited."""
        return self.max_relative_dose is not None or self.max_total_relative_dose is not None


@dataclass(frozen=True, slots=True)
class DoseDecision:
    """What was decided for the contributions of one request.

    outcome: one of OUTCOMES.
    factor_by_layer: layer -> what each scale at that layer is multiplied with; 1.0 unless clamped.
    worst_layer: the layer with the largest dose, or the first without a usable norm if that is
        the reason; None if nothing was measured.
    relative_dose: the dose asked for at the worst layer; None if not measured.
    total_relative_dose: the dose asked for over all measured layers; None if not measured.
    reason: why it was rejected, DOSE_EXCEEDED or DOSE_UNKNOWN_NORM; None otherwise.
    """

    outcome: str
    factor_by_layer: Mapping[int, float]
    worst_layer: int | None = None
    relative_dose: float | None = None
    total_relative_dose: float | None = None
    reason: str | None = None


def decide(policy: DosePolicy, contributions: Sequence[Contribution]) -> DoseDecision:
    """Decides on contributions, several of which may share a layer.

    Without a limit everything is allowed and no norm is needed. An amount that is NaN, infinite
    or negative counts as an infinite dose. In shadow mode the outcome is SHADOWED whatever the
    doses are, which are measured where there are norms.
    """
    unchanged = dict.fromkeys((part.layer for part in contributions), 1.0)
    shadow = policy.mode is DoseMode.SHADOW
    measured = contributions if policy.limited or shadow else _of_limited(policy, contributions)
    if not measured:
        return DoseDecision(ALLOWED, unchanged)
    doses, unknown = _measure(policy, measured)
    if shadow:
        return _decision(SHADOWED, unchanged, doses, DOSE_SHADOWED)
    return _enforced(policy, unchanged, doses, unknown)


def _enforced(
    policy: DosePolicy,
    unchanged: Mapping[int, float],
    doses: Mapping[int, "_Dose"],
    unknown: Sequence[int],
) -> DoseDecision:
    if unknown and not policy.allow_unmonitored and policy.mode is not DoseMode.WARN:
        return DoseDecision(REJECTED, unchanged, unknown[0], reason=DOSE_UNKNOWN_NORM)
    if not _over(policy, doses):
        return _decision(UNMONITORED if unknown else ALLOWED, unchanged, doses)
    if policy.mode is DoseMode.WARN:
        return _decision(WARNED, unchanged, doses)
    clamped = _clamp(policy, doses) if policy.mode is DoseMode.CLAMP else None
    if clamped is None:
        return _decision(REJECTED, unchanged, doses, DOSE_EXCEEDED)
    return _decision(CLAMPED, {**unchanged, **clamped}, doses)


def usable_norm(norm: object) -> bool:
    """Whether a reference norm can be divided by: a finite number that is not denormal in fp32."""
    return type(norm) in (float, int) and _TINY <= norm < math.inf  # type: ignore[operator]


class _Dose(NamedTuple):
    """The dose of one layer, and what each vector with a limit of its own has of it."""

    whole: float
    by_vector: Mapping[str, float]

    def times(self, factor: float) -> "_Dose":
        """Returns the dose with every scale multiplied."""
        by_vector = {name: dose * factor for name, dose in self.by_vector.items()}
        return _Dose(self.whole * factor, by_vector)


def _of_limited(
    policy: DosePolicy, contributions: Sequence[Contribution]
) -> Sequence[Contribution]:
    limited = policy.by_vector
    return [part for part in contributions if part.vector in limited or part.target in limited]


def _measure(
    policy: DosePolicy, contributions: Sequence[Contribution]
) -> tuple[dict[int, _Dose], list[int]]:
    """Returns the dose of each layer where it is known, and the layers that lack a usable norm."""
    layers: dict[int, list[Contribution]] = {}
    for part in contributions:
        layers.setdefault(part.layer, []).append(part)
    doses: dict[int, _Dose] = {}
    unknown: list[int] = []
    for layer, parts in layers.items():
        norm = policy.reference_norms.get(layer)
        usable = norm is not None and usable_norm(norm)
        whole = _dose(parts, norm if usable else None)
        if whole is None:
            unknown.append(layer)
            continue
        named = {part.vector for part in parts} | {part.target for part in parts}
        names = named & policy.by_vector.keys()
        by_vector = {name: [p for p in parts if name in (p.vector, p.target)] for name in names}
        own = {name: _dose(some, norm) or 0.0 for name, some in by_vector.items()}
        doses[layer] = _Dose(whole, own)
    return doses, unknown


def _dose(parts: Sequence[Contribution], norm: float | None) -> float | None:
    """Returns the relative dose of what is added together; None if it takes a norm to say.

    What is relative is so to the stream that the operations before it have made longer.
    """
    amount = _sum([_finite(part.amount) for part in parts])
    relative = _sum([_finite(part.relative) for part in parts])
    if norm is None and not (amount == 0.0 and relative > 0.0):
        return None
    if relative == 0.0:
        return amount / (norm or 1.0)
    total = 0.0
    for part in parts:
        added = _finite(part.amount) / norm if norm is not None else 0.0
        total += added + _finite(part.relative) * (1.0 + total)
    return total


def _finite(amount: float) -> float:
    return amount if 0.0 <= amount < math.inf else math.inf


def _sum(parts: Sequence[float]) -> float:
    """The correctly rounded sum of numbers >= 0; infinite when it overflows."""
    try:
        return math.fsum(parts)
    except OverflowError:
        return math.inf


def _over(policy: DosePolicy, doses: Mapping[int, _Dose]) -> bool:
    if any(d > limit for dose in doses.values() for d, limit in _limits(policy, dose)):
        return True
    total_limit = policy.max_total_relative_dose
    return total_limit is not None and _sum([dose.whole for dose in doses.values()]) > total_limit


def _limits(policy: DosePolicy, dose: _Dose) -> Iterator[tuple[float, float]]:
    """Yields each dose of a layer that has a limit, and the limit."""
    if policy.max_relative_dose is not None:
        yield dose.whole, policy.max_relative_dose
    for name, own in dose.by_vector.items():
        yield own, policy.by_vector[name]


def _clamp(policy: DosePolicy, doses: Mapping[int, _Dose]) -> dict[int, float] | None:
    """Returns a factor for each layer that brings it under the limits, or None if none does."""
    factors = {
        layer: min((_factor(d, limit) for d, limit in _limits(policy, dose)), default=1.0)
        for layer, dose in doses.items()
    }
    total_limit = policy.max_total_relative_dose
    if total_limit is not None:
        reached = _sum([dose.whole * factors[layer] for layer, dose in doses.items()])
        common = _factor(reached, total_limit)
        factors = {layer: factor * common for layer, factor in factors.items()}
    # A dose of infinity times a factor of 0 is NaN, which no comparison below lets through.
    met = {layer: dose.times(factors[layer]) for layer, dose in doses.items()}
    usable = all(factor >= _LEAST_FACTOR for factor in factors.values())
    finite = all(math.isfinite(dose.whole) for dose in met.values())
    return factors if usable and finite and not _over(policy, met) else None


def _factor(dose: float, limit: float) -> float:
    if dose <= limit:
        return 1.0
    return 0.0 if limit < _TINY else limit / dose * _MARGIN


def _decision(
    outcome: str,
    factors: Mapping[int, float],
    doses: Mapping[int, _Dose],
    reason: str | None = None,
) -> DoseDecision:
    if not doses:
        return DoseDecision(outcome, factors, reason=reason)
    worst = max(doses, key=lambda layer: doses[layer].whole)
    total = _sum([dose.whole for dose in doses.values()])
    return DoseDecision(outcome, factors, worst, doses[worst].whole, total, reason)
