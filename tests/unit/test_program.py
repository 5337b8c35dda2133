"""Programs: canonical order, digest laws, encoding, and refusal of what is malformed."""

import dataclasses
import json
import math
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwire_plugin.program import (
    MAX_OPS_PER_LAYER,
    Program,
    ProgramError,
    ProgramOp,
    to_fp32,
    to_fp32_down,
)

A, B = "a" * 64, "b" * 64


def op(
    layer: int = 3, scale: float = 1.0, revision: str = A, scope: str = "all", kind: str = "add"
) -> ProgramOp:
    """One operation, all of it with a default."""
    return ProgramOp(revision, layer, scale, kind, scope)


floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
ops = st.builds(
    op,
    layer=st.integers(0, 40),
    scale=floats32,
    revision=st.sampled_from([A, B, "0" * 64]),
    scope=st.sampled_from(["all", "prompt", "generated"]),
)
op_lists = st.lists(ops, max_size=MAX_OPS_PER_LAYER)


def test_operations_are_ordered_by_layer_and_stay_in_order_within_one() -> None:
    """Layers ascend; what stacks at a layer stays in the order given."""
    program = Program((op(5, 1.0), op(2, 2.0), op(5, 3.0), op(2, 4.0)))
    assert [(each.layer, each.scale) for each in program.ops] == [(2, 2), (2, 4), (5, 1), (5, 3)]


def test_scale_zero_is_no_operation() -> None:
    """0, -0 and what is 0 in fp32 act on nothing; a program of nothing is none."""
    assert Program.build([op(scale=0.0), op(scale=-0.0), op(scale=1e-60)]) is None
    assert Program.build([]) is None
    assert Program.build([op(scale=0.0), op(1)]) == Program((op(1),))
    with pytest.raises(ProgramError):
        Program((op(scale=0.0),))


def test_scales_are_those_of_fp32() -> None:
    """Two scales that a worker can't tell apart make one program."""
    near = math.nextafter(0.1, 1.0)
    assert Program((op(scale=0.1),)).digest == Program((op(scale=near),)).digest
    assert Program((op(scale=0.1),)).ops[0].scale == to_fp32(0.1)
    assert Program((op(scale=2),)).digest == Program((op(scale=2.0),)).digest


@given(op_lists, st.randoms(use_true_random=False))
def test_order_across_layers_does_not_matter(items: list[ProgramOp], rng: random.Random) -> None:
    """Any interleaving that keeps the order within each layer is the same program."""
    by_layer: dict[int, list[ProgramOp]] = {}
    for item in items:
        by_layer.setdefault(item.layer, []).append(item)
    queues = list(by_layer.values())
    mixed = []
    while queues := [queue for queue in queues if queue]:
        mixed.append(rng.choice(queues).pop(0))
    first, second = Program.build(items), Program.build(mixed)
    assert first == second
    assert first is None or second is None or first.digest == second.digest


@given(op_lists, op_lists)
def test_digests_are_equal_exactly_if_the_programs_are(
    left: list[ProgramOp], right: list[ProgramOp]
) -> None:
    """The digest covers all that a program says and nothing else."""
    first, second = Program.build(left), Program.build(right)
    if first is not None and second is not None:
        assert (first.digest == second.digest) == (first.ops == second.ops)


@pytest.mark.parametrize(
    "changed",
    [
        {"revision": B},
        {"layer": 4},
        {"scale": 1.0000001},
        {"scale": -1.0},
        {"scope": "generated"},
        {"scope": "prompt"},
    ],
)
def test_whatever_changes_kv_changes_the_digest(changed: dict[str, object]) -> None:
    """Revision, layer, scale and its sign, scope."""
    other = dataclasses.replace(op(), **changed)  # type: ignore[arg-type]
    assert Program((op(),)).digest != Program((other,)).digest


def test_order_within_a_layer_changes_the_digest() -> None:
    """Operations at one layer are applied in turn, and fp32 sums depend on it."""
    one, two = op(revision=A), op(revision=B)
    assert Program((one, two)).digest != Program((two, one)).digest


def test_the_digest_is_the_same_everywhere() -> None:
    """It is compared between processes and versions, so it may only change with its version tag."""
    program = Program((op(1, 0.5), op(0, -2.0, B, "generated")))
    expected = "ea2cf94d3820a8f68b1803cb8d4805ab2b6513e9809ad46b2bedbd76cac798ca"
    assert program.digest == expected


@given(op_lists)
def test_encoding_round_trips(items: list[ProgramOp]) -> None:
    """decode(encode()) is the same program, with the same digest."""
    program = Program.build(items)
    if program is not None:
        back = Program.decode(program.encode())
        assert (back, back.digest) == (program, program.digest)


def _encoded(**changed: object) -> str:
    content = json.loads(Program((op(1, 0.5), op(2, 0.25, B))).encode())
    return json.dumps({**content, **changed})


MALFORMED = {
    "not a string": None,
    "a number": 7,
    "not JSON": "{",
    "no object": "[]",
    "empty": "{}",
    "deep": "[" * 100_000,
    "version": _encoded(version="hotwire.program.v0"),
    "digest": _encoded(digest="0" * 64),
    "digest type": _encoded(digest=None),
    "no ops": _encoded(ops=[]),
    "ops type": _encoded(ops=5),
    "short op": _encoded(ops=[[0, 1, 0.5, "add"]]),
    "revision number": _encoded(ops=[[9, 1, 0.5, "add", "all"]]),
    "negative revision number": _encoded(ops=[[-1, 1, 0.5, "add", "all"]]),
    "revision type": _encoded(revisions=[1, 2]),
    "revision form": _encoded(revisions=["A" * 64, B]),
    "layer": _encoded(ops=[[0, -1, 0.5, "add", "all"]]),
    "layer type": _encoded(ops=[[0, True, 0.5, "add", "all"]]),
    "layer float": _encoded(ops=[[0, 1.0, 0.5, "add", "all"]]),
    "scale type": _encoded(ops=[[0, 1, "0.5", "add", "all"]]),
    "scale bool": _encoded(ops=[[0, 1, True, "add", "all"]]),
    "scale NaN": _encoded(ops=[[0, 1, math.nan, "add", "all"]]),
    "scale large": _encoded(ops=[[0, 1, 1e39, "add", "all"]]),
    "scale huge": _encoded(ops=[[0, 1, 10**400, "add", "all"]]),
    "scale zero": _encoded(ops=[[0, 1, 0.0, "add", "all"]]),
    "op": _encoded(ops=[[0, 1, 0.5, "rotate", "all"]]),
    "op type": _encoded(ops=[[0, 1, 0.5, ["add"], "all"]]),
    "scope": _encoded(ops=[[0, 1, 0.5, "add", "some"]]),
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_malformed_is_no_program(raw: object) -> None:
    """Types, values and the digest are checked; the only error is ProgramError."""
    with pytest.raises(ProgramError):
        Program.decode(raw)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists) | st.text())
def test_decoding_anything_else_is_a_program_error(raw: object) -> None:
    """No other exception comes out of decode."""
    with pytest.raises(ProgramError):
        Program.decode(raw)


def test_a_layer_holds_only_so_many_operations() -> None:
    """MAX_OPS_PER_LAYER fit, one more is TOO_MANY_OPS, and another layer has room of its own."""
    full = tuple(op(3, 1.0 + i) for i in range(MAX_OPS_PER_LAYER))
    assert len(Program((*full, op(4))).ops) == MAX_OPS_PER_LAYER + 1
    assert len(Program((*full, op(3, 0.0))).ops) == MAX_OPS_PER_LAYER
    with pytest.raises(ProgramError) as caught:
        Program((*full, op(3, 9.0)))
    assert caught.value.reason == "TOO_MANY_OPS"


def test_revisions_are_those_of_its_operations() -> None:
    """What a worker must hold to run it."""
    assert Program((op(1), op(2, revision=B), op(3))).revisions == {A, B}


@given(st.floats(-3e38, 3e38))
def test_rounding_down_is_the_nearest_fp32_towards_zero(value: float) -> None:
    """Never longer, same sign, and less than one fp32 step away."""
    rounded = to_fp32_down(value)
    assert abs(rounded) <= abs(value)
    assert rounded == to_fp32(rounded)
    assert math.copysign(1.0, rounded) == math.copysign(1.0, value)
    (bits,) = struct.unpack("<I", struct.pack("<f", abs(rounded)))
    (step_up,) = struct.unpack("<f", struct.pack("<I", bits + 1))
    assert step_up > abs(value)
