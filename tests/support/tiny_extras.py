"""What some requests need beside the small model: a tokenizer, a LoRA adapter."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.support.engine_models import TINY_LAYERS, TINY_VOCAB, TINY_WIDTH

RANK, ALPHA = 4, 8
_SPECIAL = ("<pad>", "<s>", "</s>")


def add_tokenizer(model: str) -> None:
    """Write a tokenizer that gives each character a token; the rest of the vocabulary are words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    characters = [*_SPECIAL, *pre_tokenizers.ByteLevel.alphabet()]
    words = [f"<w{at}>" for at in range(TINY_VOCAB - len(characters))]
    vocabulary = {token: at for at, token in enumerate([*characters, *words])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(model)


def decoded(model: str, tokens: Sequence[int]) -> str:
    """Return the text of tokens by themselves.

    vLLM's own starts from the prompt, whose random bytes may be half a character.
    """
    from tokenizers import Tokenizer

    text: str = Tokenizer.from_file(f"{model}/tokenizer.json").decode(list(tokens))
    return text


def make_lora(folder: Path) -> str:
    """Write an adapter of the attention's outputs in PEFT's format; return its path."""
    folder.mkdir(parents=True)
    tensors = {
        f"base_model.model.{name}.lora_{part}.weight": matrix
        for name, pair in _pairs().items()
        for part, matrix in zip("AB", pair, strict=True)
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": ["o_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


def merge_lora(model: str, folder: Path) -> str:
    """Write the model with the adapter's weights added to its own; return its path."""
    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    for name, (down, up) in _pairs().items():
        tensors[f"{name}.weight"] += up @ down * np.float32(ALPHA / RANK)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def _pairs() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(11)

    def matrix(*shape: int) -> np.ndarray:
        return random.normal(0, 0.2, shape).astype(np.float32)

    return {
        f"model.layers.{layer}.self_attn.o_proj": (
            matrix(RANK, TINY_WIDTH),
            matrix(TINY_WIDTH, RANK),
        )
        for layer in range(TINY_LAYERS)
    }
