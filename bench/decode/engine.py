"""One engine, started once, measured at every batch size in each of its states of steering.

    python -m bench.decode.engine SYSTEM SHAPE WORK OUT

Run by ``bench.decode`` as a process of its own: a GPU is clean only once its process has ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.decode import probe
from bench.decode.shapes import SHAPES

BATCHES = (1, 8, 64, 256)
PROMPT_TOKENS = 32
DECODE_TOKENS = 160
WARM_STEPS = 24
"""The steps left out at each end of a measurement: prefill, and the batch running dry."""

LONG_PROMPT = 8192
LONG_REPEATS = 8
ONE_LAYER = 20

STATES = {
    "vanilla": ("vanilla",),
    "vanilla-after": ("vanilla-after",),
    "ours": ("ours-idle", "ours-1", "ours-all", "ours-all-x4"),
    "hotwire": ("hotwire-idle", "hotwire-1", "hotwire-all"),
    "eager": ("eager",),
}
PLUGINS = {"ours": "hotwire_plugin", "hotwire": "hotwire"}


def main() -> None:
    """Measure one system at one shape and write the raw figures."""
    system, shape, work, out = sys.argv[1:]
    os.environ.update(environment(system, Path(work)))
    start = time.perf_counter()
    llm = start_engine(system, Path(work) / shape)
    figures: dict[str, Any] = {"start_s": time.perf_counter() - start, "states": {}}
    llm.collective_rpc(probe.attach)
    for state in STATES[system]:
        figures["states"][state] = _measure(llm, state, SHAPES[shape]["num_hidden_layers"])
    figures["buffers_mib"] = llm.collective_rpc(probe.buffer_mebibytes)[0]
    Path(out).write_text(json.dumps(figures))


def environment(system: str, work: Path) -> dict[str, str]:
    """Return what vLLM is started with: which plugin, and where its vectors are."""
    return {
        "VLLM_PLUGINS": PLUGINS.get(system, "none"),
        "HOTWIRE_VECTORS": str(work / "vectors"),
        "HOTWIRE_SLOTS": str(256 * 48 + 1),
        "HOTWIRE_RUN_DIR": str(work / "run"),
        "HOTWIRE_BANK_MIB": "256",
        "HF_HUB_OFFLINE": "1",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # for the probe
    }


def start_engine(system: str, model: Path) -> Any:
    """Start vLLM with its defaults, but for what the measurement needs."""
    from vllm import LLM

    return LLM(
        str(model),
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=LONG_PROMPT + 64,
        max_num_seqs=max(BATCHES),
        max_num_batched_tokens=LONG_PROMPT + 64,
        gpu_memory_utilization=0.85,
        enable_prefix_caching=False,
        enforce_eager=system == "eager",
    )


def _measure(llm: Any, state: str, layers: int) -> dict[str, Any]:
    result: dict[str, Any] = {"batches": {}}
    for batch in BATCHES:
        llm.collective_rpc(probe.read)
        generate(llm, state, layers, batch, DECODE_TOKENS)
        raw = llm.collective_rpc(probe.read)[0]
        result["batches"][str(batch)] = {
            name: values[WARM_STEPS : DECODE_TOKENS - 4] for name, values in raw.items()
        }
    result["fill_us"] = llm.collective_rpc(probe.fill_micros)[0]
    result["ttft_8k_ms"] = [_prefill(llm, state, layers, n) for n in range(LONG_REPEATS)]
    return result


def generate(llm: Any, state: str, layers: int, batch: int, tokens: int) -> None:
    """Have ``batch`` requests decode ``tokens`` tokens each, steered as ``state`` says."""
    prompts = [_prompt(n, PROMPT_TOKENS) for n in range(batch)]
    params = [_params(state, layers, n, tokens) for n in range(batch)]
    llm.generate(prompts, params, use_tqdm=False)


def _prefill(llm: Any, state: str, layers: int, turn: int) -> float:
    start = time.perf_counter()
    llm.generate([_prompt(turn, LONG_PROMPT)], [_params(state, layers, 0, 1)], use_tqdm=False)
    return (time.perf_counter() - start) * 1e3


def _prompt(seed: int, tokens: int) -> dict[str, list[int]]:
    return {"prompt_token_ids": [(seed * 7919 + i * 31) % 50000 + 100 for i in range(tokens)]}


def _params(state: str, layers: int, request: int, tokens: int) -> Any:
    from vllm import SamplingParams

    spec = specification(state, layers, request)
    return SamplingParams(
        max_tokens=tokens,
        ignore_eos=True,
        temperature=0,
        detokenize=False,
        extra_args={"hotwire": json.dumps(spec)} if spec else None,
    )


def specification(state: str, layers: int, request: int) -> list[dict[str, Any]]:
    """Return what request number ``request`` asks for: a vector of its own, at some layers."""
    kind = state.partition("-")[2]
    name, scale = f"v{request:03d}", 0.01
    if kind == "1":
        return [{"id": name, "layer": min(ONE_LAYER, layers - 1), "scale": scale}]
    if kind == "all":
        return [{"id": name, "layer": layer, "scale": scale} for layer in range(layers)]
    if kind == "all-x4":
        return [{"id": name, "scale": scale * (k + 1)} for k in range(4)]
    return []


if __name__ == "__main__":
    main()
