"""Decode throughput armed and idle against the same engine without the plugin, paired in one run.

    python -m bench.throughput MODEL [--pairs N] [--json PATH]

One engine is up at a time: two that share a machine differ by which was started first more than by
the plugin. A pair is two starts, one of each system, and its ratio is armed over bare, each by the
median of its decodes; every other pair starts with the other system. The figure is the median over
the pairs, with its 95 % interval by bootstrap over them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.machine import machine

SYSTEMS = {"bare": "no_plugin", "armed": "hotwire_plugin"}
PROMPT = list(range(100, 116))
WARM_UP = 2
RESAMPLES = 10_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--decodes", type=int, default=6, help="of each start")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    for system in SYSTEMS:
        _rate(args, system)  # fills the compile cache, and the file cache
    pairs = [_pair(args, number) for number in range(args.pairs)]
    result = {
        **machine(),
        **{key: getattr(args, key) for key in ("batch", "tokens", "decodes")},
        "pairs": pairs,
        **summary([pair["armed"] / pair["bare"] for pair in pairs]),
    }
    _print(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def summary(ratios: list[float]) -> dict[str, float]:
    """Return the median of the pairs' ratios, and the bounds of its 95 % bootstrap interval."""
    chance = random.Random(0)
    medians = sorted(
        statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES)
    )
    low, high = medians[RESAMPLES // 40], medians[-RESAMPLES // 40]
    return {"ratio": statistics.median(ratios), "ratio_low": low, "ratio_high": high}


def _pair(args: argparse.Namespace, number: int) -> dict[str, float]:
    order = list(SYSTEMS) if number % 2 else list(SYSTEMS)[::-1]
    pair = {system: _rate(args, system) for system in order}
    ratio = pair["armed"] / pair["bare"]
    print(
        f"pair {number + 1}, {order[0]} first: "
        f"armed {pair['armed']:.1f}, bare {pair['bare']:.1f} tok/s, ratio {ratio:.4f}",
        file=sys.stderr,
        flush=True,
    )
    return pair


def _rate(args: argparse.Namespace, system: str) -> float:
    """Start an engine, decode, end it; return the median of the tokens a second."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    sizes = (args.batch, args.tokens, args.decodes)
    process = context.Process(target=_serve, args=(theirs, args.model, SYSTEMS[system], sizes))
    process.start()
    theirs.close()
    rates: list[float] = ours.recv()
    process.join()
    return statistics.median(rates)


def _print(result: dict[str, Any]) -> None:
    for system in SYSTEMS:
        rates = [pair[system] for pair in result["pairs"]]
        print(f"{system}: {statistics.median(rates):.1f} tok/s ({min(rates):.1f}–{max(rates):.1f})")
    print(
        f"armed / bare over {len(result['pairs'])} pairs: {result['ratio']:.4f} "
        f"(95 % {result['ratio_low']:.4f}–{result['ratio_high']:.4f})"
    )
    print("  ".join(f"{k}={v}" for k, v in machine().items()))


def _serve(connection: Connection, model: str, plugin: str, sizes: tuple[int, int, int]) -> None:
    os.environ.update(
        VLLM_PLUGINS=plugin,
        VLLM_CPU_KVCACHE_SPACE="1",
        HF_HUB_OFFLINE="1",
        VLLM_LOGGING_LEVEL="ERROR",
    )
    from vllm import LLM

    llm = LLM(model, dtype="float32", max_model_len=512, max_num_seqs=64)
    batch, tokens, decodes = sizes
    rates = [_decode(llm, batch, tokens) for _ in range(WARM_UP + decodes)]
    connection.send(rates[WARM_UP:])
    llm.llm_engine.engine_core.shutdown()


def _decode(llm: Any, batch: int, tokens: int) -> float:
    """Return the tokens a second of one batch, its short prefill included."""
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0)
    prompts = [{"prompt_token_ids": [n, *PROMPT]} for n in range(batch)]
    start = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    return batch * tokens / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
