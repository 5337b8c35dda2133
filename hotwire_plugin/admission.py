"""Turns what a request asks for into its program, or into the reason why it gets none.

The engine's word counts (`Admission.admit`); a frontend asks the same of the same snapshot so
that it can refuse a strict request before it is sent on (`Admission.refuse`).
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from hotwire_plugin import spec as specs
from hotwire_plugin.ledger import EngineCounters, Ledger, Uses
from hotwire_plugin.op_forms import directions
from hotwire_plugin.placement import MAX_SETS, Placement
from hotwire_plugin.program import PROGRAM_KEY, SPEC_KEY, Program
from hotwire_plugin.resolve import RESOLVE_REASONS, DeclinedError, resolve
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import Snapshot, SnapshotHolder
from hotwire_plugin.spec_error import SPEC_REASONS, SpecError, shown

logger = logging.getLogger(__name__)

KILL_SWITCH = "KILL_SWITCH"
NODE_DISARMED = "NODE_DISARMED"
INTERNAL = "INTERNAL"
TOKENIZER_REQUIRED = "TOKENIZER_REQUIRED"
TOO_MANY_SETS = "TOO_MANY_SETS"
SLOTS_EXHAUSTED = "SLOTS_EXHAUSTED"
REASONS = (
    SPEC_REASONS
    | RESOLVE_REASONS
    | {KILL_SWITCH, NODE_DISARMED, INTERNAL, TOKENIZER_REQUIRED, TOO_MANY_SETS, SLOTS_EXHAUSTED}
)

_CACHED_SPECS = 256
_CACHED_SPEC_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Admitted:
    """The decision about one request.

    program: what it gets, or None. reason: one of REASONS if it asked for steering that it can't
    have, else None; a request that asks for nothing, or only for scale 0, has neither. message:
    says why, safe to show. strict: whether a reason must refuse the request. dose_outcome: one of
    hotwired.dose.OUTCOMES, None if no dose was decided.
    """

    program: Program | None = None
    reason: str | None = None
    message: str = ""
    strict: bool = False
    dose_outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request's prompt: how long it is, and its tokens if it has any (embeddings have none)."""

    length: int = 0
    tokens: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Granted:
    """What the engine goes on with.

    extra_args: the request's, with the encoded program under PROGRAM_KEY if there is one, and never
    the specification or a program that a client made up; None if nothing is in them.
    placement: the program laid out over the request, None if there is none.
    """

    extra_args: dict[str, Any] | None
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a strict request is not served: one of REASONS, and a message safe to show."""

    reason: str
    message: str


class Admission:
    """Admits requests by the snapshot in force. Thread-safe; no method raises.

    holder: where the snapshot is. model: where the model can be steered. armed_reason: returns why
    the node can't steer, None if it can. special_tokens: returns the ids of the tokenizer's special
    tokens, None without a tokenizer; called when a request first asks to skip them.
    """

    def __init__(
        self,
        holder: SnapshotHolder,
        model: ModelShape,
        armed_reason: Callable[[], str | None],
        special_tokens: Callable[[], AbstractSet[int] | None] = lambda: None,
    ) -> None:
        self._holder = holder
        self._model = model
        self._armed_reason = armed_reason
        self._special_tokens = special_tokens
        self._ledger = Ledger()
        self._cache: OrderedDict[str, Admitted] = OrderedDict()
        self._cached_for: Snapshot | None = None
        self._traceback_logged = False

    def decide(self, raw_spec: object, request_id: str) -> Admitted:
        """Returns what a request gets that has raw_spec under SPEC_KEY; None asks for nothing."""
        if raw_spec is None:
            return Admitted()
        with self._holder.lock:
            snapshot = self._holder.current
            try:
                return self._decide_cached(raw_spec, snapshot)
            except Exception as exc:  # noqa: BLE001 - whatever it is, the engine serves on
                return self._failed(raw_spec, request_id, exc)

    def admit(
        self, extra_args: dict[str, Any] | None, request_id: str, prompt: Prompt | None = None
    ) -> Granted:
        """Returns what the engine goes on with, and puts the request on record."""
        raw_spec = extra_args.get(SPEC_KEY) if extra_args else None
        with self._holder.lock:
            admitted, placement = self._placed(raw_spec, request_id, prompt or Prompt())
            uses = _uses(admitted.program)
            self._ledger.record(request_id, uses, admitted.reason, admitted.dose_outcome)
        if admitted.reason is not None:
            _log_unsteered(request_id, admitted, raw_spec)
        return Granted(_rewritten(extra_args, admitted.program), placement)

    def _placed(
        self, raw_spec: object, request_id: str, prompt: Prompt
    ) -> tuple[Admitted, Placement | None]:
        """Returns the decision, made for this very prompt, and how it is laid out over it."""
        admitted = self.decide(raw_spec, request_id)
        if admitted.program is None:
            return admitted, None
        try:
            program = self._for_prompt(admitted.program, prompt)
            placement = Placement.of(program, prompt.length)
            self._check_room(program, placement)
        except DeclinedError as exc:
            declined = replace(admitted, program=None, reason=exc.reason, message=exc.message)
            return declined, None
        except Exception as exc:  # noqa: BLE001 - whatever it is, the engine serves on
            return self._failed(raw_spec, request_id, exc), None
        return replace(admitted, program=program), placement

    def _check_room(self, program: Program, placement: Placement) -> None:
        """Declines what the workers might have no room for beside the requests that are live.

        A worker that ran out in a step would leave blocks in the prefix cache that hold less than
        their hash says.
        """
        if len(placement.distinct) > MAX_SETS:
            message = f"more than {MAX_SETS} different sets of operations act"
            raise DeclinedError(TOO_MANY_SETS, message)
        slots = self._model.slots
        if slots is not None and self._ledger.directions_with(directions(program.ops)) > slots:
            message = f"live requests use the workers' {slots} bank slots; see HOTWIRE_BANK_MIB"
            raise DeclinedError(SLOTS_EXHAUSTED, message)

    def _for_prompt(self, program: Program, prompt: Prompt) -> Program:
        """Spells out which positions hold special tokens, if the program skips those."""
        if not program.skips_special:
            return program
        special = self._special_tokens()
        if special is None:
            raise DeclinedError(
                TOKENIZER_REQUIRED, "skip_special_tokens needs a tokenizer, and none is loaded"
            )
        found = (at for at, token in enumerate(prompt.tokens) if token in special)
        return program.without(tuple(found))

    def _failed(self, raw_spec: object, request_id: str, exc: Exception) -> Admitted:
        self._log_traceback(request_id, exc)
        strict = self._holder.current.policy.strict or _asks_strict(raw_spec)
        return Admitted(None, INTERNAL, "internal error", strict)

    def refuse(
        self, extra_args: Mapping[str, Any] | None, prompt: Prompt | None = None
    ) -> Refusal | None:
        """Returns why a request must be refused, None if it is served. Counts nothing.

        Without its prompt, what depends on that is left to the engine.
        """
        raw_spec = extra_args.get(SPEC_KEY) if extra_args else None
        if not self.decide(raw_spec, "").strict:
            return None
        admitted, _ = self._placed(raw_spec, "", prompt or Prompt())
        return Refusal(admitted.reason, admitted.message) if admitted.reason else None

    def finish(self, request_id: str) -> None:
        """Takes a request that has ended, or was never admitted, off the record."""
        self._ledger.finish(request_id)

    def revisions_in_use(self) -> set[str]:
        """Returns the revisions that admitted requests which have not ended use."""
        return self._ledger.revisions_in_use()

    def report(self) -> EngineCounters:
        """Returns the counters of this moment."""
        with self._holder.lock:
            return self._ledger.counters(self._holder.generation)

    def _decide_cached(self, raw_spec: object, snapshot: Snapshot) -> Admitted:
        if snapshot is not self._cached_for:
            self._cache.clear()
            self._cached_for = snapshot
        disarmed = self._armed_reason()
        if disarmed is not None or not isinstance(raw_spec, str):
            return self._decide(raw_spec, snapshot, disarmed)
        if len(raw_spec) > _CACHED_SPEC_CHARS:  # before it is hashed
            return self._decide(raw_spec, snapshot, None)
        admitted = self._cache.get(raw_spec)
        if admitted is None:
            admitted = self._cache[raw_spec] = self._decide(raw_spec, snapshot, None)
            if len(self._cache) > _CACHED_SPECS:
                self._cache.popitem(last=False)
        self._cache.move_to_end(raw_spec)
        return admitted

    def _decide(self, raw_spec: object, snapshot: Snapshot, disarmed: str | None) -> Admitted:
        strict = snapshot.policy.strict
        try:
            spec = specs.parse(raw_spec)
        except SpecError as exc:
            return Admitted(None, exc.reason, exc.message, strict or exc.strict)
        strict = strict or spec.strict
        if disarmed is not None:
            return Admitted(None, NODE_DISARMED, f"steering is off here: {disarmed}", strict)
        if snapshot.policy.kill_switch:
            return Admitted(None, KILL_SWITCH, "the kill switch is on", strict)
        try:
            program, outcome = resolve(spec, snapshot, self._model)
        except DeclinedError as exc:
            return Admitted(None, exc.reason, exc.message, strict, exc.dose_outcome)
        return Admitted(program, None, "", strict, outcome)

    def _log_traceback(self, request_id: str, exc: Exception) -> None:
        if not self._traceback_logged:
            self._traceback_logged = True
            logger.error("admission failed on request %s", shown(request_id), exc_info=exc)


def _uses(program: Program | None) -> Uses | None:
    return Uses(program.revisions, directions(program.ops)) if program else None


def _asks_strict(raw_spec: object) -> bool:
    try:
        return specs.parse(raw_spec).strict
    except Exception:  # noqa: BLE001 - it may be what failed before
        return False


def _rewritten(extra_args: dict[str, Any] | None, program: Program | None) -> dict[str, Any] | None:
    if not extra_args or (SPEC_KEY not in extra_args and PROGRAM_KEY not in extra_args):
        return extra_args
    kept = {k: v for k, v in extra_args.items() if k not in (SPEC_KEY, PROGRAM_KEY)}
    if program is not None:
        kept[PROGRAM_KEY] = program.encode()
    return kept or None


def _log_unsteered(request_id: str, admitted: Admitted, raw_spec: object) -> None:
    logger.warning(
        "request %s runs unsteered: %s: %s (asked: %s)",
        shown(request_id),
        admitted.reason,
        admitted.message,
        shown(raw_spec),
    )
