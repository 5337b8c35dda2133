"""Specifications: every form of the dialect, every reason, and hostile input."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwire_plugin.spec import MAX_ENTRIES, MAX_SPEC_BYTES, Spec, parse
from hotwire_plugin.spec_entry import SpecEntry
from hotwire_plugin.spec_error import SPEC_REASONS, SpecError, shown


def entry(**keys: object) -> SpecEntry:
    """Parses one object with id "joy" and the keys given."""
    return parse({"id": "joy", **keys}).entries[0]


def reason(raw: object) -> str:
    """Returns the reason for which something is no specification."""
    with pytest.raises(SpecError) as caught:
        parse(raw)
    assert caught.value.reason in SPEC_REASONS
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300
    return caught.value.reason


def test_defaults() -> None:
    """An id is enough: all layers, scale 1, added everywhere, not strict."""
    assert parse('{"id": "joy"}') == Spec((SpecEntry("joy", None, 1.0, "add", "all"),), False)


def test_text_objects_and_lists_are_one_dialect() -> None:
    """JSON text, a decoded object, a list and a tuple of it say the same."""
    item = {"id": "joy", "layer": 3, "scale": -2}
    expected = parse(json.dumps(item))
    assert parse(item) == parse([item]) == parse((item,)) == parse(json.dumps([item])) == expected


def test_entries_keep_their_order() -> None:
    """Several entries, of one vector or more, stay as given."""
    spec = parse([{"id": "b"}, {"id": "a"}, {"id": "b"}])
    assert [each.id for each in spec.entries] == ["b", "a", "b"]


def test_an_empty_list_asks_for_nothing() -> None:
    """No entries is a specification without effect."""
    assert parse("[]") == Spec((), False)


@pytest.mark.parametrize(
    ("layer", "layers"),
    [
        (0, (0,)),
        (2047, (2047,)),
        ([5, 3], (3, 5)),
        ("10", (10,)),
        ("10-12", (10, 11, 12)),
        ("7-7", (7,)),
        ("12-14,10", (10, 12, 13, 14)),
        (" 1 , 3 - 4 ", (1, 3, 4)),
    ],
)
def test_layers(layer: object, layers: tuple[int, ...]) -> None:
    """A number, a list, a range with both ends, or parts of these; ascending."""
    assert entry(layer=layer).layers == layers


@pytest.mark.parametrize(
    "layer",
    [
        -1, 2048, 10**30, 1.0, math.nan, True, None, {}, [], [1, 1], [True], ["1"], [-1], [[1]],
        "", "-1", "1-", "3-1", "1,1", "1-3,2", "a", "1_0", "１", "1;2", "0-2047,0-2047",
        "0-99999999", "1,", list(range(5000)),
    ],
)  # fmt: skip
def test_layer_invalid(layer: object) -> None:
    """Negative, fractional, boolean, repeated, backwards, empty or unbounded."""
    assert reason({"id": "joy", "layer": layer}) == "LAYER_INVALID"


def test_the_number_of_layers_named() -> None:
    """A short text can't make a long list: 4096 over all entries is the most."""
    assert len(parse([{"id": "joy", "layer": "0-2047"}] * 2).entries) == 2
    assert reason([{"id": "joy", "layer": "0-2047"}] * 2 + [{"id": "joy", "layer": 0}]) == (
        "LAYER_INVALID"
    )


@pytest.mark.parametrize("scale", [0, -0.0, 1, -3, 1e38, 5e-324, 1.7e308])
def test_scales(scale: float) -> None:
    """Any finite number; what fp32 holds is asked at admission."""
    assert entry(scale=scale).scale == scale


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 400])
def test_scale_not_finite(text: str) -> None:
    """NaN, infinities and numbers that are infinite once read."""
    assert reason(f'{{"id": "joy", "scale": {text}}}') == "SCALE_NOT_FINITE"


@pytest.mark.parametrize("scale", [True, False, None, "1.5", [], [True], ["1"]])
def test_a_scale_is_a_number(scale: object) -> None:
    """Booleans and texts are none."""
    assert reason({"id": "joy", "scale": scale}) == "SPEC_INVALID"


@pytest.mark.parametrize(
    ("keys", "scope"),
    [
        ({}, "all"),
        ({"decode_only": False}, "all"),
        ({"decode_only": True}, "generated"),
        ({"scope": "all"}, "all"),
        ({"scope": "prompt"}, "prompt"),
        ({"scope": "generated"}, "generated"),
        ({"scope": "generated", "decode_only": True}, "generated"),
        ({"scope": "prompt", "decode_only": False}, "prompt"),
    ],
)
def test_scopes(keys: dict[str, object], scope: str) -> None:
    """decode_only is the scope "generated" by another name."""
    assert entry(**keys).scope == scope


@pytest.mark.parametrize(
    "keys",
    [
        {"scope": "all", "decode_only": True},
        {"scope": "prompt", "decode_only": True},
        {"scope": "generated", "decode_only": False},
        {"scope": "some"},
        {"scope": None},
        {"scope": ["all"]},
        {"decode_only": 1},
        {"decode_only": "true"},
        {"strict": 1},
        {"strict": "true"},
        {"op": None},
    ],
)
def test_contradictions_and_wrong_types(keys: dict[str, object]) -> None:
    """Nothing is guessed."""
    assert reason({"id": "joy", **keys}) == "SPEC_INVALID"


@pytest.mark.parametrize("name", [None, "", 7, ["joy"], "x" * 257])
def test_an_id_is_a_short_text(name: object) -> None:
    """Present, a string, not empty, not long."""
    assert reason({"id": name}) == "SPEC_INVALID"
    assert reason({"scale": 1.0}) == "SPEC_INVALID"


@pytest.mark.parametrize("key", ["position", "scal", "ID", "hotwire_program", "", "\n" * 99, "é"])
def test_unknown_fields(key: str) -> None:
    """What can't be honoured is not ignored."""
    assert reason({"id": "joy", key: {}}) == "UNKNOWN_FIELD"


def test_an_unknown_field_is_told_its_neighbour() -> None:
    """A typing error is easy to mend."""
    with pytest.raises(SpecError, match="did you mean 'scale'"):
        parse({"id": "joy", "scal": 1})


@pytest.mark.parametrize(
    "raw", ["", "{", "joy", "{'id': 'joy'}", '{"id": "joy"} x', "\ud800", "\0"]
)
def test_not_json(raw: str) -> None:
    """Text that is no JSON, surrogates and NUL too."""
    assert reason(raw) == "SPEC_NOT_JSON"


@pytest.mark.parametrize(
    "raw", ["null", "1", '"joy"', "true", "[1]", "[[]]", b"{}", None, 1.5, {1}]
)
def test_not_an_object(raw: object) -> None:
    """JSON, or Python, of another kind."""
    assert reason(raw) == "SPEC_INVALID"


def test_non_text_keys_are_unknown_fields() -> None:
    """A decoded object can have keys that JSON has not."""
    assert reason({"id": "joy", 1: 2}) == "UNKNOWN_FIELD"
    assert reason({"id": "joy", None: 2}) == "UNKNOWN_FIELD"


@pytest.mark.parametrize(
    "twice", ['"scale": 1, "scale": 2', '"id": "joy"', '"strict": true, "strict": false']
)
def test_a_duplicate_key_is_refused(twice: str) -> None:
    """Two readers could take one or the other."""
    assert reason(f'{{"id": "joy", {twice}}}') == "SPEC_INVALID"


def test_the_size_is_checked_before_parsing() -> None:
    """1 MB, of JSON or not, is too large; the cap is in bytes and belongs to what is allowed."""
    assert reason("[" * 1_000_000) == "SPEC_TOO_LARGE"
    assert reason('{"id": "%s"}' % ("x" * 1_000_000)) == "SPEC_TOO_LARGE"
    assert parse('{"id": "joy"}'.ljust(MAX_SPEC_BYTES)).entries[0].id == "joy"
    assert reason('{"id": "joy"}'.ljust(MAX_SPEC_BYTES + 1)) == "SPEC_TOO_LARGE"
    assert reason('"%s"' % ("é" * (MAX_SPEC_BYTES // 2))) == "SPEC_TOO_LARGE"


@pytest.mark.parametrize("raw", ["[" * 10_000, "[" * 8_000 + "]" * 8_000, '{"id":' * 2_500])
def test_deep_nesting(raw: str) -> None:
    """No RecursionError, however deep."""
    assert reason(raw) == "SPEC_INVALID"


def test_deep_nesting_of_decoded_values() -> None:
    """A decoded value 10,000 deep, or one that holds itself, is refused too."""
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    itself: list[object] = []
    itself.append(itself)
    for raw in (deep, itself, {"id": deep}, {"id": "joy", "layer": itself}):
        reason(raw)


def test_the_number_of_entries() -> None:
    """MAX_ENTRIES are allowed, one more is too many."""
    assert len(parse([{"id": "joy"}] * MAX_ENTRIES).entries) == MAX_ENTRIES
    assert reason([{"id": "joy"}] * (MAX_ENTRIES + 1)) == "TOO_MANY_ENTRIES"
    assert reason([{"id": "joy"}] * 1_000_000) == "TOO_MANY_ENTRIES"


@pytest.mark.parametrize(
    ("raw", "strict"),
    [
        ({"id": "joy", "strict": True, "layer": -1}, True),
        ('{"layer": -1, "id": "joy", "strict": true}', True),
        ([{"id": "joy", "bad": 1}, {"id": "joy", "strict": True}], True),
        ('{"id": "joy", "id": "joy", "strict": true}', True),
        ({"id": "joy", "layer": -1}, False),
        ({"id": "joy", "strict": 1}, False),
        ('{"id": "joy", "strict": true', False),
    ],
)
def test_strict_is_known_of_what_fails(raw: object, *, strict: bool) -> None:
    """A strict request that is wrong is refused, wherever the wrong key stands."""
    with pytest.raises(SpecError) as caught:
        parse(raw)
    assert caught.value.strict is strict


def test_strict_of_any_entry_holds_for_all() -> None:
    """A request is refused as a whole or not at all."""
    assert parse([{"id": "a"}, {"id": "b", "strict": True}]).strict
    assert not parse([{"id": "a"}, {"id": "b", "strict": False}]).strict


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)
keys = st.sampled_from(["id", "layer", "scale", "op", "decode_only", "scope", "strict", "x"])
likely = st.sampled_from(["joy", "add", "all", "generated", "1-3", 1.5, 3, True, False])
near_specs = st.dictionaries(keys, likely | anything)


def parses_or_fails_well(raw: object) -> None:
    """Parses, and lets nothing but a SpecError with a known reason pass."""
    try:
        spec = parse(raw)
    except SpecError:
        reason(raw)
        return
    assert all(math.isfinite(each.scale) for each in spec.entries)
    assert all(each.layers is None or each.layers for each in spec.entries)


@given(anything | near_specs | st.lists(near_specs, max_size=3))
def test_any_python_object_is_a_spec_or_a_spec_error(raw: object) -> None:
    """Nothing else comes out."""
    parses_or_fails_well(raw)


@given(
    st.text()
    | (near_specs | st.lists(near_specs)).map(
        lambda raw: json.dumps(raw, default=str, skipkeys=True)
    )
)
def test_any_text_is_a_spec_or_a_spec_error(raw: str) -> None:
    """JSON or not."""
    parses_or_fails_well(raw)


@given(st.text())
def test_what_is_shown_is_short_and_printable(text: str) -> None:
    """A client can't write control characters or novels into a log."""
    assert shown(text).isprintable()
    assert shown(text).isascii()
    assert len(shown(text * 50)) <= 80
