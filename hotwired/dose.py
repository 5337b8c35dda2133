"""Relative dose: how large what is added is, against the residual stream it is added to.

The dose of a layer is the sum over what stacks there of |scale| * ||row||, divided by the
reference norm of the residual stream after that layer: an upper bound of ||added|| / ||stream||.
An operation that is relative to the stream in itself adds its own bound, without a norm. The total
is the sum over layers. Pure: no I/O, standard library only.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ALLOWED = "allowed"
CLAMPED = "clamped"
WARNED = "warned"
REJECTED = "rejected"
UNMONITORED = "unmonitored"
OUTCOMES = (ALLOWED, CLAMPED, WARNED, REJECTED, UNMONITORED)

DOSE_EXCEEDED = "DOSE_EXCEEDED"
DOSE_UNKNOWN_NORM = "DOSE_UNKNOWN_NORM"

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
    """

    layer: int
    amount: float
    relative: float = 0.0


class DoseMode(enum.Enum):
    """What happens to a request whose dose is over a limit."""

    REJECT = "reject"
    CLAMP = "clamp"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class DosePolicy:
    """The limits and the table they are measured against.

    mode: what happens over a limit.
    max_relative_dose: the limit at each layer, finite and >= 0; None is no limit.
    max_total_relative_dose: the limit of the sum over layers, finite and >= 0; None is no limit.
    allow_unmonitored: whether a layer without a usable reference norm may be steered.
    reference_norms: layer -> mean L2 norm of the residual stream after it.
    Raises ValueError for a limit that is NaN, infinite or negative: such a limit limits nothing.
    """

    mode: DoseMode = DoseMode.REJECT
    max_relative_dose: float | None = None
    max_total_relative_dose: float | None = None
    allow_unmonitored: bool = False
    reference_norms: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("max_relative_dose", "max_total_relative_dose"):
            limit = getattr(self, name)
            if limit is not None and not 0.0 <= limit < math.inf:
                raise ValueError(f"{name} must be finite and >= 0, is {limit}")

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
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
    or negative counts as an infinite dose.
    """
    amounts = _by_layer(contributions)
    unchanged = dict.fromkeys(amounts, 1.0)
    if not policy.limited:
        return DoseDecision(ALLOWED, unchanged)
    doses, unknown = _measure(policy, amounts)
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


@dataclass(frozen=True, slots=True)
class _Layer:
    """What stacks at one layer: norms of what is added, and bounds relative to the stream."""

    amounts: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)


def _by_layer(contributions: Sequence[Contribution]) -> dict[int, _Layer]:
    layers: dict[int, _Layer] = {}
    for layer, amount, relative in contributions:
        parts = layers.setdefault(layer, _Layer())
        parts.amounts.append(_finite(amount))
        parts.relative.append(_finite(relative))
    return layers


def _finite(amount: float) -> float:
    return amount if 0.0 <= amount < math.inf else math.inf


def _measure(
    policy: DosePolicy, layers: Mapping[int, _Layer]
) -> tuple[dict[int, float], list[int]]:
    """Returns the dose of each layer where it is known, and the layers that lack a usable norm."""
    doses: dict[int, float] = {}
    unknown: list[int] = []
    for layer, parts in layers.items():
        norm = policy.reference_norms.get(layer)
        amount, relative = _sum(parts.amounts), _sum(parts.relative)
        if norm is not None and usable_norm(norm):
            doses[layer] = amount / norm + relative
        elif amount == 0.0 and relative > 0.0:
            doses[layer] = relative
        else:
            unknown.append(layer)
    return doses, unknown


def _sum(parts: Sequence[float]) -> float:
    """The correctly rounded sum of numbers >= 0; infinite when it overflows."""
    try:
        return math.fsum(parts)
    except OverflowError:
        return math.inf


def _over(policy: DosePolicy, doses: Mapping[int, float]) -> bool:
    layer_limit, total_limit = policy.max_relative_dose, policy.max_total_relative_dose
    if layer_limit is not None and any(dose > layer_limit for dose in doses.values()):
        return True
    return total_limit is not None and _sum(list(doses.values())) > total_limit


def _clamp(policy: DosePolicy, doses: Mapping[int, float]) -> dict[int, float] | None:
    """Returns a factor for each layer that brings it under the limits, or None if none does."""
    factors = dict.fromkeys(doses, 1.0)
    limit = policy.max_relative_dose
    if limit is not None:
        factors = {layer: _factor(dose, limit) for layer, dose in doses.items()}
    total_limit = policy.max_total_relative_dose
    if total_limit is not None:
        common = _factor(
            _sum([dose * factors[layer] for layer, dose in doses.items()]), total_limit
        )
        factors = {layer: factor * common for layer, factor in factors.items()}
    # A dose of infinity times a factor of 0 is NaN, which no comparison below lets through.
    met = {layer: dose * factors[layer] for layer, dose in doses.items()}
    usable = all(factor >= _LEAST_FACTOR for factor in factors.values())
    finite = all(math.isfinite(dose) for dose in met.values())
    return factors if usable and finite and not _over(policy, met) else None


def _factor(dose: float, limit: float) -> float:
    if dose <= limit:
        return 1.0
    return 0.0 if limit < _TINY else limit / dose * _MARGIN


def _decision(
    outcome: str,
    factors: Mapping[int, float],
    doses: Mapping[int, float],
    reason: str | None = None,
) -> DoseDecision:
    if not doses:
        return DoseDecision(outcome, factors, reason=reason)
    worst = max(doses, key=doses.__getitem__)
    total = _sum(list(doses.values()))
    return DoseDecision(outcome, factors, worst, doses[worst], total, reason)
