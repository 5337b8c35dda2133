"""A specification, resolved against a snapshot into a program. Pure, but for a log line on dose."""

import difflib
import itertools
import logging
from collections.abc import Mapping, Sequence

from hotwire_plugin.program import (
    MAX_OPS_PER_LAYER,
    Program,
    ProgramOp,
    to_fp32,
    to_fp32_down,
)
from hotwire_plugin.snapshot import Snapshot, VectorMeta
from hotwire_plugin.spec import SCALE_NOT_FINITE, Spec, SpecEntry, shown
from hotwired import dose
from hotwired.dose import DoseDecision, DosePolicy

logger = logging.getLogger(__name__)

VECTOR_NOT_FOUND = "VECTOR_NOT_FOUND"
LAYER_REQUIRED = "LAYER_REQUIRED"
LAYER_OUT_OF_RANGE = "LAYER_OUT_OF_RANGE"
LAYER_NOT_IN_VECTOR = "LAYER_NOT_IN_VECTOR"
TOO_MANY_OPS = "TOO_MANY_OPS"
RESOLVE_REASONS = frozenset(
    {
        VECTOR_NOT_FOUND,
        LAYER_REQUIRED,
        LAYER_OUT_OF_RANGE,
        LAYER_NOT_IN_VECTOR,
        TOO_MANY_OPS,
        SCALE_NOT_FINITE,
        dose.DOSE_EXCEEDED,
        dose.DOSE_UNKNOWN_NORM,
    }
)

_FP32_MAX = (2.0 - 2.0**-23) * 2.0**127
# Looking for a near name costs time in the engine's input thread, so few names are looked at.
_NAMES_COMPARED = 64


class DeclinedError(Exception):
    """A specification that the snapshot does not allow.

    reason: one of RESOLVE_REASONS. message: safe to show. dose_outcome: one of
    hotwired.dose.OUTCOMES, None if it was declined before the dose was looked at.
    """

    def __init__(self, reason: str, message: str, dose_outcome: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.dose_outcome = dose_outcome


def resolve(spec: Spec, snapshot: Snapshot, num_layers: int) -> tuple[Program | None, str | None]:
    """Returns the program, None if nothing acts, and the outcome of the dose decision if limited.

    num_layers: the model's blocks. Raises DeclinedError.
    """
    ops: list[ProgramOp] = []
    amounts: list[tuple[int, float]] = []
    stacks: dict[int, _Stack] = {}
    for entry in spec.entries:
        meta = _vector(entry.id, snapshot.vectors)
        layers = _layers(entry, meta, num_layers)
        if not _acts(entry):
            continue
        for layer in layers:
            amount = abs(entry.scale) * (meta.norm_at(layer) or 0.0)
            stacks.setdefault(layer, _Stack()).put(layer, amount)
            ops.append(ProgramOp(meta.revision, layer, entry.scale, entry.op, entry.scope))
            amounts.append((layer, amount))
    return _dosed(ops, amounts, snapshot.policy.dose) if ops else (None, None)


class _Stack:
    """What stacks at one layer: how many operations, and at most how long their sum is."""

    __slots__ = ("amount", "ops")

    def __init__(self) -> None:
        self.ops = 0
        self.amount = 0.0

    def put(self, layer: int, amount: float) -> None:
        self.ops += 1
        self.amount += amount
        if self.ops > MAX_OPS_PER_LAYER:
            message = f"layer {layer} has more than {MAX_OPS_PER_LAYER} operations"
            raise DeclinedError(TOO_MANY_OPS, message)
        if not self.amount <= _FP32_MAX:
            raise DeclinedError(SCALE_NOT_FINITE, f"scale times vector overflows at layer {layer}")


def _acts(entry: SpecEntry) -> bool:
    """Whether the scale is other than 0 in fp32."""
    try:
        return to_fp32(entry.scale) != 0.0
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


def _layers(entry: SpecEntry, meta: VectorMeta, num_layers: int) -> tuple[int, ...]:
    layers = entry.layers
    if layers is None:
        if meta.any_layer:
            raise DeclinedError(LAYER_REQUIRED, f"vector {shown(meta.name)} needs a layer")
        layers = meta.layers
    if layers and layers[-1] >= num_layers:
        raise DeclinedError(
            LAYER_OUT_OF_RANGE, f"layer {layers[-1]} is not in 0..{num_layers - 1} of the model"
        )
    for layer in layers:
        if meta.norm_at(layer) is None:
            raise DeclinedError(
                LAYER_NOT_IN_VECTOR, f"vector {shown(meta.name)} has no row for layer {layer}"
            )
    return layers


def _dosed(
    ops: list[ProgramOp], amounts: Sequence[tuple[int, float]], policy: DosePolicy
) -> tuple[Program | None, str | None]:
    decision = dose.decide(policy, amounts)
    if decision.reason is not None:
        message = _dose_message(decision, policy)
        raise DeclinedError(decision.reason, message, decision.outcome)
    if decision.outcome in (dose.CLAMPED, dose.WARNED):
        logger.warning("%s: %s", decision.outcome, _dose_message(decision, policy))
    if decision.outcome == dose.CLAMPED:
        ops = [_reduced(op, decision.factor_by_layer[op.layer]) for op in ops]
    program = Program.build(ops)
    if program is None and decision.outcome == dose.CLAMPED:
        raise DeclinedError(dose.DOSE_EXCEEDED, "nothing is left after clamping", dose.REJECTED)
    return program, decision.outcome if policy.limited else None


def _reduced(op: ProgramOp, factor: float) -> ProgramOp:
    """Returns the operation with a clamped scale, which no later rounding lifts over the limit."""
    if factor == 1.0:
        return op
    return ProgramOp(op.revision, op.layer, to_fp32_down(op.scale * factor), op.op, op.scope)


def _dose_message(decision: DoseDecision, policy: DosePolicy) -> str:
    if decision.reason == dose.DOSE_UNKNOWN_NORM:
        return f"layer {decision.worst_layer} has no usable reference norm, and a limit is set"
    layer_limit, asked = policy.max_relative_dose, decision.relative_dose
    if layer_limit is not None and asked is not None and asked > layer_limit:
        where = f"relative dose {asked:.4g} at layer {decision.worst_layer}"
        return f"{where} is over the limit {layer_limit:.4g}"
    total, total_limit = decision.total_relative_dose, policy.max_total_relative_dose
    return f"total relative dose {total:.4g} is over the limit {total_limit:.4g}"
