"""Models and vectors for tests on a real engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from hotwired.vector_file import VectorData

ROOT = Path(__file__).resolve().parents[2]
SMOLLM2 = ROOT / ".cache" / "models" / "smollm2-135m-instruct"
LAYERS, WIDTH = 30, 576

TINY_LAYERS, TINY_WIDTH, TINY_VOCAB = 4, 128, 512
_HEADS, _KV_HEADS, _HEAD_DIM, _MLP = 4, 2, 32, 256


def smollm2() -> str:
    """Return the path of the demo model; fail if it was not made."""
    if not (SMOLLM2 / "model.safetensors").is_file():
        pytest.fail("the demo model is not there: run `make model`")
    return str(SMOLLM2)


def direction(
    seed: int, layers: Sequence[int] | None = None, *, norm: float, width: int = WIDTH
) -> VectorData:
    """Return random rows of one L2 norm, for these layers or, if None, one row for any layer."""
    count = 1 if layers is None else len(layers)
    rows = np.random.default_rng(seed).standard_normal((count, width))
    rows *= norm / np.linalg.norm(rows, axis=1, keepdims=True)
    return VectorData(tuple(layers or ()), layers is None, rows.astype(np.float32), "F32")


def zeros(layers: Sequence[int], width: int = WIDTH) -> VectorData:
    """Return rows of nothing, which steer all the same."""
    return VectorData(tuple(layers), False, np.zeros((len(layers), width), np.float32), "F32")


def make_tiny_llama(folder: Path) -> str:
    """Write a small Llama with an even number of heads and no tokenizer; return its path.

    The weights are random, but large enough that what attention reads decides what comes out.
    """
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    tensors = {
        "model.embed_tokens.weight": random.normal(0, 1, (TINY_VOCAB, TINY_WIDTH)),
        "model.norm.weight": np.ones(TINY_WIDTH),
        "lm_head.weight": random.normal(0, 0.2, (TINY_VOCAB, TINY_WIDTH)),
    }
    for layer in range(TINY_LAYERS):
        tensors |= _block(random, f"model.layers.{layer}.")
    save_file(
        {name: tensor.astype(np.float32) for name, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "config.json").write_text(json.dumps(_config(), indent=1))
    return str(folder)


def _block(random: np.random.Generator, prefix: str) -> dict[str, np.ndarray]:
    query, key_value = _HEADS * _HEAD_DIM, _KV_HEADS * _HEAD_DIM
    shapes = {
        "self_attn.q_proj": (query, TINY_WIDTH),
        "self_attn.k_proj": (key_value, TINY_WIDTH),
        "self_attn.v_proj": (key_value, TINY_WIDTH),
        "self_attn.o_proj": (TINY_WIDTH, query),
        "mlp.gate_proj": (_MLP, TINY_WIDTH),
        "mlp.up_proj": (_MLP, TINY_WIDTH),
        "mlp.down_proj": (TINY_WIDTH, _MLP),
    }
    block = {f"{prefix}{n}.weight": random.normal(0, 0.15, s) for n, s in shapes.items()}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        block[f"{prefix}{norm}.weight"] = np.ones(TINY_WIDTH)
    return block


def _config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": TINY_WIDTH,
        "intermediate_size": _MLP,
        "num_hidden_layers": TINY_LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "head_dim": _HEAD_DIM,
        "vocab_size": TINY_VOCAB,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }
