"""Resolution: what a specification becomes under a snapshot, within fp32 and the dose limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwire_plugin.admission import Admission
from hotwire_plugin.program import SPEC_KEY, Program, to_fp32
from hotwire_plugin.snapshot import SnapshotHolder
from hotwired.dose import DoseMode, DosePolicy
from tests.support.admissions import CALM, JOY, LAYERS, REFERENCE, admission, limit


def program_of(raw: object, **policy: object) -> Program:
    """Returns the program that a specification gets."""
    admitted = admission(**policy).decide({SPEC_KEY: raw}, "r")  # type: ignore[arg-type]
    assert admitted.reason is None
    assert admitted.program is not None
    return admitted.program


def test_all_layers_of_a_vector() -> None:
    """Without a layer, a vector acts at every layer it has."""
    program = program_of({"id": "joy", "scale": 0.5})
    assert [op.layer for op in program.ops] == list(range(10, 20))
    assert {(op.revision, op.scale, op.op, op.scope) for op in program.ops} == {
        (JOY, 0.5, "add", "all")
    }


def test_a_vector_for_any_layer_acts_where_it_is_told() -> None:
    """One row, at the layers named."""
    program = program_of({"id": "calm", "layer": "0,29", "decode_only": True})
    assert [(op.revision, op.layer, op.scope) for op in program.ops] == [
        (CALM, 0, "generated"),
        (CALM, 29, "generated"),
    ]


def test_entries_stack_in_the_order_given() -> None:
    """Several entries at a layer, of one vector or more, are all applied, in order."""
    spec = [
        {"id": "joy", "layer": 12, "scale": 1},
        {"id": "calm", "layer": [11, 12], "scale": 2},
        {"id": "joy", "layer": 12, "scale": 3},
    ]
    assert [(op.layer, op.revision, op.scale) for op in program_of(spec).ops] == [
        (11, CALM, 2.0),
        (12, JOY, 1.0),
        (12, CALM, 2.0),
        (12, JOY, 3.0),
    ]


def test_equal_programs_have_equal_digests() -> None:
    """However they are written."""
    one = program_of('{"id": "joy", "layer": "10-12", "decode_only": true}')
    two = program_of(
        [
            {"scope": "generated", "scale": 1, "id": "joy", "layer": [12, 10]},
            {"id": "calm", "layer": 5, "scale": 0.0},
            {"id": "joy", "layer": 11, "decode_only": True, "op": "add"},
        ]
    )
    assert one.digest == two.digest
    assert one.encode() == two.encode()


def test_what_means_the_same_has_one_digest() -> None:
    """The only stream is all streams, and a bound of -0 is 0."""
    whole = program_of('{"id": "joy", "layer": 11}')
    assert program_of('{"id": "joy", "layer": 11, "stream": 0}').digest == whole.digest
    pinned = '{"id": "joy", "layer": 11, "op": "clamp", "min": %s, "max": %s}'
    zero = program_of(pinned % ("0", "0"))
    assert program_of(pinned % ("-0.0", "-0.0")).digest == zero.digest


def test_a_near_name_is_suggested() -> None:
    """A typing error in a name is easy to mend; a name unlike any gets no guess."""
    assert "did you mean 'joy'" in admission().decide({SPEC_KEY: {"id": "joyy"}}, "r").message
    assert "did you mean" not in admission().decide({SPEC_KEY: {"id": "zzzzzz"}}, "r").message
    empty = Admission(SnapshotHolder(), LAYERS, lambda: None)
    assert "none is registered" in empty.decide({SPEC_KEY: {"id": "joy"}}, "r").message


@pytest.mark.parametrize(
    ("name", "layer", "scale"),
    [
        ("joy", 10, 3.5e38),
        ("joy", 10, -1e39),
        ("joy", 10, 2e38),
        ("huge", 28, 3.5e8),
        ("joy", 10, 1e308),
    ],
)
def test_a_scale_that_overflows_fp32_is_refused(name: str, layer: int, scale: float) -> None:
    """As it stands or times the vector; an infinite row would poison the request's KV."""
    admitted = admission().decide({SPEC_KEY: {"id": name, "layer": layer, "scale": scale}}, "r")
    assert admitted.reason == "SCALE_NOT_FINITE"


def test_a_stack_that_overflows_fp32_is_refused() -> None:
    """Each fits, the sum does not."""
    item = {"id": "huge", "layer": 28, "scale": 2e8}
    assert admission().decide({SPEC_KEY: [item]}, "r").program is not None
    assert admission().decide({SPEC_KEY: [item, item]}, "r").reason == "SCALE_NOT_FINITE"
    assert program_of({"id": "joy", "layer": 10, "scale": 1e38}).ops[0].scale == to_fp32(1e38)


def test_a_layer_beyond_the_model_is_refused_even_if_the_vector_has_it() -> None:
    """A vector made for a longer model is not quietly cut."""
    assert (
        admission().decide({SPEC_KEY: {"id": "huge", "scale": 1e-30}}, "r").reason
        == "LAYER_OUT_OF_RANGE"
    )


def test_a_bad_entry_fails_even_at_scale_zero() -> None:
    """Scale 0 hides no typing error."""
    assert (
        admission().decide({SPEC_KEY: {"id": "nil", "scale": 0}}, "r").reason == "VECTOR_NOT_FOUND"
    )


@pytest.mark.parametrize(
    ("mode", "scale", "outcome", "scales"),
    [
        (DoseMode.REJECT, 2.5, "allowed", {2.5}),
        (DoseMode.WARN, 99.0, "warned", {99.0}),
        (DoseMode.WARN, 2.5, "allowed", {2.5}),
    ],
)
def test_dose_outcomes(mode: DoseMode, scale: float, outcome: str, scales: set[float]) -> None:
    """At the limit is allowed; warn changes nothing but the outcome."""
    subject = admission(dose=limit(mode))
    admitted = subject.decide({SPEC_KEY: {"id": "joy", "scale": scale}}, "r")
    assert admitted.dose_outcome == outcome
    assert admitted.program is not None
    assert {op.scale for op in admitted.program.ops} == scales
    subject.admit({SPEC_KEY: {"id": "joy", "scale": scale}}, "r")
    assert subject.report().dose_decisions_total == {outcome: 1}


@given(
    st.floats(-1e30, 1e30),
    st.floats(1e-30, 1e6),
    st.floats(1e-30, 1e6) | st.none(),
    st.integers(1, 8),
)
def test_a_clamped_program_is_under_the_limit(
    scale: float, per_layer: float, total: float | None, copies: int
) -> None:
    """As the workers apply it, in fp32; and the sign stays."""
    policy = limit(DoseMode.CLAMP, per_layer, max_total_relative_dose=total)
    spec = [{"id": "joy", "layer": "10-12", "scale": scale / (n + 1)} for n in range(copies)]
    admitted = admission(dose=policy).decide({SPEC_KEY: spec}, "r")
    if admitted.dose_outcome != "clamped":
        return
    assert admitted.program is not None
    doses = dict.fromkeys((10, 11, 12), 0.0)
    for op in admitted.program.ops:
        doses[op.layer] += abs(op.scale) * 2.0 / 10.0
        assert (op.scale > 0) == (scale > 0)
    assert max(doses.values()) <= per_layer
    assert total is None or sum(doses.values()) <= total


def test_clamping_changes_the_digest_only_if_it_changes_a_scale() -> None:
    """The digest is of what is applied: what is clamped to it, and what asked for it."""
    policy = limit(DoseMode.CLAMP)
    over = program_of({"id": "joy", "scale": 99.0}, dose=policy)
    scale = over.ops[0].scale
    assert program_of({"id": "joy", "scale": scale}, dose=policy).digest == over.digest
    assert program_of({"id": "joy", "scale": scale}).digest == over.digest


def test_clamping_to_nothing_is_declined() -> None:
    """A limit of 0 leaves nothing, and the request is told."""
    subject = admission(dose=limit(DoseMode.CLAMP, 0.0))
    admitted = subject.decide({SPEC_KEY: {"id": "joy"}}, "r")
    assert (admitted.program, admitted.reason) == (None, "DOSE_EXCEEDED")
    tiny = admission(
        dose=limit(DoseMode.CLAMP, 1e-37, reference_norms=dict.fromkeys(REFERENCE, 1e-30))
    )
    assert tiny.decide({SPEC_KEY: {"id": "joy"}}, "r").reason == "DOSE_EXCEEDED"


def test_a_dose_message_names_figure_layer_and_limit() -> None:
    """So that a client knows how far to go down."""
    message = (
        admission(dose=limit())
        .decide({SPEC_KEY: {"id": "joy", "layer": 14, "scale": 5}}, "r")
        .message
    )
    assert message == "relative dose 1 at layer 14 is over the limit 0.5"
    total = DosePolicy(max_total_relative_dose=1.0, reference_norms=REFERENCE)
    message = admission(dose=total).decide({SPEC_KEY: {"id": "joy"}}, "r").message
    assert message == "total relative dose 2 is over the limit 1"


@pytest.mark.parametrize("scale", [1e13, 1e30, -3e38])
def test_a_strength_that_overflows_the_stream_is_refused(scale: float) -> None:
    """Whatever the vector's length is: the norm of what such an op leaves is not finite in fp32."""
    for op in ("norm_add", "ablate", "swap"):
        more = {"to": "calm"} if op == "swap" else {}
        spec = {"id": "joy", "layer": 12, "op": op, "scale": scale, **more}
        assert admission().decide({SPEC_KEY: spec}, "r").reason == "SCALE_NOT_FINITE"
    stacked = [{"id": "joy", "layer": 12, "op": "norm_add", "scale": 1e6}] * 8
    assert admission().decide({SPEC_KEY: stacked}, "r").reason == "SCALE_NOT_FINITE"
