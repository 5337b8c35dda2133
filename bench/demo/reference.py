"""The demo model in Hugging Face's eager mode: what the residual stream is, and what steering does.

It knows nothing of this project's own op, so that one can be held against the other.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.demo.settings import REPETITION_PENALTY


class Reference:
    """The model of a directory, fp32, on the CPU.

    Raises OSError if the directory holds no model.
    """

    def __init__(self, directory: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(directory, padding_side="left")
        model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        self.model = model.eval()
        self.blocks: Sequence[torch.nn.Module] = model.model.layers

    @torch.no_grad()
    def residuals(self, text: str) -> Tensor:
        """The residual stream after each block: [layers, tokens, hidden], fp32."""
        found: list[Tensor] = []
        handles = [
            block.register_forward_hook(lambda _module, _args, out: found.append(_hidden(out)[0]))
            for block in self.blocks
        ]
        try:
            self.model.base_model(**self.tokenizer(text, return_tensors="pt"))
        finally:
            for handle in handles:
                handle.remove()
        return torch.stack(found)

    @contextmanager
    def steered(self, layer: int, addition: Tensor) -> Iterator[None]:
        """Within it, `addition` ([hidden]) is added to the output of block `layer`, everywhere."""

        def add(_module: Any, _args: Any, out: Any) -> Any:
            hidden = _hidden(out) + addition
            return (hidden, *out[1:]) if isinstance(out, tuple) else hidden

        handle = self.blocks[layer].register_forward_hook(add)
        try:
            yield
        finally:
            handle.remove()

    @torch.no_grad()
    def next_logprobs(self, prompts: list[str]) -> Tensor:
        """Log-probabilities of each prompt's next token: [prompts, vocabulary]."""
        batch = self.tokenizer(prompts, return_tensors="pt", padding=True)
        logits: Tensor = self.model(**batch).logits[:, -1]
        return logits.log_softmax(-1)

    @torch.no_grad()
    def continuations(self, prompts: list[str], tokens: int) -> list[str]:
        """The greedy continuation of each prompt, `tokens` long."""
        batch = self.tokenizer(prompts, return_tensors="pt", padding=True)
        out = self.model.generate(
            **batch,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            repetition_penalty=REPETITION_PENALTY,
        )
        new = out[:, batch.input_ids.shape[1] :]
        return list(self.tokenizer.batch_decode(new, skip_special_tokens=True))

    @torch.no_grad()
    def surprise(self, prompt: str, text: str) -> float:
        """The mean negative log-probability, in nats a token, of `text` after `prompt`."""
        before = self.tokenizer(prompt, return_tensors="pt").input_ids
        after = self.tokenizer(text, return_tensors="pt").input_ids
        ids = torch.cat([before, after], dim=1)
        logprobs = self.model(ids).logits[0, before.shape[1] - 1 : -1].log_softmax(-1)
        return float(-logprobs.gather(1, after[0, :, None]).mean())

    def token(self, word: str) -> int:
        """The id of a word with its leading space. Raises ValueError if that's not one token."""
        ids: list[int] = self.tokenizer(f" {word}").input_ids
        if len(ids) != 1:
            raise ValueError(f"{word!r} is {len(ids)} tokens")
        return ids[0]


def _hidden(out: Any) -> Tensor:
    hidden: Tensor = out[0] if isinstance(out, tuple) else out
    return hidden
