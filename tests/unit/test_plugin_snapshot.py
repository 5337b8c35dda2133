"""The snapshot in force: order of generations, listeners, and reading it off the wire."""

import math
from typing import Any

import pytest
from google.protobuf import timestamp_pb2

from hotwire_plugin.snapshot import (
    EMPTY,
    EnginePolicy,
    Snapshot,
    SnapshotHolder,
    VectorMeta,
    snapshot_from_proto,
)
from hotwired.dose import DoseMode, DosePolicy
from hotwired.errors import GenerationStale
from hotwired.node.v1 import node_pb2
from hotwired.v1 import policy_pb2

A = "a" * 64


def at(generation: int, *, kill_switch: bool = False) -> Snapshot:
    """A snapshot without vectors."""
    return Snapshot(generation, {}, EnginePolicy(kill_switch=kill_switch))


def test_it_starts_empty() -> None:
    """Generation 0 is in force until the first commit."""
    assert SnapshotHolder().current is EMPTY
    assert SnapshotHolder().generation == 0


def test_generations_only_grow() -> None:
    """Newer and equal are accepted, older is GENERATION_STALE and changes nothing."""
    holder = SnapshotHolder()
    holder.commit(at(3))
    holder.commit(at(3))
    holder.commit(at(7))
    with pytest.raises(GenerationStale) as caught:
        holder.commit(at(6))
    assert caught.value.metadata == {"generation": "6", "generation_in_force": "7"}
    assert holder.generation == 7


def test_an_equal_generation_with_other_content_is_put_in_force() -> None:
    """The daemon's word counts, even if it says the same number again."""
    holder = SnapshotHolder(at(3))
    holder.commit(at(3, kill_switch=True))
    assert holder.current.policy.kill_switch


def test_listeners_hear_of_each_new_snapshot_once() -> None:
    """In order; not of one that is in force already, nor of a stale one."""
    holder = SnapshotHolder()
    heard: list[int] = []
    holder.listeners.append(lambda snapshot: heard.append(snapshot.generation))
    for generation in (1, 1, 2):
        holder.commit(at(generation))
    with pytest.raises(GenerationStale):
        holder.commit(at(1))
    assert heard == [1, 2]


def test_a_failing_listener_stops_neither_the_commit_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged, and that is all."""
    holder = SnapshotHolder()
    heard: list[int] = []

    def fail(_: Snapshot) -> None:
        raise RuntimeError("no")

    holder.listeners += [fail, lambda snapshot: heard.append(snapshot.generation)]
    holder.commit(at(1))
    assert (heard, holder.generation) == ([1], 1)
    assert "generation 1" in caplog.text


def test_norms_by_layer() -> None:
    """A vector knows the norm of the row it has for a layer, and which it lacks."""
    meta = VectorMeta("joy", A, (3, 5), (1.5, 2.5))
    assert [meta.norm_at(layer) for layer in (3, 4, 5)] == [1.5, None, 2.5]
    anywhere = VectorMeta("joy", A, (), (4.0,), any_layer=True)
    assert anywhere.norm_at(77) == 4.0


@pytest.mark.parametrize(
    ("layers", "norms", "any_layer"),
    [((1,), (), False), ((), (1.0,), False), ((1,), (1.0,), True), ((), (), True),
     ((2, 1), (1.0, 1.0), False), ((1, 1), (1.0, 1.0), False)],
)  # fmt: skip
def test_a_vector_that_contradicts_itself(
    layers: tuple[int, ...], norms: tuple[float, ...], *, any_layer: bool
) -> None:
    """Layers and norms that don't match or don't ascend can't be built."""
    with pytest.raises(ValueError, match="joy"):
        VectorMeta("joy", A, layers, norms, any_layer)


def test_off_the_wire() -> None:
    """Every field of the message arrives."""
    message = node_pb2.Snapshot(
        generation=9,
        vectors=[
            node_pb2.SnapshotVector(name="joy", revision=A, layers=[1, 4], norms=[0.5, 0.25]),
            node_pb2.SnapshotVector(name="calm", revision="b" * 64, norms=[2.0], any_layer=True),
        ],
        policy=policy_pb2.Policy(
            kill_switch=True,
            strict=True,
            dose_mode=policy_pb2.DOSE_MODE_CLAMP,
            max_relative_dose=1.5,
            max_total_relative_dose=9.0,
            allow_unmonitored=True,
            reference_norms={4: 33.0},
        ),
    )
    dose = DosePolicy(DoseMode.CLAMP, 1.5, 9.0, True, {4: 33.0})
    assert snapshot_from_proto(message) == Snapshot(
        9,
        {
            "joy": VectorMeta("joy", A, (1, 4), (0.5, 0.25)),
            "calm": VectorMeta("calm", "b" * 64, (), (2.0,), any_layer=True),
        },
        EnginePolicy(kill_switch=True, strict=True, dose=dose),
    )


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (policy_pb2.DOSE_MODE_UNSPECIFIED, DoseMode.REJECT),
        (policy_pb2.DOSE_MODE_REJECT, DoseMode.REJECT),
        (policy_pb2.DOSE_MODE_WARN, DoseMode.WARN),
        (77, DoseMode.REJECT),
    ],
)
def test_modes_off_the_wire(mode: int, expected: DoseMode) -> None:
    """Unspecified and unknown modes are the strictest."""
    message = node_pb2.Snapshot(policy={"dose_mode": mode})  # type: ignore[arg-type]
    assert snapshot_from_proto(message).policy.dose.mode is expected


def test_an_unset_limit_is_none_and_a_limit_of_zero_is_one() -> None:
    """Presence tells them apart."""
    assert not snapshot_from_proto(node_pb2.Snapshot()).policy.dose.limited
    message = node_pb2.Snapshot(policy=policy_pb2.Policy(max_relative_dose=0.0))
    assert snapshot_from_proto(message).policy.dose.max_relative_dose == 0.0


def a_message(**fields: Any) -> node_pb2.Snapshot:
    """A snapshot with one vector of one layer."""
    vector = node_pb2.SnapshotVector(name="joy", revision=A, layers=[1], norms=[0.5], **fields)
    return node_pb2.Snapshot(generation=2, vectors=[vector])


def test_flags_and_canary_off_the_wire() -> None:
    """The canary has the layers of the name's own, and norms of its own."""
    canary = node_pb2.SnapshotCanary(revision="c" * 64, norms=[0.75], percent=5.0)
    moment = timestamp_pb2.Timestamp(seconds=100, nanos=500_000_000)
    message = a_message(disabled=True, expire_time=moment, canary=canary)
    assert snapshot_from_proto(message).vectors["joy"] == VectorMeta(
        *("joy", A, (1,), (0.5,)),
        disabled=True,
        expires=100.5,
        canary=VectorMeta("joy", "c" * 64, (1,), (0.75,)),
        canary_percent=5.0,
    )


def test_what_is_known_of_a_revision_is_used_and_its_flags_are_not() -> None:
    """A vector that was disabled is enabled by the next snapshot, and the reverse."""
    canary = node_pb2.SnapshotCanary(revision="c" * 64, norms=[0.75], percent=5.0)
    plain = snapshot_from_proto(a_message())
    known = plain.vectors
    assert snapshot_from_proto(a_message(), known).vectors["joy"] is known["joy"]
    for fields in ({"disabled": True}, {"expire_time": {"seconds": 9}}, {"canary": canary}):
        changed = snapshot_from_proto(a_message(**fields), known)
        assert changed.vectors["joy"] == snapshot_from_proto(a_message(**fields)).vectors["joy"]
        assert changed.vectors["joy"] != known["joy"]
        assert snapshot_from_proto(a_message(), changed.vectors) == plain


def test_a_canary_that_contradicts_its_vector_is_refused() -> None:
    """So many norms as there are layers."""
    canary = node_pb2.SnapshotCanary(revision="c" * 64, norms=[1.0, 2.0], percent=5.0)
    with pytest.raises(ValueError, match="joy"):
        snapshot_from_proto(a_message(canary=canary))


def test_a_limit_that_limits_nothing_is_refused() -> None:
    """A NaN limit must not arrive as a policy that allows everything."""
    message = node_pb2.Snapshot(policy=policy_pb2.Policy(max_relative_dose=math.nan))
    with pytest.raises(ValueError, match="max_relative_dose"):
        snapshot_from_proto(message)
