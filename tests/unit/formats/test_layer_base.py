"""Which block a row is for: the file, its format, the user or the depth says it, or nobody."""

import numpy as np
import pytest

from hotwire_client import Node
from hotwirectl.formats.layer_base import Vector, settled
from hotwirectl.formats.options import depth_of
from hotwirectl.formats.raw import RawVector
from hotwirectl.formats.told import Depth, Told
from tests.support.vector_files import raw, refusal

DEPTH = 4


def told(base: str | None = None, layers: int | None = None, nodes: int | None = None) -> Told:
    """What the user and the nodes say."""
    return Told(base, layers, lambda: Depth(nodes, "as the nodes say") if nodes else None)


def firsts(vector: Vector) -> dict[int, float]:
    """Returns the first value of each block's row."""
    return dict(zip(vector.data.layers, vector.data.rows[:, 0].tolist(), strict=True))


@pytest.mark.parametrize("known", [told(layers=DEPTH), told(nodes=DEPTH)])
def test_as_many_rows_as_layers_are_outputs(known: Told) -> None:
    """Row i is for block i, and it is said who knows the depth."""
    vector = settled(raw(DEPTH), known)
    assert firsts(vector) == {0: 0, 1: 1, 2: 2, 3: 3}
    (said,) = vector.assumed
    assert said.startswith("row i is the output of block i: there are 4 of each (as ")


@pytest.mark.parametrize("known", [told(layers=DEPTH), told(nodes=DEPTH)])
def test_one_row_more_is_refused_until_it_is_said(known: Told) -> None:
    """Hidden states lose the embedding, and row i is for block i - 1."""
    found = refusal(settled, raw(DEPTH + 1), known)
    assert found.reason == "LAYER_BASE_UNKNOWN"
    assert "5 rows, one more than the model has layers" in found.message
    assert "--layer-base hidden-states" in found.hint
    known.base = "hidden-states"
    vector = settled(raw(DEPTH + 1), known)
    assert firsts(vector) == {0: 1, 1: 2, 2: 3, 3: 4}
    assert "row 0 is left out: it is the embedding" in vector.assumed
    assert any("behind the final norm" in said for said in vector.assumed)
    known.base = "output"
    if known.num_layers:
        assert refusal(settled, raw(DEPTH + 1), known).reason == "VECTOR_SHAPE_MISMATCH"


def test_an_unknown_depth_is_asked_for() -> None:
    """Nothing is guessed; only where the user says that rows are outputs is it not needed."""
    found = refusal(settled, raw(4), told())
    assert (found.reason, found.metadata["rows"]) == ("LAYER_BASE_UNKNOWN", "4")
    assert "--num-layers N" in found.hint
    assert firsts(settled(raw(4), told("output"))) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert refusal(settled, raw(4), told("hidden-states")).reason == "NUM_LAYERS_UNKNOWN"


@pytest.mark.parametrize(
    ("vector", "known"),
    [
        (raw(3), told(layers=DEPTH)),
        (raw(6), told(nodes=DEPTH)),
        (raw(4), told("hidden-states", DEPTH)),
        (raw(6), told("hidden-states", nodes=DEPTH)),
        (raw(6), told("output", DEPTH)),
        (raw(2, numbers=(3, 9), base="output"), told(layers=DEPTH)),
        (raw(2, numbers=(3, 5)), told("hidden-states", DEPTH)),
        (raw(1, numbers=(0,)), told("hidden-states", DEPTH)),
        (raw(2, numbers=(3, 2048), base="output"), told()),
    ],
)
def test_what_does_not_fit_the_depth_is_refused(vector: RawVector, known: Told) -> None:
    """Whoever says the depth, and whatever the base."""
    assert refusal(settled, vector, known).reason == "VECTOR_SHAPE_MISMATCH"


def test_numbers_of_the_file_are_kept_where_it_says_what_they_are() -> None:
    """They are asked about where it does not; from 0 on they prove no more than a matrix."""
    numbered = raw(2, numbers=(2, 3), base="output", assumed=("so is the format",))
    vector = settled(numbered, told())
    assert (firsts(vector), vector.assumed) == ({2: 0, 3: 1}, ("so is the format",))
    shifted = settled(numbered, told("hidden-states", DEPTH))
    assert firsts(shifted) == {1: 0, 2: 1}
    assert "so is the format" not in shifted.assumed
    assert (
        refusal(settled, raw(2, numbers=(2, 3)), told(layers=DEPTH)).reason == "LAYER_BASE_UNKNOWN"
    )
    assert firsts(settled(raw(2, numbers=(2, 3)), told("output"))) == {2: 0, 3: 1}
    full = raw(4, numbers=(0, 1, 2, 3))
    assert firsts(settled(full, told(layers=DEPTH))) == {0: 0, 1: 1, 2: 2, 3: 3}
    more = raw(5, numbers=(0, 1, 2, 3, 4))
    assert refusal(settled, more, told(layers=DEPTH)).reason == "LAYER_BASE_UNKNOWN"


def test_a_file_that_says_so_itself_is_not_contradicted() -> None:
    """The user may repeat what it says."""
    firm = raw(2, numbers=(2, 3), base="output", firm=True)
    assert refusal(settled, firm, told("hidden-states", 4)).reason == "LAYER_BASE_CONTRADICTED"
    assert firsts(settled(firm, told("output"))) == {2: 0, 3: 1}


def test_one_row_without_a_number_is_for_any_layer() -> None:
    """Which is said."""
    vector = settled(raw(1, numbers=()), told())
    assert (vector.data.any_layer, vector.data.layers) == (True, ())
    assert vector.assumed == ("its one row is for any layer: the file names none",)


def test_values_that_are_not_finite_are_refused_by_place() -> None:
    """By the number that the file gives the row."""
    bad = raw(2, numbers=(7, 9), base="output")
    bad.rows[1, 2] = np.inf
    found = refusal(settled, bad, told())
    assert (found.reason, found.metadata["where"]) == ("VECTOR_NOT_FINITE", "row 9, index 2")


def test_the_nodes_know_the_depth_if_they_agree() -> None:
    """Those of the model that is named; a node that knows no model counts for none."""
    nodes = [
        Node(name="a", model="m", num_layers=4),
        Node(name="b", model="m", num_layers=4),
        Node(name="c"),
    ]
    assert depth_of(nodes, "") == Depth(4, "as the nodes say")
    nodes.append(Node(name="d", model="other", num_layers=9))
    assert depth_of(nodes, "") is None
    assert depth_of(nodes, "other") == Depth(9, "as the nodes say")
    assert depth_of(nodes, "third") is None


def test_the_depth_is_asked_for_once_and_only_if_it_decides() -> None:
    """A file that says its layers needs nobody."""
    asked: list[int] = []

    def ask() -> Depth:
        asked.append(1)
        return Depth(4, "as the nodes say")

    known = Told(None, None, ask)
    settled(raw(2, numbers=(2, 3), base="output"), known)
    assert asked == []
    settled(raw(4), known)
    settled(raw(4), known)
    assert asked == [1]
