"""What a request asks for, decided by a snapshot: a program, or the reason why it gets none.

Nothing here knows a request's prompt; one decision serves all that ask for the same.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hotwire_plugin import spec as specs
from hotwire_plugin.account import Account
from hotwire_plugin.availability import (
    ArmUse,
    canaries_of,
    check,
    drawn,
    fallen_back,
    next_expiry,
    with_canaries,
)
from hotwire_plugin.log import named
from hotwire_plugin.program import CALLER_KEY, SPEC_KEY, Program
from hotwire_plugin.resolve import DeclinedError, Resolved, resolve
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import EnginePolicy, Snapshot
from hotwire_plugin.spec import Spec
from hotwire_plugin.spec_error import SpecError

logger = logging.getLogger(__name__)

KILL_SWITCH = "KILL_SWITCH"
NODE_DISARMED = "NODE_DISARMED"

MAX_LABEL_CHARS = 256
_CACHED = 256
_CACHED_SPEC_CHARS = 4096


class Ask(NamedTuple):
    """What is asked for.

    Attributes:
        spec: the specification as it came; None asks for nothing.
        caller: the label that the request carries; empty for none.
        by_default: whether it is the policy that asks, and not the request.
    """

    spec: object
    caller: str = ""
    by_default: bool = False

    @classmethod
    def of(cls, extra_args: Mapping[str, Any] | None, policy: EnginePolicy) -> Ask:
        """Return what a request asks for, or what the policy does for one that asks nothing."""
        given = extra_args or {}
        spec, label = given.get(SPEC_KEY), given.get(CALLER_KEY)
        # No policy has a longer label, and what is decided for one is remembered.
        caller = label if isinstance(label, str) and len(label) <= MAX_LABEL_CHARS else ""
        if spec is None and policy.default_spec is not None:
            return cls(policy.default_spec, caller, by_default=True)
        return cls(spec, caller)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The decision about one request.

    program: what it gets, or None. reason: why it asked for steering that it can't have, else None;
    a request that asks for nothing, or only for scale 0, has neither. message: says why, safe to
    show. strict: whether a reason must refuse the request. dose_outcome: one of
    hotwired.dose.OUTCOMES, None if no dose was decided. account: what was asked for and what is in
    force, None if it did not come to that. arms: the vectors with a canary that are named, and
    which revision of them the program has.
    """

    program: Program | None = None
    reason: str | None = None
    message: str = ""
    strict: bool = False
    dose_outcome: str | None = None
    account: Account | None = None
    arms: tuple[ArmUse, ...] = ()

    def declined(self, reason: str, message: str) -> Admitted:
        """Return the same without a program."""
        return replace(self, program=None, reason=reason, message=message)


class Decisions:
    """Decides, and remembers what it decided under a snapshot. To be used under a lock.

    model: where the model can be steered. disarmed: returns why the node can't steer, None if it
    can. clock: returns the wall clock's seconds since the epoch.
    """

    def __init__(
        self,
        model: ModelShape,
        disarmed: Callable[[], str | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._model = model
        self._disarmed = disarmed
        self._clock = clock
        self._cache: OrderedDict[tuple[Ask, frozenset[str]], Admitted] = OrderedDict()
        self._cached_for: Snapshot | None = None
        self._good = (0.0, 0.0)
        self._canaries: Mapping[str, float] = {}

    def decide(self, ask: Ask, snapshot: Snapshot, request_id: str = "") -> Admitted:
        """Return what is asked for under a snapshot, without regard to a prompt.

        request_id: what canaries are drawn by; without it, none is used.
        """
        if ask.spec is None:
            return Admitted()
        now = self._clock()
        self._refresh(snapshot, now)
        on_trial = drawn(self._canaries, request_id)
        disarmed = self._disarmed()
        # Of a long text not even the hash is taken.
        brief = isinstance(ask.spec, str) and len(ask.spec) <= _CACHED_SPEC_CHARS
        if disarmed is not None or not brief:
            return self._decide(ask, snapshot, disarmed, now, on_trial)
        # One share for all vectors: there are no more different sets than there are canaries.
        key = ask, on_trial
        admitted = self._cache.get(key)
        if admitted is None:
            admitted = self._cache[key] = self._decide(ask, snapshot, None, now, on_trial)
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return admitted

    def _refresh(self, snapshot: Snapshot, now: float) -> None:
        """Forget decisions of another snapshot, and those that an expiry has overtaken.

        Those of a time that is still to come, too: then the clock was set back.
        """
        made, until = self._good
        if snapshot is self._cached_for and made <= now < until:
            return
        self._cache.clear()
        if snapshot is not self._cached_for:
            self._canaries = canaries_of(snapshot.vectors)
        self._cached_for = snapshot
        self._good = now, next_expiry(snapshot.vectors, now)

    def _decide(
        self,
        ask: Ask,
        snapshot: Snapshot,
        disarmed: str | None,
        now: float,
        on_trial: frozenset[str],
    ) -> Admitted:
        policy = snapshot.policy
        try:
            spec = _whole(specs.parse(ask.spec), policy, by_default=ask.by_default)
        except SpecError as exc:
            return Admitted(None, exc.reason, exc.message, policy.strict or exc.strict)
        undecided = Admitted(strict=policy.strict or spec.strict)
        if disarmed is not None:
            return undecided.declined(NODE_DISARMED, f"steering is off here: {disarmed}")
        if policy.kill_switch:
            return undecided.declined(KILL_SWITCH, "the kill switch is on")
        try:
            check(spec, snapshot.vectors, now)
            resolved, arms = self._resolved(spec, snapshot, ask.caller, on_trial)
        except DeclinedError as exc:
            declined = undecided.declined(exc.reason, exc.message)
            return replace(declined, dose_outcome=exc.dose_outcome, account=exc.account)
        program, outcome, account = resolved
        done = replace(undecided, program=program, dose_outcome=outcome)
        return replace(done, account=account, arms=arms)

    def _resolved(
        self, spec: Spec, snapshot: Snapshot, caller: str, on_trial: frozenset[str]
    ) -> tuple[Resolved, tuple[ArmUse, ...]]:
        """Return what the specification comes to, and the arms; raise DeclinedError.

        What can't be done with a canary is done without: a trial takes nothing from a request that
        it would have otherwise, and a strict one was let through for what the name's own can do.
        """
        own = snapshot
        snapshot, arms = with_canaries(spec, own, on_trial)
        try:
            return resolve(spec, snapshot, self._model, caller), arms
        except DeclinedError as exc:
            if snapshot is own:
                raise
            fields = named("canary unusable", reason=exc.reason, error=exc.message)
            logger.warning("a canary can't be used: %s: %s", exc.reason, exc.message, extra=fields)
            return resolve(spec, own, self._model, caller), fallen_back(arms)


def _whole(spec: Spec, policy: EnginePolicy, *, by_default: bool) -> Spec:
    """Return a specification with what the policy puts before it."""
    if by_default or not policy.default_adds or policy.default_spec is None:
        return spec
    return Spec(specs.parse(policy.default_spec).entries + spec.entries, spec.strict)
