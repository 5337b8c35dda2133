"""What the policy decides beside the dose: a default, callers' limits, the live limit, shadow."""

import json
import logging
import math

import pytest

from hotwire_plugin.program import CALLER_KEY, PROGRAM_KEY, SPEC_KEY, Program
from hotwired.dose import DoseMode, DosePolicy
from tests.support.admissions import CALM, JOY, REFERENCE, admission, limit

DEFAULT = json.dumps({"id": "calm", "layer": 3, "scale": 0.5})


def programs(extra_args: dict[str, object] | None, **policy: object) -> list[tuple[str, int]]:
    """Return (revision, layer) of each operation that a request gets under a policy."""
    granted = admission(**policy).admit(extra_args, "r")  # type: ignore[arg-type]
    raw = (granted.extra_args or {}).get(PROGRAM_KEY)
    return [(op.revision, op.layer) for op in Program.decode(raw).ops] if raw else []


def test_the_default_steers_those_that_ask_for_nothing() -> None:
    """Not those that ask for something, be it nothing at all in so many words."""
    assert programs(None, default_spec=DEFAULT) == [(CALM, 3)]
    assert programs({"other": 1}, default_spec=DEFAULT) == [(CALM, 3)]
    own = {SPEC_KEY: '{"id": "joy", "layer": 12}'}
    assert programs(own, default_spec=DEFAULT) == [(JOY, 12)]
    assert programs({SPEC_KEY: "[]"}, default_spec=DEFAULT) == []
    assert programs(None) == []


def test_the_default_can_go_before_what_is_asked_for() -> None:
    """Both act, the default first; a request that can't be read gets neither."""
    own = {SPEC_KEY: '{"id": "joy", "layer": 12}'}
    both = programs(own, default_spec=DEFAULT, default_adds=True)
    assert both == [(CALM, 3), (JOY, 12)]
    assert programs({SPEC_KEY: "[]"}, default_spec=DEFAULT, default_adds=True) == [(CALM, 3)]
    assert programs({SPEC_KEY: "{"}, default_spec=DEFAULT, default_adds=True) == []


def test_a_default_that_fails_is_told_once_and_counted_always(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every request runs without it; a line for each would bury the log."""
    subject = admission(default_spec='{"id": "nobody"}')
    with caplog.at_level(logging.WARNING, "hotwire_plugin.admission"):
        for n in range(5):
            assert subject.admit(None, str(n)).extra_args is None
    assert len(caplog.records) == 1
    assert "(asked: the default)" in caplog.text
    assert subject.report().requests_unsteered_total == {"VECTOR_NOT_FOUND": 5}
    assert subject.refuse(None) is None
    strict = admission(default_spec='{"id": "nobody"}', strict=True)
    assert strict.refuse(None) is not None


def test_callers_have_limits_of_their_own() -> None:
    """A label lowers the limit, never lifts it; it goes no further than admission."""
    dose = limit(per_layer=0.5, by_caller={"team": 0.1, "loose": 9.0})
    subject = admission(dose=dose)
    spec = {SPEC_KEY: '{"id": "joy", "scale": 2}'}  # a dose of 0.4
    assert subject.decide(spec, "r").reason is None
    assert subject.decide({**spec, CALLER_KEY: "loose"}, "r").reason is None
    assert subject.decide({**spec, CALLER_KEY: "team"}, "r").reason == "DOSE_EXCEEDED"
    assert subject.decide({**spec, CALLER_KEY: 7}, "r").reason is None
    args = subject.admit({**spec, CALLER_KEY: "loose", "other": 1}, "r").extra_args
    assert set(args or ()) == {PROGRAM_KEY, "other"}
    assert subject.admit({CALLER_KEY: "team"}, "s").extra_args is None


def test_a_vectors_limit_is_that_of_its_name() -> None:
    """What else a request asks for is measured by other limits, if there are any."""
    dose = DosePolicy(reference_norms=REFERENCE, by_vector={"joy": 0.1})
    subject = admission(dose=dose)
    assert subject.decide({SPEC_KEY: {"id": "joy"}}, "r").reason == "DOSE_EXCEEDED"
    assert subject.decide({SPEC_KEY: {"id": "calm", "layer": 1, "scale": 9}}, "r").reason is None


def test_the_live_limit_is_part_of_the_program() -> None:
    """Rounded down to fp32, so that no rounding lifts it; without one there is none."""
    subject = admission(live_limit=0.1)
    program = subject.decide({SPEC_KEY: {"id": "joy"}}, "r").program
    plain = admission().decide({SPEC_KEY: {"id": "joy"}}, "r").program
    assert program is not None
    assert plain is not None
    assert 0.1 - 1e-8 < program.limit <= 0.1
    assert plain.limit == math.inf
    assert program.digest != plain.digest
    assert Program.decode(program.encode()) == program


def test_shadow_counts_doses_and_steers_nothing() -> None:
    """The request runs unsteered, and the message has the figure."""
    subject = admission(dose=limit(DoseMode.SHADOW))
    admitted = subject.decide({SPEC_KEY: {"id": "joy"}}, "r")
    assert (admitted.program, admitted.reason) == (None, "DOSE_SHADOWED")
    assert "relative dose 0.2" in admitted.message
    assert subject.admit({SPEC_KEY: {"id": "joy"}}, "r").extra_args is None
    assert subject.report().dose_decisions_total == {"shadowed": 1}
