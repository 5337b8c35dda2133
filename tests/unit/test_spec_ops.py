"""Specifications: ops and their arguments, scales by layer, sites, positions."""

from __future__ import annotations

import json
import math

import pytest

from hotwire_plugin.positions import Positions
from hotwire_plugin.spec import parse
from hotwire_plugin.spec_entry import SpecEntry
from hotwire_plugin.spec_error import SPEC_REASONS, SpecError


def entry(**keys: object) -> SpecEntry:
    """Parse one object with id "joy" and the keys given, by way of JSON."""
    return parse(json.dumps({"id": "joy", **keys})).entries[0]


def reason(**keys: object) -> str:
    """Return the reason for which an object with id "joy" is no specification."""
    with pytest.raises(SpecError) as caught:
        entry(**keys)
    assert caught.value.reason in SPEC_REASONS
    assert caught.value.message.isprintable()
    return caught.value.reason


@pytest.mark.parametrize(
    ("keys", "op", "scale"),
    [
        ({"op": "add", "scale": 2}, "add", 2.0),
        ({"op": "norm_add", "scale": -0.5}, "norm_add", -0.5),
        ({"op": "norm_add", "scale": -0.5, "cap": 0.25}, "norm_add", -0.25),
        ({"op": "norm_add", "scale": 0.1, "cap": 0.25}, "norm_add", 0.1),
        ({"op": "ablate"}, "ablate", 1.0),
        ({"op": "ablate", "scale": 0.5}, "ablate", 0.5),
        ({"op": "scale_component", "coefficient": 0}, "ablate", 1.0),
        ({"op": "scale_component", "coefficient": 3.0}, "ablate", -2.0),
        ({"op": "scale_component", "coefficient": 1.0}, "ablate", 0.0),
    ],
)
def test_ops_and_their_strength(keys: dict[str, object], op: str, scale: float) -> None:
    """Every op has a strength of which 0 does nothing."""
    found = entry(**keys)
    assert (found.op, found.scale) == (op, scale)


@pytest.mark.parametrize(
    ("keys", "bounds"),
    [
        ({"min": -1, "max": 2.5}, (-1.0, 2.5)),
        ({"min": 1.5, "max": 1.5}, (1.5, 1.5)),
        ({"min": 0}, (0.0, math.inf)),
        ({"max": 0}, (-math.inf, 0.0)),
    ],
)
def test_clamp(keys: dict[str, object], bounds: tuple[float, float]) -> None:
    """Either bound, or both; equal ones pin."""
    assert entry(op="clamp", **keys).bounds == bounds


def test_swap_names_another_vector() -> None:
    """Its name is checked like any other."""
    assert entry(op="swap", to="calm").target == "calm"
    assert reason(op="swap") == "SPEC_INVALID"
    assert reason(op="swap", to="") == "SPEC_INVALID"


@pytest.mark.parametrize(
    "keys",
    [
        {"cap": 1.0},
        {"op": "norm_add", "cap": -1.0},
        {"op": "add", "min": 0.0},
        {"op": "ablate", "to": "calm"},
        {"op": "scale_component"},
        {"op": "scale_component", "coefficient": 1.0, "scale": 1.0},
        {"op": "clamp"},
        {"op": "clamp", "min": 2.0, "max": 1.0},
        {"op": "clamp", "min": 1e39},
    ],
)
def test_arguments_that_an_op_has_not(keys: dict[str, object]) -> None:
    """Missing, of another op, or impossible: nothing is ignored."""
    assert reason(**keys) == "OP_ARGUMENT_INVALID"


@pytest.mark.parametrize("op", ["rotate", "", "Add"])
def test_unknown_ops(op: str) -> None:
    """They are named with those there are."""
    assert reason(op=op) == "OP_UNSUPPORTED"


@pytest.mark.parametrize(
    ("keys", "layers", "scale"),
    [
        ({"layer": [12, 10], "scale": [1, 2]}, (10, 12), (2.0, 1.0)),
        ({"layer": "10-12", "scale": [1, 2, 3]}, (10, 11, 12), (1.0, 2.0, 3.0)),
        ({"scale": [1, 2]}, None, (1.0, 2.0)),
        ({"scale": {"12": 1, "10": 2}}, (10, 12), (2.0, 1.0)),
        ({"layer": [10, 12], "scale": {"12": 1, "10": 2}}, (10, 12), (2.0, 1.0)),
        ({"op": "scale_component", "coefficient": {"3": 0.5}}, (3,), (0.5,)),
    ],
)
def test_scales_by_layer(
    keys: dict[str, object], layers: tuple[int, ...] | None, scale: tuple[float, ...]
) -> None:
    """A list goes with the layers as they are given, a map names them."""
    found = entry(**keys)
    assert (found.layers, found.scale) == (layers, scale)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"layer": [1, 2], "scale": [1.0]}, "SPEC_INVALID"),
        ({"scale": []}, "SPEC_INVALID"),
        ({"scale": {}}, "LAYER_INVALID"),
        ({"scale": {"-1": 1}}, "LAYER_INVALID"),
        ({"scale": {"one": 1}}, "LAYER_INVALID"),
        ({"scale": {"1": 1, "01": 2}}, "LAYER_INVALID"),
        ({"layer": [1], "scale": {"2": 1}}, "LAYER_INVALID"),
        ({"scale": {"1": "2"}}, "SPEC_INVALID"),
        ({"scale": [[1]]}, "SPEC_INVALID"),
    ],
)
def test_scales_that_do_not_fit_their_layers(keys: dict[str, object], why: str) -> None:
    """Nothing is cut to fit, and nothing repeated."""
    assert reason(**keys) == why


def test_sites_and_streams() -> None:
    """By default after the block, in every stream."""
    assert (entry().site, entry().stream) == ("post", None)
    assert entry(site="attn_out", stream=3).stream == 3
    assert reason(site="middle") == "SITE_UNKNOWN"
    assert reason(site=None) == "SITE_UNKNOWN"
    assert reason(stream=True) == "STREAM_INVALID"
    assert reason(stream=64) == "STREAM_INVALID"


@pytest.mark.parametrize(
    ("keys", "scope", "positions"),
    [
        ({"scope": "last_prompt_token"}, "last_prompt_token", Positions()),
        ({"positions": [0, -1]}, "all", Positions(include=((-1, -1), (0, 0)))),
        ({"positions": "3-7"}, "all", Positions(include=((3, 7),))),
        ({"positions": {"include": [[-5, -1]]}}, "all", Positions(include=((-5, -1),))),
        ({"positions": {"exclude": [[4, None], 0]}}, "all", Positions(exclude=((0, 0), (4, None)))),
        ({"skip_special_tokens": True}, "all", Positions(skip_special=True)),
        ({"from_generated": 2}, "generated", Positions(generated=(2, None))),
        ({"to_generated": 5, "scope": "all"}, "all", Positions(generated=(0, 5))),
        ({"from_generated": 0}, "generated", Positions()),
        ({"from_generated": 1, "decode_only": False}, "all", Positions(generated=(1, None))),
    ],
)
def test_where(keys: dict[str, object], scope: str, positions: Positions) -> None:
    """Scopes, absolute and negative positions, ranges, windows."""
    found = entry(**keys)
    assert (found.scope, found.positions) == (scope, positions)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"positions": {"only": [1]}}, "UNKNOWN_FIELD"),
        ({"positions": []}, "POSITIONS_INVALID"),
        ({"positions": {"include": []}}, "POSITIONS_INVALID"),
        ({"positions": [1.0]}, "POSITIONS_INVALID"),
        ({"positions": [True]}, "POSITIONS_INVALID"),
        ({"positions": ["1:2"]}, "POSITIONS_INVALID"),
        ({"positions": [[1, 2, 3]]}, "POSITIONS_INVALID"),
        ({"positions": [[5, 3]]}, "POSITIONS_INVALID"),
        ({"positions": [[-1, -3]]}, "POSITIONS_INVALID"),
        ({"positions": [2**31]}, "POSITIONS_INVALID"),
        ({"positions": list(range(257))}, "POSITIONS_INVALID"),
        ({"positions": None}, "POSITIONS_INVALID"),
        ({"from_generated": -1}, "POSITIONS_INVALID"),
        ({"from_generated": 3, "to_generated": 3}, "POSITIONS_INVALID"),
        ({"to_generated": 2.0}, "POSITIONS_INVALID"),
        ({"from_generated": 1, "scope": "prompt"}, "SPEC_INVALID"),
        ({"skip_special_tokens": "yes"}, "SPEC_INVALID"),
    ],
)
def test_where_nothing_is_guessed(keys: dict[str, object], why: str) -> None:
    """Wrong types, empty lists, ranges backwards, contradictions."""
    assert reason(**keys) == why
