"""Decode throughput armed and idle against the same engine without the plugin, paired in one run.

    python -m bench.throughput MODEL [--rounds N] [--batch B] [--tokens T] [--json PATH]

Both engines are up at once and decode by turns, so that a slow moment of the machine meets both.
Which of two engines is started first counts for more than the plugin does (they share the machine's
memory), so there are two halves, one with either first. The ratio of a half is the median over its
rounds of armed over bare; that of the run is the geometric mean of the halves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.machine import machine

SYSTEMS = {"bare": "no_plugin", "armed, idle": "hotwire_plugin"}
PROMPT = list(range(100, 116))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=10, help="in each half")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    halves = [_half(args, list(SYSTEMS)), _half(args, list(SYSTEMS)[::-1])]
    result = {
        **machine(),
        "batch": args.batch,
        "tokens": args.tokens,
        "rounds": args.rounds,
        "halves": halves,
        "ratio": statistics.geometric_mean(half["ratio"] for half in halves),
    }
    _print(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def _half(args: argparse.Namespace, order: list[str]) -> dict[str, Any]:
    """Start the engines in this order, let them decode by turns, and end them."""
    engines = {name: _start(args.model, SYSTEMS[name]) for name in order}
    rates: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    for turn in range(args.rounds + 2):
        for name in order if turn % 2 else order[::-1]:
            rate = _decode(engines[name], args.batch, args.tokens)
            if turn >= 2:  # the first rounds warm both up
                rates[name].append(rate)
    for connection in engines.values():
        connection.send(None)
        connection.recv()
    bare, armed = rates.values()
    ratios = [a / b for a, b in zip(armed, bare, strict=True)]
    return {
        "first": order[0],
        "tokens_per_second": {name: statistics.median(r) for name, r in rates.items()},
        "ratio": statistics.median(ratios),
        "ratio_p10": statistics.quantiles(ratios, n=10)[0],
        "ratio_p90": statistics.quantiles(ratios, n=10)[-1],
    }


def _print(result: dict[str, Any]) -> None:
    for half in result["halves"]:
        speeds = ", ".join(f"{n} {rate:.1f}" for n, rate in half["tokens_per_second"].items())
        print(
            f"{half['first']} started first: {speeds} tok/s, armed / bare {half['ratio']:.4f} "
            f"(p10 {half['ratio_p10']:.4f}, p90 {half['ratio_p90']:.4f})"
        )
    print(f"armed / bare over both: {result['ratio']:.4f}")
    print("  ".join(f"{k}={v}" for k, v in machine().items()))


def _start(model: str, plugin: str) -> Connection:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=_serve, args=(theirs, model, plugin), daemon=False).start()
    ours.recv()
    return ours


def _decode(engine: Connection, batch: int, tokens: int) -> float:
    engine.send((batch, tokens))
    rate: float = engine.recv()
    return rate


def _serve(connection: Connection, model: str, plugin: str) -> None:
    os.environ.update(
        VLLM_PLUGINS=plugin,
        VLLM_CPU_KVCACHE_SPACE="1",
        HF_HUB_OFFLINE="1",
        VLLM_LOGGING_LEVEL="ERROR",
    )
    from vllm import LLM, SamplingParams

    llm = LLM(model, dtype="float32", max_model_len=512, max_num_seqs=64)
    connection.send("ready")
    while (ask := connection.recv()) is not None:
        batch, tokens = ask
        params = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0)
        prompts = [{"prompt_token_ids": [n, *PROMPT]} for n in range(batch)]
        start = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        connection.send(batch * tokens / (time.perf_counter() - start))
    llm.llm_engine.engine_core.shutdown()
    connection.send("ended")


if __name__ == "__main__":
    main()
