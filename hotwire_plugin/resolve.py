"""A specification, resolved against a snapshot into a program. Pure, but for a log line on dose."""

import difflib
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hotwire_plugin.account import Account
from hotwire_plugin.log import named
from hotwire_plugin.program import (
    MAX_OPS_PER_LAYER,
    Program,
    ProgramOp,
    to_fp32,
    to_fp32_down,
)
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import EnginePolicy, Snapshot, VectorMeta
from hotwire_plugin.spec import Spec
from hotwire_plugin.spec_entry import SpecEntry
from hotwire_plugin.spec_error import SCALE_NOT_FINITE, shown
from hotwired import dose
from hotwired.dose import Contribution, DoseDecision, DosePolicy

logger = logging.getLogger(__name__)

VECTOR_NOT_FOUND = "VECTOR_NOT_FOUND"
LAYER_REQUIRED = "LAYER_REQUIRED"
LAYER_OUT_OF_RANGE = "LAYER_OUT_OF_RANGE"
LAYER_NOT_IN_VECTOR = "LAYER_NOT_IN_VECTOR"
SCALES_MISMATCH = "SCALES_MISMATCH"
SITE_NOT_ARMED = "SITE_NOT_ARMED"
STREAM_OUT_OF_RANGE = "STREAM_OUT_OF_RANGE"
ZERO_DIRECTION = "ZERO_DIRECTION"
TOO_MANY_OPS = "TOO_MANY_OPS"
RESOLVE_REASONS = frozenset(
    {
        VECTOR_NOT_FOUND,
        LAYER_REQUIRED,
        LAYER_OUT_OF_RANGE,
        LAYER_NOT_IN_VECTOR,
        SCALES_MISMATCH,
        SITE_NOT_ARMED,
        STREAM_OUT_OF_RANGE,
        ZERO_DIRECTION,
        TOO_MANY_OPS,
        SCALE_NOT_FINITE,
        dose.DOSE_EXCEEDED,
        dose.DOSE_UNKNOWN_NORM,
        dose.DOSE_SHADOWED,
    }
)

_FP32_MAX = (2.0 - 2.0**-23) * 2.0**127
# How many times longer a site's ops may make the stream: its square must stay within fp32.
_MAX_GROWTH = 2.0**40
# The smallest normal fp32 number: what is shorter has lost digits, and so its direction.
_FP32_TINY = 2.0**-126
# Looking for a near name costs time in the engine's input thread, so few names are looked at.
_NAMES_COMPARED = 64


class DeclinedError(Exception):
    """A specification that the snapshot does not allow.

    reason: one of RESOLVE_REASONS. message: safe to show. dose_outcome: one of
    hotwired.dose.OUTCOMES, None if it was declined before the dose was looked at; account: what
    was asked for, with the same exception.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        dose_outcome: str | None = None,
        account: Account | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.dose_outcome = dose_outcome
        self.account = account


class Resolved(NamedTuple):
    """What a specification comes to.

    Attributes:
        program: what the request gets; None if nothing acts.
        dose_outcome: the outcome of the dose decision; None if nothing is limited.
        account: what was asked for and what is in force; None if nothing acts.
    """

    program: Program | None = None
    dose_outcome: str | None = None
    account: Account | None = None


def resolve(spec: Spec, snapshot: Snapshot, model: ModelShape, caller: str = "") -> Resolved:
    """Returns what a specification comes to under a snapshot.

    caller: the label that the request carries, if any. Raises DeclinedError.
    """
    ops: list[ProgramOp] = []
    contributions: list[Contribution] = []
    stacks: dict[tuple[int, str], _Stack] = {}
    for entry in spec.entries:
        for op, contribution in _ops(entry, snapshot.vectors, model):
            stacks.setdefault((op.layer, op.site), _Stack()).put(op.layer, contribution)
            ops.append(op)
            contributions.append(contribution)
    return _dosed(ops, contributions, snapshot.policy, caller) if ops else Resolved()


class _Stack:
    """What stacks at one site of a layer: how many operations, and at most how long their sum."""

    __slots__ = ("amount", "ops", "relative")

    def __init__(self) -> None:
        self.ops = 0
        self.amount = 0.0
        self.relative = 1.0

    def put(self, layer: int, contribution: Contribution) -> None:
        self.ops += 1
        self.amount += contribution.amount
        # Each acts on what the one before it left.
        self.relative *= 1.0 + contribution.relative
        if self.ops > MAX_OPS_PER_LAYER:
            message = f"layer {layer} has more than {MAX_OPS_PER_LAYER} operations"
            raise DeclinedError(TOO_MANY_OPS, message)
        if not (self.amount <= _FP32_MAX and self.relative <= _MAX_GROWTH):
            raise DeclinedError(SCALE_NOT_FINITE, f"scale times vector overflows at layer {layer}")


def _ops(
    entry: SpecEntry, vectors: Mapping[str, VectorMeta], model: ModelShape
) -> list[tuple[ProgramOp, Contribution]]:
    """Returns what an entry does at each of its layers, but for where its scale is 0."""
    meta = _vector(entry.id, vectors)
    target = _vector(entry.target, vectors) if entry.target else None
    layers = _layers(entry, meta, model)
    if target is not None:
        _check_rows(target, layers)
    _check_place(entry, layers, model)
    plain = ProgramOp(
        *(meta.revision, 0, 0.0, entry.op, entry.scope, entry.positions, entry.site),
        # Of one stream, that stream is all of them: who says so shares blocks with who does not.
        *(None if model.streams == 1 else entry.stream, entry.bounds),
        target.revision if target else "",
    )
    found = []
    for layer, scale in zip(layers, _scales(entry, layers), strict=True):
        if _acts(scale):
            _check_directions(entry, layer, meta, target)
            op = replace(plain, layer=layer, scale=scale)
            contribution = _contribution(op, meta.norm_at(layer) or 0.0)
            found.append((op, contribution._replace(vector=entry.id, target=entry.target)))
    return found


def _scales(entry: SpecEntry, layers: Sequence[int]) -> Sequence[float]:
    if not isinstance(entry.scale, tuple):
        return [entry.scale] * len(layers)
    if len(entry.scale) != len(layers):
        raise DeclinedError(
            SCALES_MISMATCH,
            f"{len(entry.scale)} scales for the {len(layers)} layers of vector {shown(entry.id)}",
        )
    return entry.scale


def _check_place(entry: SpecEntry, layers: Sequence[int], model: ModelShape) -> None:
    for layer in layers:
        if not model.armed(layer, entry.site):
            raise DeclinedError(
                SITE_NOT_ARMED, f"site {entry.site!r} is not armed at layer {layer} here"
            )
    if entry.stream is not None and entry.stream >= model.streams:
        raise DeclinedError(
            STREAM_OUT_OF_RANGE, f"stream {entry.stream} is not in 0..{model.streams - 1}"
        )


def _check_directions(
    entry: SpecEntry, layer: int, meta: VectorMeta, target: VectorMeta | None
) -> None:
    """All but plain addition need the vectors' directions, which a row of zeros has not."""
    for needed in (meta, target):
        if needed is None or entry.op == "add":
            continue
        if not (needed.norm_at(layer) or 0.0) >= _FP32_TINY:
            message = f"vector {shown(needed.name)} has no direction at layer {layer}"
            raise DeclinedError(ZERO_DIRECTION, message)


def _contribution(op: ProgramOp, norm: float) -> Contribution:
    """Returns at most how much an operation changes the stream.

    A component of the stream is at most as long as the stream; the difference of two directions
    at most 2. What clamp adds to take a component of 0 to its nearer bound has its own length.
    """
    layer = op.layer - 1 if op.site == "pre" else op.layer
    strength = abs(op.scale)
    if op.op == "add":
        return Contribution(layer, strength * norm)
    if op.op == "swap":
        return Contribution(layer, 0.0, 2.0 * strength)
    if op.op == "clamp":
        low, high = op.bounds
        return Contribution(layer, strength * max(low, -high, 0.0), strength)
    return Contribution(layer, 0.0, strength)


def _acts(scale: float) -> bool:
    """Whether a scale is other than 0 in fp32."""
    try:
        return to_fp32(scale) != 0.0
    except OverflowError:
        raise DeclinedError(SCALE_NOT_FINITE, "a scale overflows fp32") from None


def _vector(name: str, vectors: Mapping[str, VectorMeta]) -> VectorMeta:
    meta = vectors.get(name)
    if meta is None:
        raise DeclinedError(VECTOR_NOT_FOUND, f"no vector {shown(name)}{_near_name(name, vectors)}")
    return meta


def _near_name(name: str, vectors: Mapping[str, VectorMeta]) -> str:
    if not vectors:
        return "; none is registered here"
    alike = (other for other in vectors if other[:1].lower() == name[:1].lower())
    some = list(itertools.islice(alike, _NAMES_COMPARED)) or list(
        itertools.islice(vectors, _NAMES_COMPARED)
    )
    near = difflib.get_close_matches(name[:64], some, 1)
    return f"; did you mean {shown(near[0])}?" if near else ""


def _layers(entry: SpecEntry, meta: VectorMeta, model: ModelShape) -> tuple[int, ...]:
    layers = entry.layers
    if layers is None:
        if meta.any_layer:
            raise DeclinedError(LAYER_REQUIRED, f"vector {shown(meta.name)} needs a layer")
        layers = meta.layers
    if layers and layers[-1] >= model.num_layers:
        raise DeclinedError(
            LAYER_OUT_OF_RANGE,
            f"layer {layers[-1]} is not in 0..{model.num_layers - 1} of the model",
        )
    _check_rows(meta, layers)
    return layers


def _check_rows(meta: VectorMeta, layers: Sequence[int]) -> None:
    for layer in layers:
        if meta.norm_at(layer) is None:
            raise DeclinedError(
                LAYER_NOT_IN_VECTOR, f"vector {shown(meta.name)} has no row for layer {layer}"
            )


def _dosed(
    ops: list[ProgramOp], contributions: Sequence[Contribution], engine: EnginePolicy, caller: str
) -> Resolved:
    policy = engine.dose.of(caller)
    decision = dose.decide(policy, contributions)
    account = Account.of(ops, contributions, decision)
    if decision.reason is not None:
        message = _dose_message(decision, policy)
        raise DeclinedError(decision.reason, message, decision.outcome, account)
    if decision.outcome in (dose.CLAMPED, dose.WARNED):
        fields = named("dose over limit", outcome=decision.outcome)
        logger.warning("%s: %s", decision.outcome, _dose_message(decision, policy), extra=fields)
    if decision.outcome == dose.CLAMPED:
        at = [contribution.layer for contribution in contributions]
        factors = [decision.factor_by_layer[layer] for layer in at]
        ops = list(map(_reduced, ops, factors))
        account = account.with_scales(ops)
    program = Program.build(ops, engine.live_limit)
    if program is None and decision.outcome == dose.CLAMPED:
        message = "nothing is left after clamping"
        raise DeclinedError(dose.DOSE_EXCEEDED, message, dose.REJECTED, account)
    limited = policy.limited or bool(policy.by_vector)
    return Resolved(program, decision.outcome if limited else None, account)


def _reduced(op: ProgramOp, factor: float) -> ProgramOp:
    """Returns the operation with a clamped scale, which no later rounding lifts over the limit."""
    if factor == 1.0:
        return op
    return replace(op, scale=to_fp32_down(op.scale * factor))


def _dose_message(decision: DoseDecision, policy: DosePolicy) -> str:
    if decision.reason == dose.DOSE_UNKNOWN_NORM:
        return f"layer {decision.worst_layer} has no usable reference norm, and a limit is set"
    if decision.outcome == dose.SHADOWED:
        measured = decision.relative_dose
        shown_dose = "unknown" if measured is None else f"{measured:.4g}"
        return f"the policy only measures: relative dose {shown_dose}, nothing is steered"
    layer_limit, asked = policy.max_relative_dose, decision.relative_dose
    if layer_limit is not None and asked is not None and asked > layer_limit:
        where = f"relative dose {asked:.4g} at layer {decision.worst_layer}"
        return f"{where} is over the limit {layer_limit:.4g}"
    total, total_limit = decision.total_relative_dose, policy.max_total_relative_dose
    if total_limit is not None and total is not None and total > total_limit:
        return f"total relative dose {total:.4g} is over the limit {total_limit:.4g}"
    return "a vector is over the limit that it has for itself"
