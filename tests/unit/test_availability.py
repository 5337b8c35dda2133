"""Who may have a vector, and which revision: the split, flags, expiry by the clock, what counts."""

import dataclasses
import json
import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwire_plugin.admission import Admission
from hotwire_plugin.availability import Arm, ArmUse, canaries_of, drawn, next_expiry, share_of
from hotwire_plugin.decisions import Ask, Decisions
from hotwire_plugin.engine_role import EngineRole
from hotwire_plugin.ledger import MAX_ARMS, Ledger, Uses
from hotwire_plugin.program import PROGRAM_KEY, SPEC_KEY, Program
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import EnginePolicy, Snapshot, SnapshotHolder, VectorMeta
from hotwired.v1 import stats_pb2
from tests.support.admissions import CALM, JOY, LAYERS, VECTORS, limit

NEW = "e" * 64
ASK = {SPEC_KEY: '{"id": "joy", "layer": 12}'}
# Ids on either side of a half.
LOW = next(f"r{n}" for n in range(1000) if share_of(f"r{n}") < 10)
HIGH = next(f"r{n}" for n in range(1000) if share_of(f"r{n}") > 90)


def on_trial(percent: float = 50.0, norm: float = 2.0) -> VectorMeta:
    """Returns joy with a canary of rows of this norm."""
    joy = VECTORS["joy"]
    canary = dataclasses.replace(joy, revision=NEW, norms=(norm,) * 10)
    return dataclasses.replace(joy, canary=canary, canary_percent=percent)


def admission(
    joy: VectorMeta, clock: list[float] | None = None, **policy: object
) -> tuple[Admission, SnapshotHolder]:
    """Returns an admission with another joy, by a clock that may be set, and its holder."""
    vectors = {**VECTORS, "joy": joy}
    holder = SnapshotHolder(Snapshot(1, vectors, EnginePolicy(**policy)))  # type: ignore[arg-type]
    now = clock or [0.0]
    return Admission(holder, ModelShape(LAYERS), lambda: None, clock=lambda: now[0]), holder


def revisions(subject: Admission, request_id: str, extra_args: dict[str, object] = ASK) -> set[str]:
    """Returns the revisions that a request gets."""
    args = subject.admit(dict(extra_args), request_id).extra_args or {}
    return set(Program.decode(args[PROGRAM_KEY]).revisions) if PROGRAM_KEY in args else set()


@given(st.text())
def test_a_share_is_below_100_and_always_alike(request_id: str) -> None:
    """Whatever the id is made of, lone surrogates included."""
    assert 0.0 <= share_of(request_id) < 100.0
    assert share_of(request_id) == share_of(request_id)
    assert 0.0 <= share_of("\ud800" + request_id) < 100.0


def test_a_share_is_this_in_every_version() -> None:
    """Engines of one fleet agree across processes and releases."""
    assert share_of("cmpl-1") == pytest.approx(11.26954, abs=1e-5)


@given(st.text(max_size=8), st.floats(1.0, 99.0))
def test_the_fraction_is_the_percentage(prefix: str, percent: float) -> None:
    """Of 4000 ids, within six standard deviations."""
    hits = sum(bool(drawn({"v": percent}, f"{prefix}{n}")) for n in range(4000))
    p = percent / 100
    assert abs(hits / 4000 - p) < 6 * math.sqrt(p * (1 - p) / 4000)


@given(st.text(min_size=1), st.floats(0.001, 99.999), st.floats(0.001, 99.999))
def test_a_greater_percentage_only_adds_requests(request_id: str, a: float, b: float) -> None:
    """Who has the canary keeps it as the share grows; the vector's name makes no difference."""
    low, high = sorted((a, b))
    assert bool(drawn({"v": low}, request_id)) <= bool(drawn({"w": high}, request_id))
    assert drawn({"v": low, "w": low}, request_id) in (frozenset(), frozenset("vw"))


def test_without_an_id_nothing_is_drawn() -> None:
    """A frontend doesn't know the engine's."""
    assert drawn({"v": 99.999}, "") == frozenset()


def test_some_requests_get_the_canary() -> None:
    """The same ones each time, from the cache or not; others get the name's own."""
    subject, _ = admission(on_trial())
    for _ in range(2):
        assert revisions(subject, LOW) == {NEW}
        assert revisions(subject, HIGH) == {JOY}
        assert revisions(subject, LOW, {SPEC_KEY: json.loads(str(ASK[SPEC_KEY]))}) == {NEW}
    assert revisions(subject, LOW, {SPEC_KEY: {"id": "calm", "layer": 1}}) == {CALM}
    assert subject.revisions_in_use() >= {CALM, JOY}


def test_an_id_of_the_callers_choice_decides() -> None:
    """A session's chunks stay with one revision, a beam search's steps with the name's own."""
    subject, _ = admission(on_trial())
    for drawn_by, expected in ((LOW, NEW), (HIGH, JOY), ("", JOY)):
        granted = subject.admit(dict(ASK), "chunk", drawn_by=drawn_by)
        program = Program.decode((granted.extra_args or {})[PROGRAM_KEY])
        assert program.revisions == {expected}


def test_arms_are_counted_apart() -> None:
    """By vector and revision, once a request, and only where there is a canary."""
    subject, holder = admission(on_trial())
    for request_id in (LOW, HIGH, HIGH):
        subject.admit({SPEC_KEY: '[{"id": "joy", "layer": 12}, {"id": "joy", "layer": 13}]'},
                      request_id)  # fmt: skip
    subject.admit({SPEC_KEY: {"id": "calm", "layer": 1}}, LOW)
    subject.admit({SPEC_KEY: "{"}, LOW)
    subject.admit({SPEC_KEY: {"id": "joy", "scale": 0}}, LOW)
    assert subject.report().canary_requests_total == {
        ArmUse("joy", NEW, Arm.CANARY): 1,
        ArmUse("joy", JOY, Arm.STABLE): 2,
    }
    counts = EngineRole(subject, holder).report().canary_requests_total
    assert [(c.vector, c.revision, c.arm, c.requests_total) for c in counts] == [
        ("joy", NEW, stats_pb2.CANARY_ARM_CANARY, 1),
        ("joy", JOY, stats_pb2.CANARY_ARM_STABLE, 2),
    ]


def test_what_a_canary_cannot_do_the_names_own_does(caplog: pytest.LogCaptureFixture) -> None:
    """Its dose is too high: the request is steered, counted apart, and strict ones are let in."""
    subject, _ = admission(on_trial(norm=200.0), dose=limit(per_layer=0.5))
    strict = {SPEC_KEY: '{"id": "joy", "layer": 12, "strict": true}'}
    assert subject.refuse(strict) is None
    with caplog.at_level(logging.WARNING, "hotwire_plugin.decisions"):
        assert revisions(subject, LOW, strict) == {JOY}
    assert "a canary can't be used: DOSE_EXCEEDED" in caplog.text
    assert subject.report().requests_unsteered_total == {}
    assert subject.report().canary_requests_total == {ArmUse("joy", NEW, Arm.FALLBACK): 1}


def test_a_canary_without_room_is_done_without() -> None:
    """Its directions are others than those that the workers hold for the name's own."""
    holder = SnapshotHolder(Snapshot(1, {**VECTORS, "joy": on_trial()}, EnginePolicy()))
    subject = Admission(holder, ModelShape(LAYERS, slots=10), lambda: None)
    whole = {SPEC_KEY: '{"id": "joy"}'}  # ten layers
    assert revisions(subject, HIGH, whole) == {JOY}
    assert revisions(subject, LOW, whole) == {JOY}
    assert subject.report().canary_requests_total == {
        ArmUse("joy", JOY, Arm.STABLE): 1,
        ArmUse("joy", NEW, Arm.FALLBACK): 1,
    }
    assert revisions(subject, LOW, {SPEC_KEY: {"id": "calm", "layer": 1}}) == set()
    assert subject.report().requests_unsteered_total == {"SLOTS_EXHAUSTED": 1}


def test_what_neither_can_do_is_declined_for_the_names_own() -> None:
    """One reason, no arm."""
    subject, _ = admission(on_trial())
    assert revisions(subject, LOW, {SPEC_KEY: {"id": "joy", "layer": 0}}) == set()
    assert subject.report().requests_unsteered_total == {"LAYER_NOT_IN_VECTOR": 1}
    assert subject.report().canary_requests_total == {}


def test_counts_of_arms_are_bounded() -> None:
    """Ever new canaries push out those counted longest ago."""
    ledger = Ledger()
    for n in range(2 * MAX_ARMS):
        arms = [ArmUse("kept", JOY, Arm.STABLE), ArmUse("joy", str(n), Arm.CANARY)]
        ledger.record("r", Uses(frozenset({JOY}), frozenset()), None, None, arms)
    counts = ledger.counters(1).canary_requests_total
    assert len(counts) == MAX_ARMS
    assert counts[ArmUse("kept", JOY, Arm.STABLE)] == 2 * MAX_ARMS
    assert ArmUse("joy", "0", Arm.CANARY) not in counts


def test_a_cached_decision_does_not_outlive_an_expiry() -> None:
    """Nor does a refusal outlive a clock that is set back; running requests keep what they have."""
    clock = [100.0]
    subject, _ = admission(dataclasses.replace(VECTORS["joy"], expires=200.0), clock)
    assert revisions(subject, "a") == {JOY}
    clock[0] = 199.999
    assert revisions(subject, "b") == {JOY}
    for now in (200.0, 10_000.0):
        clock[0] = now
        assert subject.decide(ASK, "c").reason == "VECTOR_EXPIRED"
    assert subject.revisions_in_use() == {JOY}
    clock[0] = 150.0
    assert subject.decide(ASK, "d").program is not None


def test_expiries_one_after_the_other() -> None:
    """Each takes its own vector, and leaves the others in the cache's reach."""
    clock = [0.0]
    vectors = {
        name: VectorMeta(name, JOY, (1,), (1.0,), expires=at)
        for name, at in (("a", 10.0), ("b", 20.0), ("c", math.inf))
    }
    subject = Decisions(ModelShape(LAYERS), lambda: None, lambda: clock[0])
    snapshot = Snapshot(1, vectors, EnginePolicy())
    for clock[0], gone in ((9.9, ""), (10.0, "a"), (19.9, "a"), (20.0, "ab"), (1e12, "ab")):
        for name in "abc":
            reason = subject.decide(Ask(f'{{"id": "{name}"}}'), snapshot).reason
            assert reason == ("VECTOR_EXPIRED" if name in gone else None)
    assert next_expiry(vectors, 10.0) == 20.0
    assert next_expiry(vectors, 20.0) == math.inf


def test_a_swaps_target_must_be_available_too() -> None:
    """Either name counts."""
    subject, _ = admission(VECTORS["joy"], [2e9])
    for target, reason in (("off", "VECTOR_DISABLED"), ("old", "VECTOR_EXPIRED")):
        spec = {"id": "calm", "layer": 1, "op": "swap", "to": target}
        assert subject.decide({SPEC_KEY: spec}, "r").reason == reason


def test_a_canary_is_as_disabled_as_its_name() -> None:
    """Both revisions are held back."""
    subject, _ = admission(dataclasses.replace(on_trial(), disabled=True))
    assert subject.decide(ASK, LOW, LOW).reason == "VECTOR_DISABLED"


def test_the_default_and_the_same_text_of_a_request_are_two_decisions() -> None:
    """The default alone goes once; a request that asks for the same beside it gets it twice."""
    text = str(ASK[SPEC_KEY])
    subject, _ = admission(VECTORS["joy"], default_spec=text, default_adds=True)
    counts = []
    for extra_args in (None, {SPEC_KEY: text}):
        program = subject.decide(extra_args, "r").program
        assert program is not None
        counts.append(len(program.ops))
    assert counts == [1, 2]


def test_canaries_are_found_once_per_snapshot() -> None:
    """Those there are, by name."""
    assert canaries_of({**VECTORS, "joy": on_trial(7.0)}) == {"joy": 7.0}
