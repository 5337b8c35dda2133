"""Runs a model in Hugging Face's eager mode and reads the residual stream behind each block.

The one part of the command that needs torch and transformers; they are imported when it runs.
"""

import contextlib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hotwirectl import failures
from hotwirectl.norms.summary import Norms

EXTRA = "norms"


class Eager:
    """The model of a directory, in its checkpoint's dtype, on a GPU if there is one.

    what: the command that wants it, for the message.

    Raises:
        failures.CommandFailedError: torch or transformers is missing (EXTRA_MISSING), or the
            directory holds no model whose blocks are known (MODEL_UNREADABLE).
    """

    def __init__(self, directory: Path, what: str = "`norms measure`") -> None:
        torch, transformers = _libraries(what)
        transformers.utils.logging.disable_progress_bar()
        self._torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                directory, dtype="auto", attn_implementation="eager", local_files_only=True
            )
        except Exception as error:  # a damaged file raises whatever its reader does
            raise failures.model_unreadable(directory, error) from error
        self._model: Any = model.eval().to(self.device)
        text = model.config.get_text_config()
        self._width: int = text.hidden_size
        self._blocks = _blocks(self._model, text.num_hidden_layers, directory)
        limit = getattr(text, "max_position_embeddings", None)
        self._most_tokens = int(limit) if limit else None
        self.dtype = str(model.dtype).removeprefix("torch.")

    def norms(self, text: str, max_tokens: int | None) -> Norms:
        """Returns the L2 norms after each block at every position: [layers, positions], fp32.

        max_tokens: the prompt is cut there, and where the model's positions end.
        Raises ValueError if a block's output is not [1, positions, width].
        """
        found = self._seen(text, max_tokens, lambda hidden: hidden.norm(dim=-1))
        return np.stack(found) if found else np.zeros((len(self._blocks), 0), np.float32)

    def pooled(self, text: str, *, last: bool) -> Norms:
        """Returns the residual stream after each block: [layers, width], fp32.

        last: at the last token; if not, the mean over all but the first, which in most models is an
        attention sink. Raises ValueError as norms, and if the text has no such token.
        """
        if last:
            found = self._seen(text, None, lambda hidden: hidden[-1])
        else:
            found = self._seen(text, None, lambda hidden: hidden[1:].mean(0))
        if not found or not np.isfinite(found[0]).any():
            raise ValueError("it has too few tokens")
        return np.stack(found)

    def _seen(self, text: str, max_tokens: int | None, take: Callable[[Any], Any]) -> list[Any]:
        """Returns what `take` makes of each block's output, [positions, width] in fp32."""
        ids = self._tokenizer(text, return_tensors="pt").input_ids
        limit = min(n for n in (max_tokens, self._most_tokens, ids.shape[1]) if n is not None)
        found: list[Any] = []
        with self._torch.no_grad(), self._watched(found, limit, take):
            # The body alone: logits of a long prompt would be the largest tensor by far.
            self._model.base_model(ids[:, :limit].to(self.device), use_cache=False)
        return found

    @contextlib.contextmanager
    def _watched(
        self, found: list[Any], positions: int, take: Callable[[Any], Any]
    ) -> Iterator[None]:
        def note(_module: Any, _args: Any, out: Any) -> None:
            hidden = out[0] if isinstance(out, tuple) else out
            if tuple(hidden.shape) != (1, positions, self._width):
                raise ValueError(f"a block's output is {tuple(hidden.shape)}: no residual stream")
            found.append(take(hidden[0].float()).cpu().numpy())

        handles = [block.register_forward_hook(note) for block in self._blocks]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def versions() -> dict[str, str]:
    """Returns the versions of what measured."""
    return {name: metadata.version(name) for name in ("torch", "transformers")}


def _libraries(what: str) -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise failures.extra_missing(what, EXTRA, error) from error
    return torch, transformers


def _blocks(model: Any, count: int, directory: Path) -> list[Any]:
    """Returns the model's blocks: the one list of modules that is as long as the model is deep."""
    lists = [m for m in model.modules() if type(m).__name__ == "ModuleList" and len(m) == count]
    if len(lists) != 1:
        why = f"it has {len(lists)} lists of {count} blocks, and not one"
        raise failures.model_unreadable(directory, ValueError(why))
    return list(lists[0])
