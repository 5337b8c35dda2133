"""A tiny random-weight checkpoint of each model family, and where Hugging Face's model has what.

The weights are large enough that every layer and every site changes what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WIDTH, LAYERS, VOCAB = 128, 4, 512

FP32_WITHIN = 5e-5
BF16_WITHIN = 0.3

_COMMON = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 256,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_MOE = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
}
_DELTA_NET = {
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}


@dataclass(frozen=True)
class Family:
    """A model family, and its tiny member.

    Attributes:
        config: the name of its configuration class in transformers.
        options: what differs from _COMMON, or is beside it; without: what is not of it.
        layers: the path of the blocks in Hugging Face's model.
        attention, mlp: what a block of that calls these modules; linear: its linear attention.
        steered: the layer that the tests steer; in a hybrid, one with attention.
        judged: whether vLLM itself, unsteered, agrees with the reference on a CPU.
        dtype: of the engine. within: how far a log-probability may be from the fp32 reference's.
    """

    config: str
    options: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    layers: str = "model.layers"
    attention: str = "self_attn"
    mlp: str = "mlp"
    linear: str = ""
    steered: int = 1
    judged: bool = True
    dtype: str = "float32"
    within: float = FP32_WITHIN


_GEMMA = {
    "query_pre_attn_scalar": 32,
    "sliding_window": 32,
    "hidden_activation": "gelu_pytorch_tanh",
}
FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        "GPT2Config",
        {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": 4, "n_positions": 512},
        layers="transformer.h",
        attention="attn",
    ),
    "gpt_neox": Family(
        "GPTNeoXConfig",
        {"use_parallel_residual": True},
        without=("num_key_value_heads", "head_dim"),
        layers="gpt_neox.layers",
        attention="attention",
    ),
    "llama": Family("LlamaConfig"),
    "mistral": Family("MistralConfig", {"sliding_window": None}),
    "mixtral": Family(
        "MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}
    ),
    "qwen2": Family("Qwen2Config"),
    "qwen3": Family("Qwen3Config"),
    "qwen2_moe": Family("Qwen2MoeConfig", _MOE | {"shared_expert_intermediate_size": 64}),
    "qwen3_moe": Family("Qwen3MoeConfig", _MOE),
    "gemma2": Family("Gemma2Config", _GEMMA | {"tie_word_embeddings": True}),
    "gemma3": Family("Gemma3TextConfig", _GEMMA),
    "phi3": Family("Phi3Config", {"sliding_window": None}),
    "olmo2": Family("Olmo2Config"),
    "cohere": Family("CohereConfig", {"logit_scale": 1.0, "tie_word_embeddings": True}),
    "qwen3_next": Family(
        "Qwen3NextConfig",
        # All experts act: which ones do is not for bf16 to decide.
        _MOE | _DELTA_NET | {"shared_expert_intermediate_size": 64, "num_experts_per_tok": 4},
        linear="linear_attn",
        dtype="bfloat16",
        within=BF16_WITHIN,
    ),
    "lfm2": Family(
        "Lfm2Config",
        {
            "layer_types": ["conv", "full_attention"] * 2,
            "tie_word_embeddings": True,
            "block_auto_adjust_ff_dim": False,
            "block_dim": WIDTH,
            "block_ff_dim": 256,
            "block_multiple_of": 32,
            "block_ffn_dim_multiplier": 1.0,
            "conv_dim": WIDTH,
            "conv_L_cache": 3,
        },
        mlp="feed_forward",
        # Its convolutions give each of several equal requests another result there.
        judged=False,
    ),
}


def make(name: str, folder: Path) -> str:
    """Write a family's tiny checkpoint, without a tokenizer; return its path."""
    import torch
    import transformers

    family = FAMILIES[name]
    asked = {key: value for key, value in _COMMON.items() if key not in family.without}
    config = getattr(transformers, family.config)(**asked | dict(family.options))
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.1)
    model.to(getattr(torch, family.dtype)).save_pretrained(folder)
    return str(folder)


def blocks_of(family: Family, model: Any) -> list[Any]:
    """Return the blocks of Hugging Face's model."""
    return list(model.get_submodule(family.layers))
