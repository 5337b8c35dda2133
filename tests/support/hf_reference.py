"""What steering should do, by Hugging Face's own model in eager mode with hooks on its blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hotwire_plugin.program import ProgramOp
from tests.support.residuals import reference
from tests.support.steering_math import Load


@dataclass(frozen=True)
class Steered:
    """A sequence of tokens and what is added to it.

    added: by layer, the (hidden,) fp32 row to add to what that block returns. positions: those it
    is added to, as a slice or an (n,) boolean mask; None for all.
    """

    tokens: tuple[int, ...]
    added: Mapping[int, np.ndarray]
    positions: slice | torch.Tensor | None = None


class HfReference:
    """A causal language model in fp32, eager attention, without a cache of key-values."""

    def __init__(self, model: str) -> None:
        from transformers import AutoModelForCausalLM

        self._model = AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    def logprobs(self, batch: Sequence[Steered]) -> torch.Tensor:
        """Return the log-probabilities of what comes after each position.

        Args:
            batch: b sequences of one length n.

        Returns:
            (b, n, vocabulary) fp32.
        """
        tokens = torch.tensor([sequence.tokens for sequence in batch])
        with torch.inference_mode(), self._hooked(batch):
            logits: torch.Tensor = self._model(tokens, use_cache=False).logits
        return torch.log_softmax(logits.float(), dim=-1)

    def stream(
        self,
        tokens: Sequence[int],
        ops: Sequence[ProgramOp],
        prompt_len: int,
        load: Load,
        limit: float | torch.Tensor = math.inf,
    ) -> torch.Tensor:
        """Return the residual stream behind the last block, (n, hidden) fp32, after any ops."""
        blocks = self._model.model.layers
        return reference(
            *(blocks, self._run, tokens), ops=ops, prompt_len=prompt_len, load=load, limit=limit
        )

    def _run(self, tokens: torch.Tensor) -> Any:
        return self._model(tokens, use_cache=False)

    @contextmanager
    def _hooked(self, batch: Sequence[Steered]) -> Iterator[None]:
        handles = [
            block.register_forward_hook(_adder(batch, layer))
            for layer, block in enumerate(self._model.model.layers)
        ]
        yield
        for handle in handles:
            handle.remove()


def _adder(batch: Sequence[Steered], layer: int) -> Any:
    def add(module: Any, args: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        for at, sequence in enumerate(batch):
            row = sequence.added.get(layer)
            if row is not None:
                positions = slice(None) if sequence.positions is None else sequence.positions
                hidden[at, positions] += torch.from_numpy(row)
        return output

    return add
