"""How the residual stream goes through vLLM's own block classes, read without building a model."""

from __future__ import annotations

from importlib import import_module

import pytest
from torch import nn

from hotwire_plugin.layers import Block, NotSteerable, _read

HALVES = (
    "llama.LlamaDecoderLayer",
    "mistral.MistralDecoderLayer",
    "mixtral.MixtralDecoderLayer",
    "qwen2.Qwen2DecoderLayer",
    "qwen3_moe.Qwen3MoeDecoderLayer",
    "gemma2.Gemma2DecoderLayer",
    "gemma3.Gemma3DecoderLayer",
    "glm4.Glm4DecoderLayer",
    "gpt_oss.TransformerBlock",
    "deepseek_v2.DeepseekV2DecoderLayer",
    "qwen3_next.Qwen3NextDecoderLayer",
    "jamba.JambaMambaDecoderLayer",
    "jamba.JambaAttentionDecoderLayer",
    "mamba2.Mamba2DecoderLayer",
    "nemotron_h.NemotronHMambaDecoderLayer",
    "nemotron_h.NemotronHMLPDecoderLayer",
    "nemotron_h.NemotronHAttentionDecoderLayer",
    "lfm2.Lfm2ShortConvDecoderLayer",
)
WHOLE = (
    "gpt2.GPT2Block",
    "opt.OPTDecoderLayer",
    "bloom.BloomBlock",
    "falcon.FalconDecoderLayer",
    "falcon_h1.FalconH1ParallelHybrid",
    "granite.GraniteDecoderLayer",
    "zamba2.Zamba2MambaDecoderLayer",
    # These take or return a second tensor which is no part of the stream.
    "commandr.CohereDecoderLayer",
    "exaone4.Exaone4DecoderLayer",
    "minicpm.MiniCPMDecoderLayer",
    "phimoe.PhiMoEDecoderLayer",
    "stablelm.StablelmDecoderLayer",
    "granitemoehybrid.GraniteMoeHybridMambaDecoderLayer",
    "granitemoehybrid.GraniteMoeHybridAttentionDecoderLayer",
)
REFUSED = {"bert.BertLayer": "does not say what it returns"}


def read(name: str) -> Block:
    """Return what is read of an instance of a class, made without its configuration."""
    module, _, cls = name.partition(".")
    made = object.__new__(getattr(import_module(f"vllm.model_executor.models.{module}"), cls))
    nn.Module.__init__(made)
    return _read(0, made)


@pytest.mark.parametrize("name", HALVES)
def test_blocks_that_hand_on_two_halves(name: str) -> None:
    """The stream is hidden + residual."""
    assert read(name).split


@pytest.mark.parametrize("name", WHOLE)
def test_blocks_that_hand_on_the_whole_stream(name: str) -> None:
    """The stream is the first or only tensor."""
    assert not read(name).split


@pytest.mark.parametrize("name", REFUSED)
def test_blocks_that_are_refused(name: str) -> None:
    """With the reason."""
    with pytest.raises(NotSteerable, match=REFUSED[name]):
        read(name)
