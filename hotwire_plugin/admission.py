"""Turns what a request asks for into its program, or into the reason why it gets none.

The engine's word counts (`Admission.admit`); a frontend asks the same of the same snapshot so
that it can refuse a strict request before it is sent on (`Admission.refuse`).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from hotwire_plugin import spec as specs
from hotwire_plugin.availability import AVAILABILITY_REASONS, Arm, fallen_back
from hotwire_plugin.decisions import KILL_SWITCH, NODE_DISARMED, Admitted, Ask, Decisions
from hotwire_plugin.ledger import EngineCounters, Ledger, Uses
from hotwire_plugin.log import bare, named
from hotwire_plugin.op_forms import directions
from hotwire_plugin.placement import MAX_PLACES_UNSEEN, MAX_SETS, Placement, count_sets
from hotwire_plugin.program import CALLER_KEY, PROGRAM_KEY, SPEC_KEY, Program
from hotwire_plugin.receipts import Foreseen, Receipt, Receipts, outcome_of
from hotwire_plugin.resolve import RESOLVE_REASONS, DeclinedError
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import SnapshotHolder
from hotwire_plugin.spec_error import SPEC_REASONS, shown

logger = logging.getLogger(__name__)

INTERNAL = "INTERNAL"
TOKENIZER_REQUIRED = "TOKENIZER_REQUIRED"
TOO_MANY_SETS = "TOO_MANY_SETS"
SLOTS_EXHAUSTED = "SLOTS_EXHAUSTED"
GENERATED_NOT_COUNTED = "GENERATED_NOT_COUNTED"
REASONS = (
    SPEC_REASONS
    | RESOLVE_REASONS
    | AVAILABILITY_REASONS
    | {KILL_SWITCH, NODE_DISARMED, INTERNAL, TOKENIZER_REQUIRED, TOO_MANY_SETS, SLOTS_EXHAUSTED}
    | {GENERATED_NOT_COUNTED}
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request's prompt: how long it is, and its tokens; None if they are not known yet.

    Of embeddings there are none.
    """

    length: int = 0
    tokens: Sequence[int] | None = ()


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
    tokens, None without a tokenizer; called when a request first asks to skip them. clock: returns
    the wall clock's seconds since the epoch, by which vectors expire. `receipts` has what came of
    the requests that were admitted.
    """

    def __init__(
        self,
        holder: SnapshotHolder,
        model: ModelShape,
        armed_reason: Callable[[], str | None],
        special_tokens: Callable[[], AbstractSet[int] | None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._holder = holder
        self._model = model
        self._special_tokens = special_tokens
        self._decisions = Decisions(model, armed_reason, clock)
        self._ledger = Ledger()
        self.receipts = Receipts()
        self._traceback_logged = False
        self._default_logged: tuple[int, str] | None = None

    def decide(
        self, extra_args: Mapping[str, Any] | None, request_id: str, drawn_by: str = ""
    ) -> Admitted:
        """Returns what a request with these extra_args gets, whatever its prompt is.

        drawn_by: the id that decides on canaries; without it, no canary is used.
        """
        with self._holder.lock:
            snapshot = self._holder.current
            ask = Ask.of(extra_args, snapshot.policy)
            try:
                return self._decisions.decide(ask, snapshot, drawn_by)
            except Exception as exc:  # noqa: BLE001 - whatever it is, the engine serves on
                return self._failed(ask.spec, request_id, exc)

    def admit(
        self,
        extra_args: dict[str, Any] | None,
        request_id: str,
        prompt: Prompt | None = None,
        drawn_by: str | None = None,
    ) -> Granted:
        """Returns what the engine goes on with, and puts the request on record.

        drawn_by: the id that decides on canaries, if it is not the request's; empty for none.
        """
        by = request_id if drawn_by is None else drawn_by
        with self._holder.lock:
            admitted, placement = self._placed(extra_args, request_id, prompt or Prompt(), by)
            uses = _uses(admitted.program)
            self._ledger.record(
                request_id, uses, admitted.reason, admitted.dose_outcome, admitted.arms
            )
            receipt = self._kept_receipt(request_id, extra_args, admitted)
            if admitted.reason is not None:
                self._log_unsteered(request_id, admitted, extra_args)
        # Those that did not ask are all requests, and those with a reason have a line of their own.
        if receipt is not None and not receipt.by_default and receipt.reason is None:
            _log_admitted(receipt)
        return Granted(_rewritten(extra_args, admitted.program), placement)

    def _placed(
        self, extra_args: Mapping[str, Any] | None, request_id: str, prompt: Prompt, drawn_by: str
    ) -> tuple[Admitted, Placement | None]:
        """Returns the decision, made for this very prompt, and how it is laid out over it."""
        admitted = self.decide(extra_args, request_id, drawn_by)
        if admitted.program is None:
            return admitted, None
        try:
            program = self._for_prompt(admitted.program, prompt)
            self._check(program, prompt)
            placement = Placement.of(program, prompt.length)
            self._check_counted(placement, prompt)
        except DeclinedError as exc:
            if any(use.arm is Arm.CANARY for use in admitted.arms):
                # There may be room for the name's own, which others use already.
                own, laid_out = self._placed(extra_args, request_id, prompt, "")
                return replace(own, arms=fallen_back(admitted.arms)), laid_out
            return admitted.declined(exc.reason, exc.message), None
        except Exception as exc:  # noqa: BLE001 - whatever it is, the engine serves on
            return self._failed((extra_args or {}).get(SPEC_KEY), request_id, exc), None
        return replace(admitted, program=program), placement

    def _check(self, program: Program, prompt: Prompt) -> None:
        """Declines what the workers might have no room for beside the requests that are live.

        A worker that ran out in a step would leave blocks in the prefix cache that hold less than
        their hash says.
        """
        # Of so many kinds of places no prompt makes more sets than there are rows.
        if prompt.tokens is None and len(program.places) > MAX_PLACES_UNSEEN:
            message = f"more than {MAX_PLACES_UNSEEN} kinds of positions in a later chunk"
            raise DeclinedError(TOO_MANY_SETS, message)
        if count_sets(program, prompt.length) > MAX_SETS:
            message = f"more than {MAX_SETS} different sets of operations act"
            raise DeclinedError(TOO_MANY_SETS, message)
        slots = self._model.slots
        if slots is not None and self._ledger.directions_with(directions(program.ops)) > slots:
            message = f"live requests use the workers' {slots} bank slots; see HOTWIRE_BANK_MIB"
            raise DeclinedError(SLOTS_EXHAUSTED, message)

    def _check_counted(self, placement: Placement, prompt: Prompt) -> None:
        """Declines what begins or ends within generated tokens where those are not counted."""
        if not self._model.counts_generated and placement.starts[-1] > prompt.length:
            message = "with speculation and async scheduling, generated tokens are not counted"
            raise DeclinedError(GENERATED_NOT_COUNTED, message)

    def _for_prompt(self, program: Program, prompt: Prompt) -> Program:
        """Spells out which positions hold special tokens, if the program skips those."""
        if not program.skips_special:
            return program
        special = self._special_tokens()
        if special is None or prompt.tokens is None:
            raise DeclinedError(
                TOKENIZER_REQUIRED, "skip_special_tokens needs a tokenizer and the whole prompt"
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
        if not self.decide(extra_args, "").strict:
            return None
        # No canary: the engine draws it, by an id that is not known yet, and never declines for it.
        admitted, _ = self._placed(extra_args, "", prompt or Prompt(), "")
        return Refusal(admitted.reason, admitted.message) if admitted.reason else None

    def foresee(
        self, extra_args: Mapping[str, Any] | None, prompt: Prompt | None = None
    ) -> Foreseen | None:
        """Returns what a request would get now, None if nothing is asked for. Counts nothing."""
        with self._holder.lock:
            snapshot = self._holder.current
            if Ask.of(extra_args, snapshot.policy).spec is None:
                return None
            admitted, _ = self._placed(extra_args, "", prompt or Prompt(), "")
            return Foreseen(outcome_of(admitted), snapshot.generation, admitted.reason)

    def finish(
        self, request_id: str, tokens_steered: int | None = None, *, held_back: bool = False
    ) -> None:
        """Takes a request that has ended, or was never admitted, off the record.

        tokens_steered, held_back: for its receipt; None is unknown.
        """
        self._ledger.finish(request_id)
        self.receipts.finish(request_id, tokens_steered, held_back=held_back)

    def revisions_in_use(self) -> set[str]:
        """Returns the revisions that admitted requests which have not ended use."""
        return self._ledger.revisions_in_use()

    def report(self) -> EngineCounters:
        """Returns the counters of this moment."""
        with self._holder.lock:
            return self._ledger.counters(self._holder.generation)

    def _kept_receipt(
        self, request_id: str, extra_args: Mapping[str, Any] | None, admitted: Admitted
    ) -> Receipt | None:
        """Keeps what came of a request and returns it; None if nothing was asked for."""
        snapshot = self._holder.current
        ask = Ask.of(extra_args, snapshot.policy)
        if ask.spec is None:
            return None
        receipt = Receipt.of(request_id, ask, admitted, snapshot.generation, time.time())
        self.receipts.put(receipt)
        return receipt

    def _log_unsteered(
        self, request_id: str, admitted: Admitted, extra_args: Mapping[str, Any] | None
    ) -> None:
        raw_spec = (extra_args or {}).get(SPEC_KEY)
        if raw_spec is None:
            # The default's fault is every request's: it is told once a generation.
            fault = self._holder.generation, str(admitted.reason)
            if fault == self._default_logged:
                return
            self._default_logged = fault
        logger.warning(
            "request %s runs unsteered: %s: %s (asked: %s)",
            shown(request_id),
            admitted.reason,
            admitted.message,
            "the default" if raw_spec is None else shown(raw_spec),
            extra=named(
                "request unsteered",
                request_id=bare(request_id),
                reason=admitted.reason,
                error=admitted.message,
            ),
        )

    def _log_traceback(self, request_id: str, exc: Exception) -> None:
        if not self._traceback_logged:
            self._traceback_logged = True
            logger.error(
                "admission failed on request %s",
                shown(request_id),
                exc_info=exc,
                extra=named("admission failed", request_id=bare(request_id)),
            )


def _log_admitted(receipt: Receipt) -> None:
    fields = named(
        "request admitted",
        request_id=bare(receipt.request_id),
        generation=receipt.generation,
        caller=bare(receipt.caller),
        outcome=receipt.outcome,
        ops=len(receipt.account.ops) if receipt.account else 0,
        relative_dose=receipt.account.relative_dose if receipt.account else None,
    )
    logger.info("request %s: %s", shown(receipt.request_id), receipt.outcome, extra=fields)


def _uses(program: Program | None) -> Uses | None:
    return Uses(program.revisions, directions(program.ops)) if program else None


def _asks_strict(raw_spec: object) -> bool:
    try:
        return specs.parse(raw_spec).strict
    except Exception:  # noqa: BLE001 - it may be what failed before
        return False


def stripped(extra_args: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns a request's extra_args without what is ours."""
    return _rewritten(extra_args, None)


def _rewritten(extra_args: dict[str, Any] | None, program: Program | None) -> dict[str, Any] | None:
    ours = (SPEC_KEY, CALLER_KEY, PROGRAM_KEY)
    if program is None and not any(key in (extra_args or {}) for key in ours):
        return extra_args
    kept = {key: value for key, value in (extra_args or {}).items() if key not in ours}
    if program is not None:
        kept[PROGRAM_KEY] = program.encode()
    return kept or None
