"""A fingerprint says the shape, and changes with what a configuration says of the model."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwired import fingerprint

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
}


def test_the_form_is_fixed() -> None:
    """A stored fingerprint must stay right: this one is the demo model's."""
    assert fingerprint.of_config(LLAMA) == "30x576-0f86a13132d4ae6f"


@given(st.integers(1, 999), st.integers(1, 99999), st.integers(1, 10**6))
def test_the_shape_comes_back(layers: int, width: int, vocabulary: int) -> None:
    """From any configuration."""
    config = {"num_hidden_layers": layers, "hidden_size": width, "vocab_size": vocabulary}
    assert fingerprint.shape_of(fingerprint.of_config(config)) == (layers, width)


@pytest.mark.parametrize(
    "change",
    [
        {"architectures": ["MistralForCausalLM"]},
        {"hidden_size": 577},
        {"num_hidden_layers": 31},
        {"vocab_size": 1},
    ],
)
def test_each_field_counts(change: dict[str, Any]) -> None:
    """And what is not named does not."""
    assert fingerprint.of_config(LLAMA | change) != fingerprint.of_config(LLAMA)
    assert fingerprint.of_config(LLAMA | {"rope_theta": 1}) == fingerprint.of_config(LLAMA)


def test_other_spellings_and_text_parts_are_known() -> None:
    """GPT-2's names, and the text part of a multimodal configuration."""
    gpt2 = {"architectures": ["G"], "n_embd": 8, "n_layer": 2, "vocab_size": 9}
    plain = {"architectures": ["G"], "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 9}
    nested = {"architectures": ["G"], "hidden_size": 1, "text_config": plain}
    assert len({fingerprint.of_config(each) for each in (gpt2, plain, nested)}) == 1


@pytest.mark.parametrize("missing", ["hidden_size", "num_hidden_layers", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, True, "7", 10**9])
def test_a_configuration_without_a_shape_has_none(missing: str, value: object) -> None:
    """The field is named."""
    with pytest.raises(ValueError, match=missing):
        fingerprint.of_config(LLAMA | {missing: value})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30x576",
        "0x576-0f86a13132d4ae6f",
        "30x576-0F86A13132D4AE6F",
        "30x576-0f86a13132d4ae6f\n",
    ],
)
def test_other_text_is_no_fingerprint(text: str) -> None:
    """Upper case, a zero, more or less than the form."""
    with pytest.raises(ValueError, match="not of the form"):
        fingerprint.shape_of(text)
