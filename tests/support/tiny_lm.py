"""A small random model with a tokenizer, for commands that run one."""

from pathlib import Path

from tests.support.engine_models import make_tiny_llama


def make_tiny_lm(folder: Path) -> Path:
    """Writes a random Llama with a tokenizer that splits at spaces: "w7" is token 7."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    make_tiny_llama(folder)
    words = models.WordLevel({f"w{n}": n for n in range(100)}, unk_token="w0")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder
