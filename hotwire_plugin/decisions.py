"""What a request asks for, decided by a snapshot: a program, or the reason why it gets none.

Nothing here knows a request's prompt; one decision serves all that ask for the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hotwire_plugin import spec as specs
from hotwire_plugin.account import Account
from hotwire_plugin.program import CALLER_KEY, SPEC_KEY, Program
from hotwire_plugin.resolve import DeclinedError, resolve
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import EnginePolicy, Snapshot
from hotwire_plugin.spec import Spec
from hotwire_plugin.spec_error import SpecError

KILL_SWITCH = "KILL_SWITCH"
NODE_DISARMED = "NODE_DISARMED"

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
        caller = label if isinstance(label, str) else ""
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
    force, None if it did not come to that.
    """

    program: Program | None = None
    reason: str | None = None
    message: str = ""
    strict: bool = False
    dose_outcome: str | None = None
    account: Account | None = None

    def declined(self, reason: str, message: str) -> Admitted:
        """Return the same without a program."""
        return replace(self, program=None, reason=reason, message=message)


class Decisions:
    """Decides, and remembers what it decided under a snapshot. To be used under a lock.

    model: where the model can be steered. disarmed: returns why the node can't steer, None if it
    can.
    """

    def __init__(self, model: ModelShape, disarmed: Callable[[], str | None]) -> None:
        self._model = model
        self._disarmed = disarmed
        self._cache: OrderedDict[tuple[str, str], Admitted] = OrderedDict()
        self._cached_for: Snapshot | None = None

    def decide(self, ask: Ask, snapshot: Snapshot) -> Admitted:
        """Return what is asked for under a snapshot, without regard to a prompt."""
        if ask.spec is None:
            return Admitted()
        if snapshot is not self._cached_for:
            self._cache.clear()
            self._cached_for = snapshot
        disarmed = self._disarmed()
        # Of a long text not even the hash is taken.
        brief = isinstance(ask.spec, str) and len(ask.spec) <= _CACHED_SPEC_CHARS
        if disarmed is not None or not brief:
            return self._decide(ask, snapshot, disarmed)
        return self._remembered(str(ask.spec), ask, snapshot)

    def _remembered(self, text: str, ask: Ask, snapshot: Snapshot) -> Admitted:
        key = text, ask.caller
        admitted = self._cache.get(key)
        if admitted is None:
            admitted = self._cache[key] = self._decide(ask, snapshot, None)
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return admitted

    def _decide(self, ask: Ask, snapshot: Snapshot, disarmed: str | None) -> Admitted:
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
            program, outcome, account = resolve(spec, snapshot, self._model, ask.caller)
        except DeclinedError as exc:
            declined = undecided.declined(exc.reason, exc.message)
            return replace(declined, dose_outcome=exc.dose_outcome, account=exc.account)
        return replace(undecided, program=program, dose_outcome=outcome, account=account)


def _whole(spec: Spec, policy: EnginePolicy, *, by_default: bool) -> Spec:
    """Return a specification with what the policy puts before it."""
    if by_default or not policy.default_adds or policy.default_spec is None:
        return spec
    return Spec(specs.parse(policy.default_spec).entries + spec.entries, spec.strict)
