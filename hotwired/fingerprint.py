"""Which model a table of norms is of: "<layers>x<width>-<digest>", from its configuration alone.

The digest is of what a node of vLLM knows too, without a look at the weights: so it tells
architectures and sizes apart, and no fine-tune from its base. Pure: no I/O, standard library only.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_FORM = re.compile(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})-[0-9a-f]{16}")
# The names that configurations give to one and the same thing.
_WIDTH = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")


class Shape(NamedTuple):
    """The number of a model's blocks, and the width of its residual stream."""

    num_layers: int
    hidden_size: int


def of_config(config: Mapping[str, Any]) -> str:
    """Returns the fingerprint for what a config.json holds; a multimodal one's text part counts.

    Raises ValueError if it has no number of blocks, width or size of vocabulary.
    """
    nested = config.get("text_config")
    text = nested if isinstance(nested, Mapping) else config
    layers, width = _number(text, _LAYERS), _number(text, _WIDTH)
    known = {
        "architectures": config.get("architectures") or [],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "vocab_size": _number(text, ("vocab_size",)),
    }
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    return f"{layers}x{width}-{digest[:16]}"


def shape_of(fingerprint: str) -> Shape:
    """Returns the shape that a fingerprint begins with. Raises ValueError if it is none."""
    found = _FORM.fullmatch(fingerprint)
    if found is None:
        raise ValueError("not of the form <layers>x<width>-<16 hexadecimal digits>")
    return Shape(int(found[1]), int(found[2]))


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
            return value
    raise ValueError(f"the configuration has no {names[0]}")
