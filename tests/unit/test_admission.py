"""Admission: every reason, the trust boundary, dose, what is counted, and commits beside it."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwire_plugin import resolve
from hotwire_plugin.admission import REASONS, Admission, Admitted, Refusal
from hotwire_plugin.program import PROGRAM_KEY, SPEC_KEY, Program, ProgramOp
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import EnginePolicy, Snapshot, SnapshotHolder, VectorMeta
from hotwired.dose import DoseMode, DosePolicy
from tests.support.admissions import CALM, JOY, LAYERS, VECTORS, admission, limit


@pytest.mark.parametrize("raw", [None, "[]", '{"id": "joy", "scale": 0}',
    '[{"id": "joy", "scale": -0.0}, {"id": "calm", "layer": 1, "scale": 0}]',
    '{"id": "joy", "scale": 1e-60}'])  # fmt: skip
def test_asking_for_nothing_is_no_failure(raw: str | None) -> None:
    """No specification, no entries or only scales of 0: no program and no reason."""
    assert admission(dose=limit()).decide({SPEC_KEY: raw}, "r") == Admitted()
    subject = admission()
    assert subject.admit({SPEC_KEY: raw}, "r").extra_args is None
    assert subject.report().requests_unsteered_total == {}


REASONS_OF = {
    "SPEC_TOO_LARGE": "[" * 1_000_000,
    "SPEC_NOT_JSON": "{",
    "SPEC_INVALID": "[" * 10_000,
    "UNKNOWN_FIELD": {"id": "joy", "position": 3},
    "POSITIONS_INVALID": {"id": "joy", "positions": ["-"]},
    "SITE_UNKNOWN": {"id": "joy", "site": "middle"},
    "STREAM_INVALID": {"id": "joy", "stream": -1},
    "OP_ARGUMENT_INVALID": {"id": "joy", "cap": 0.5},
    "LAYER_INVALID": {"id": "joy", "layer": -1},
    "OP_UNSUPPORTED": {"id": "joy", "op": "rotate"},
    "TOO_MANY_ENTRIES": [{"id": "joy"}] * 65,
    "VECTOR_NOT_FOUND": {"id": "joyy"},
    "VECTOR_DISABLED": {"id": "off"},
    "VECTOR_EXPIRED": {"id": "old"},
    "LAYER_REQUIRED": {"id": "calm"},
    "LAYER_OUT_OF_RANGE": {"id": "calm", "layer": LAYERS},
    "LAYER_NOT_IN_VECTOR": {"id": "joy", "layer": [10, 20]},
    "SCALES_MISMATCH": {"id": "joy", "scale": [1.0, 2.0]},
    "SITE_NOT_ARMED": {"id": "joy", "site": "attn_out"},
    "STREAM_OUT_OF_RANGE": {"id": "joy", "stream": 1},
    "ZERO_DIRECTION": {"id": "flat", "layer": 3, "op": "ablate"},
    "TOKENIZER_REQUIRED": {"id": "joy", "skip_special_tokens": True},
    "TOO_MANY_OPS": [{"id": "joy"}] * 9,
    "TOO_MANY_SETS": [{"id": "joy", "layer": 10 + n, "from_generated": n} for n in range(9)],
    "SCALE_NOT_FINITE": '{"id": "joy", "scale": NaN}',
    "DOSE_SHADOWED": {"id": "joy"},
    "DOSE_EXCEEDED": {"id": "joy", "scale": 2.51},
    "DOSE_UNKNOWN_NORM": {"id": "calm", "layer": 29, "scale": 0.001},
}


def subject_for(reason: str, *, strict: bool = False) -> tuple[Admission, object]:
    """Returns an admission and a specification that it declines for the reason."""
    norms = dict.fromkeys(range(29), 10.0)
    dose = DosePolicy(max_relative_dose=0.5, reference_norms=norms)
    dose = dose if reason.startswith("DOSE") else DosePolicy()
    if reason == "DOSE_SHADOWED":
        dose = DosePolicy(DoseMode.SHADOW)
    if reason == "NODE_DISARMED":
        return admission(lambda: "no layers", strict=strict), {"id": "joy"}
    if reason == "KILL_SWITCH":
        return admission(kill_switch=True, strict=strict), {"id": "joy"}
    if reason == "INTERNAL":
        return admission(lambda: str(1 // 0), strict=strict), {"id": "joy"}
    if reason == "GENERATED_NOT_COUNTED":
        ahead = ModelShape(LAYERS, counts_generated=False)
        return admission(model=ahead, strict=strict), {"id": "joy", "from_generated": 3}
    if reason == "SLOTS_EXHAUSTED":
        small = ModelShape(LAYERS, slots=9)
        return admission(model=small, strict=strict), {"id": "joy"}
    return admission(dose=dose, strict=strict), REASONS_OF[reason]


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_degrades(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """The request runs unsteered, is counted by reason and logged in one line with its id."""
    subject, raw = subject_for(reason)
    with caplog.at_level(logging.WARNING, "hotwire_plugin.admission"):
        assert subject.admit({SPEC_KEY: raw, "other": 1}, "request-7").extra_args == {"other": 1}
    lines = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 1
    line = lines[0].getMessage()
    assert reason in line
    assert "request-7" in line
    assert len(line) < 500
    assert subject.report().requests_unsteered_total == {reason: 1}
    assert subject.refuse({SPEC_KEY: raw}) is None


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_refuses_under_a_strict_policy(reason: str) -> None:
    """The frontend has the reason and a message; nothing is counted."""
    subject, raw = subject_for(reason, strict=True)
    refusal = subject.refuse({SPEC_KEY: raw})
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert refusal.message.isprintable()
    assert refusal.message
    assert subject.report().requests_total == 0
    assert subject.decide({SPEC_KEY: raw}, "r").strict


@pytest.mark.parametrize("reason", sorted(REASONS - {"SPEC_TOO_LARGE", "SPEC_NOT_JSON"}))
def test_a_strict_entry_refuses_too(reason: str) -> None:
    """Under a lenient policy, "strict": true is enough, wherever the fault lies."""
    subject, raw = subject_for(reason)
    if reason == "SCALE_NOT_FINITE":
        raw = {"id": "joy", "scale": 1e39}
    if reason == "SPEC_INVALID":
        raw = {"id": "joy", "scale": True}
    entries = raw if isinstance(raw, list) else [raw]
    refusal = subject.refuse({SPEC_KEY: [{**entries[0], "strict": True}, *entries[1:]]})
    assert refusal is not None
    assert refusal.reason == reason


def test_what_is_fine_is_not_refused() -> None:
    """Strict or not, no specification at all included."""
    subject = admission(strict=True)
    assert subject.refuse({SPEC_KEY: '{"id": "joy", "strict": true}'}) is None
    assert subject.refuse({"other": 1}) is None
    assert subject.refuse({}) is None
    assert subject.refuse(None) is None


def test_the_kill_switch_does_not_touch_unsteered_requests() -> None:
    """Only a request that asks for steering has a reason."""
    subject = admission(kill_switch=True, strict=True)
    assert subject.admit({"other": 1}, "r").extra_args == {"other": 1}
    assert subject.refuse({"other": 1}) is None
    assert subject.report().requests_unsteered_total == {}


def test_the_engine_gets_the_program_and_not_the_spec() -> None:
    """The caller's dict is left alone."""
    given_args = {SPEC_KEY: '{"id": "joy"}', "other": [1]}
    args = admission().admit(given_args, "r").extra_args
    assert args is not None
    assert set(args) == {PROGRAM_KEY, "other"}
    assert (
        Program.decode(args[PROGRAM_KEY])
        == admission().decide({SPEC_KEY: {"id": "joy"}}, "r").program
    )
    assert given_args == {SPEC_KEY: '{"id": "joy"}', "other": [1]}


@pytest.mark.parametrize(
    "spec", [{}, {SPEC_KEY: None}, {SPEC_KEY: "{"}, {SPEC_KEY: '{"id": "joy"}'}]
)
def test_a_program_of_the_client_is_always_removed(spec: dict[str, object]) -> None:
    """Only admission makes programs: a client's passed no dose limit."""
    forged = Program((ProgramOp(CALM, 0, 1e6, "add", "all"),)).encode()
    for subject in (admission(), admission(kill_switch=True), admission(lambda: "off")):
        args = subject.admit({PROGRAM_KEY: forged, **spec}, "r").extra_args or {}
        assert args.get(PROGRAM_KEY) != forged
        assert SPEC_KEY not in args


@pytest.mark.parametrize("args", [None, {}, {"other": 1}])
def test_other_requests_are_passed_on_as_they_are(args: dict[str, object] | None) -> None:
    """The same object, counted and no more."""
    subject = admission()
    assert subject.admit(args, "r").extra_args is args
    assert subject.report().requests_total == 1
    assert subject.report().requests_live == 0


def test_the_record_of_live_requests() -> None:
    """A request is live from admit to finish; admitting an id again replaces it."""
    subject = admission()
    subject.admit({SPEC_KEY: {"id": "joy"}}, "one")
    subject.admit({SPEC_KEY: {"id": "calm", "layer": 1}}, "two")
    assert subject.revisions_in_use() == {JOY, CALM}
    subject.admit({SPEC_KEY: {"id": "joy"}}, "two")
    assert subject.revisions_in_use() == {JOY}
    subject.admit({SPEC_KEY: "{"}, "two")
    subject.finish("one")
    subject.finish("one")
    subject.finish("never seen")
    assert subject.revisions_in_use() == set()
    report = subject.report()
    assert (report.requests_total, report.requests_steered_total) == (4, 3)
    assert (report.requests_live, report.revisions_in_use) == (0, ())
    assert report.generation == 1


def test_a_new_snapshot_is_used_from_the_next_request_on() -> None:
    """A cached decision belongs to its snapshot; a running request keeps its revision."""
    holder = SnapshotHolder(Snapshot(1, VECTORS, EnginePolicy()))
    subject = Admission(holder, ModelShape(LAYERS), lambda: None)
    args = {SPEC_KEY: '{"id": "joy"}'}
    subject.admit(args, "one")
    moved = {**VECTORS, "joy": VectorMeta("joy", CALM, (1,), (1.0,))}
    holder.commit(Snapshot(2, moved, EnginePolicy()))
    subject.admit(args, "two")
    assert subject.revisions_in_use() == {JOY, CALM}
    holder.commit(Snapshot(3, {}, EnginePolicy()))
    assert subject.decide(args, "three").reason == "VECTOR_NOT_FOUND"
    holder.commit(Snapshot(3, moved, EnginePolicy()))
    assert subject.decide(args, "four").program is not None


def test_arming_is_asked_anew_for_each_request() -> None:
    """A node that is disarmed while it runs declines specifications seen before."""
    state: list[str | None] = [None, "gone", None]
    subject = admission(lambda: state.pop(0))
    reasons = [subject.decide({SPEC_KEY: '{"id": "joy"}'}, "r").reason for _ in range(3)]
    assert reasons == [None, "NODE_DISARMED", None]


def test_an_unexpected_exception_is_internal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised; the traceback is logged once, however often it happens."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(resolve.dose, "decide", fail)
    subject = admission()
    for request in ("one", "two"):
        assert subject.admit({SPEC_KEY: '{"id": "joy"}'}, request).extra_args is None
    assert subject.report().requests_unsteered_total == {"INTERNAL": 2}
    assert caplog.text.count("Traceback") == 1
    monkeypatch.undo()
    assert subject.decide({SPEC_KEY: '{"id": "joy"}'}, "three").program is not None


def test_logs_are_safe_from_what_clients_write(caplog: pytest.LogCaptureFixture) -> None:
    """Control characters are escaped, and at most 80 characters of each text are written."""
    subject = admission()
    subject.admit({SPEC_KEY: '\n\x1b[31m{"id": "' + "x" * 5000}, "id\r\nforged line")
    subject.admit({SPEC_KEY: {"id": "\n\u202e\ud800" * 20}}, "r")
    for record in caplog.records:
        assert record.getMessage().isprintable()
        assert record.getMessage().isascii()
        assert len(record.getMessage()) < 400


def test_memory_is_bounded() -> None:
    """Thousands of different specifications leave a small cache and fixed counters."""
    subject = admission()
    for n in range(1000):
        subject.admit({SPEC_KEY: json.dumps({"id": "joy", "scale": n + 1})}, f"r{n}")
        subject.admit({SPEC_KEY: json.dumps({"id": f"nil{n}"})}, f"s{n}")
        subject.finish(f"r{n}")
    assert len(subject._decisions._cache) <= 256
    assert set(subject.report().requests_unsteered_total) <= REASONS
    assert subject.report().requests_live == 0


def test_a_repeated_spec_gives_the_same_program() -> None:
    """From the cache or not, text or decoded."""
    subject = admission()
    first = subject.decide({SPEC_KEY: '{"id": "joy"}'}, "one").program
    again = subject.decide({SPEC_KEY: '{"id": "joy"}'}, "two").program
    assert first is again
    assert subject.decide({SPEC_KEY: {"id": "joy"}}, "three").program == first


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)
plausible = st.fixed_dictionaries(
    {"id": st.sampled_from(["joy", "calm", "huge", "nil"])},
    optional={
        "layer": st.integers(-1, 31) | st.sampled_from(["10-12", "0-29", "x"]),
        "scale": st.floats(),
        "scope": st.sampled_from(["all", "prompt", "generated"]),
        "strict": st.booleans(),
    },
)


@given(
    st.lists(plausible, max_size=10) | plausible | anything,
    st.sampled_from(DoseMode),
    st.floats(0, 10),
)
def test_anything_is_admitted_or_declined(raw: object, mode: DoseMode, per_layer: float) -> None:
    """Never an exception nor INTERNAL; what comes out round trips."""
    subject = admission(dose=limit(mode, per_layer))
    args = subject.admit({SPEC_KEY: raw}, "r").extra_args
    unsteered = subject.report().requests_unsteered_total
    assert set(unsteered) <= REASONS - {"INTERNAL"}
    assert (args is None) or not unsteered
    if args is not None:
        assert subject.revisions_in_use() == Program.decode(args[PROGRAM_KEY]).revisions
