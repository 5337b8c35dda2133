"""What admission declines since the workers could not do it: rows, bank slots, uncounted tokens."""

from hotwire_plugin.admission import Prompt
from hotwire_plugin.program import SPEC_KEY
from hotwire_plugin.shape import ModelShape
from tests.support.admissions import LAYERS, admission


def test_the_workers_banks_are_never_asked_for_more_than_they_hold() -> None:
    """Directions of live requests are counted once each, and given back as requests end."""
    subject = admission(model=ModelShape(LAYERS, slots=12))
    ten_layers = {SPEC_KEY: {"id": "joy"}}
    assert subject.admit(ten_layers, "a").placement is not None
    assert subject.admit({SPEC_KEY: {"id": "joy", "scale": 2}}, "b").placement is not None
    three_more = {SPEC_KEY: {"id": "calm", "layer": "1-3"}}
    assert subject.admit(three_more, "c").placement is None
    assert subject.report().requests_unsteered_total == {"SLOTS_EXHAUSTED": 1}
    subject.finish("a")
    assert subject.admit(three_more, "d").placement is None
    subject.finish("b")
    assert subject.admit(three_more, "e").placement is not None


def test_where_generated_tokens_are_not_counted_phases_still_are() -> None:
    """What changes at the prompt's end, or before it, is known; what changes after it is not."""
    subject = admission(model=ModelShape(LAYERS, counts_generated=False))
    prompt = Prompt(20)
    for known in ({"decode_only": True}, {"positions": [3, -1]}, {"positions": [[5, None]]}):
        granted = subject.admit({SPEC_KEY: {"id": "joy", **known}}, "r", prompt)
        assert granted.placement is not None
    for unknown in ({"to_generated": 4}, {"positions": [21]}, {"positions": {"exclude": [30]}}):
        granted = subject.admit({SPEC_KEY: {"id": "joy", **unknown}}, "r", prompt)
        assert granted.placement is None


def test_a_later_chunk_has_few_kinds_of_positions() -> None:
    """Its prompt's length is not known yet, and whatever it is, there must be rows enough."""
    asked = [{"id": "joy", "layer": 10 + n, "positions": [-n - 1]} for n in range(4)]
    later = Prompt(tokens=None)
    assert admission().admit({SPEC_KEY: asked[:3]}, "r", later).placement is not None
    subject = admission()
    assert subject.admit({SPEC_KEY: asked}, "r", later).placement is None
    assert subject.report().requests_unsteered_total == {"TOO_MANY_SETS": 1}
