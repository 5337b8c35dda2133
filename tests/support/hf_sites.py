"""What steering at any site should do, by hooks on the same module of Hugging Face's model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hotwire_plugin.program import ProgramOp
from tests.support.family_models import FAMILIES, blocks_of
from tests.support.steering_math import Load, steered

Change = Callable[[torch.Tensor], None]


class SiteReference:
    """A family's tiny model in fp32, eager attention, without a cache of key-values."""

    def __init__(self, name: str, path: str) -> None:
        from transformers import AutoModelForCausalLM

        self._family = FAMILIES[name]
        self._model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    def logprobs(
        self, tokens: Sequence[int], ops: Sequence[ProgramOp], prompt_len: int, load: Load
    ) -> torch.Tensor:
        """Return the log-probabilities of what comes after each position, (n, vocabulary) fp32."""

        def change(op: ProgramOp) -> Change:
            def in_place(hidden: torch.Tensor) -> None:
                x = hidden.reshape(-1, hidden.shape[-1]).double()
                x = steered(x, [op], range(len(tokens)), prompt_len, load)
                hidden.copy_(x.reshape(hidden.shape))

            return in_place

        with torch.inference_mode(), self._hooked([(op, change(op)) for op in ops]):
            logits = self._model(torch.tensor([list(tokens)]), use_cache=False).logits
        found: torch.Tensor = torch.log_softmax(logits[0].float(), dim=-1)
        return found

    @contextmanager
    def _hooked(self, changes: Sequence[tuple[ProgramOp, Change]]) -> Iterator[None]:
        handles = [self._hook(op, change) for op, change in changes]
        yield
        for handle in handles:
            handle.remove()

    def _hook(self, op: ProgramOp, change: Change) -> Any:
        block: nn.Module = blocks_of(self._family, self._model)[op.layer]
        attention, linear = self._family.attention, self._family.linear
        names = {
            "attn_out": attention if hasattr(block, attention) else linear,
            "mlp_out": self._family.mlp,
        }
        if op.site == "pre":
            return block.register_forward_pre_hook(_before(change), with_kwargs=True)
        module = getattr(block, names[op.site]) if op.site in names else block
        return module.register_forward_hook(_behind(change))


def _before(change: Change) -> Any:
    def hook(module: Any, args: Any, kwargs: Any) -> None:
        change(args[0] if args else kwargs["hidden_states"])

    return hook


def _behind(change: Change) -> Any:
    def hook(module: Any, args: Any, output: Any) -> None:
        change(output[0] if isinstance(output, tuple) else output)

    return hook
