"""Which vectors a model gets, and what the names of models mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwired.snapshot import Desired, Entry, Facts, misfit, same_model
from hotwired.v1.policy_pb2 import Policy
from hotwired.v1.vector_pb2 import Vector

FACTS = Facts("org/model", 8, 4, "bfloat16")


@pytest.mark.parametrize(
    ("stated", "served", "same"),
    [
        ("org/model", "org/model", True),
        ("org/model", "other/model", False),
        ("org/model", "/models/model", True),
        ("org/model", "/models/Model/", True),
        ("org/model", "./model", True),
        ("org/model", "/models/other", False),
        ("/a/model", "/b/model", True),
        ("model", "org/model", False),
    ],
)
def test_a_folder_goes_by_its_name(stated: str, served: str, *, same: bool) -> None:
    """Who serves a model from a folder need not register vectors for that folder."""
    assert same_model(stated, served) == same


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"layers": [0, 3]}, True),
        ({"any_layer": True}, True),
        ({"layers": [4]}, False),
        ({"layers": [0], "hidden_size": 9}, False),
        ({"layers": [0], "model": "org/model"}, True),
        ({"layers": [0], "model": "org/other"}, False),
    ],
)
def test_width_layers_and_model_must_fit(fields: dict[str, object], *, fits: bool) -> None:
    """The model counts only if it was stated."""
    vector = Vector(**{"name": "v", "hidden_size": 8, **fields})
    assert (misfit(vector, FACTS) is None) == fits


def test_a_snapshot_holds_what_it_is_given() -> None:
    """Names, revisions, layers, norms; the policy and the generation of the desired state."""
    vector = Vector(name="v", revision="r", hidden_size=8, layers=[1, 2], norms=[3.0, 4.0])
    other = Vector(name="w", revision="s", hidden_size=9)
    desired = Desired(7, Policy(strict=True), {v.name: Entry.of(v) for v in (vector, other)})
    fitting = desired.fitting(FACTS)
    assert fitting.revisions == {"r"}
    snapshot = desired.snapshot(1, fitting.entries.values, FACTS)
    assert (snapshot.generation, snapshot.policy.strict) == (7, True)
    (only,) = snapshot.vectors
    assert (only.name, only.revision) == ("v", "r")
    assert (list(only.layers), list(only.norms)) == ([1, 2], [3.0, 4.0])
    assert desired.names_of("r") == ["v"]
    assert desired.names_of("nothing") == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["put", "misfit", "delete", "policy"]),
            st.integers(0, 2),
        ),
        max_size=12,
    )
)
def test_a_changed_state_is_what_a_fresh_one_would_be(changes: list[tuple[str, str, int]]) -> None:
    """What fits is carried over from generation to generation without a fault adding up."""
    desired = Desired(1, Policy(), {})
    desired.fitting(FACTS)
    for generation, (name, kind, number) in enumerate(changes, 2):
        vector = Vector(name=name, revision=str(number), hidden_size=8 + (kind == "misfit"))
        if kind == "delete":
            desired = desired.changed(generation, delete=name)
        elif kind == "policy":
            desired = desired.changed(generation, policy=Policy(strict=number == 1))
        else:
            desired = desired.changed(generation, put=vector)
        fresh = Desired(generation, desired.policy, desired.entries).fitting(FACTS)
        assert desired.fitting(FACTS).entries == fresh.entries
        assert desired.fitting(FACTS).revisions == fresh.revisions
        assert desired.generation == generation
