"""What admission counts on follows from what every worker armed."""

from hotwire_plugin.armed import Armed, assumed_shape, first_reason, shape_of, sites_of
from hotwire_plugin.shape import ModelShape, Place

POST = (Place(0), Place(1))
ATTENTION = Place(1, "attn_out")


def test_stages_are_put_together() -> None:
    """Each pipeline stage has layers of its own."""
    later = (Place(2), Place(3), Place(3, "pre"))
    shape = shape_of(4, [Armed("", 0, (*POST, ATTENTION), 9), Armed("", 1, later, 9)])
    assert shape.layers_at["attn_out"] == {1}
    assert shape.layers_at["pre"] == {3}
    assert sites_of(shape) == ("pre", "attn_out", "post")
    assert [shape.armed(layer, "post") for layer in range(5)] == [True] * 4 + [False]


def test_what_one_rank_of_a_stage_lacks_does_not_count() -> None:
    """The replicas of the residual stream would part."""
    shape = shape_of(2, [Armed("", 0, (*POST, ATTENTION), 9), Armed("", 0, POST, 9)])
    assert not shape.armed(1, "attn_out")
    assert shape.armed(1, "post")


def test_streams_are_counted() -> None:
    """One more than the highest stream of any place; one where nothing is armed."""
    shape = shape_of(1, [Armed("", 0, tuple(Place(0, "post", s) for s in range(4)), 9)])
    assert shape.streams == 4
    assert shape_of(2, [Armed("why", 0, (), 9)]).streams == 1


def test_the_first_worker_that_cannot_steer_says_why() -> None:
    """One reason for the whole engine."""
    assert (
        first_reason([Armed("", 0, POST, 9), Armed("one", 0, (), 9), Armed("two", 0, (), 9)])
        == "one"
    )
    assert first_reason([Armed("", 0, POST, 9)]) == ""


def test_without_a_worker_every_site_is_assumed_everywhere() -> None:
    """A frontend refuses only what the settings rule out."""
    shape = assumed_shape(2, 4, ("pre", "post"))
    assert shape.streams == 4
    assert (shape.armed(1, "pre"), shape.armed(2, "pre")) == (True, False)
    assert not shape.armed(0, "mlp_out")
    assert sites_of(shape) == ("pre", "post")
    assert sites_of(ModelShape(2)) == ("post",)


def test_the_smallest_bank_counts() -> None:
    """What admission grants must fit into every worker's."""
    assert shape_of(2, [Armed("", 0, POST, 9), Armed("", 1, POST, 5)]).slots == 5
