"""Decode throughput armed and idle against the same engine without the plugin, paired in one run.

    python -m bench.throughput MODEL [--rounds N] [--batch B] [--tokens T] [--armed-first]
                               [--json PATH]

Both engines are up at once and decode by turns, so that a slow moment of the machine meets both.
The ratio is the median over rounds of armed over bare. Which engine is started first can count for
more than the plugin does (they share the machine's memory): run it both ways.
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
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--armed-first", action="store_true", help="start the armed engine first")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    order = list(SYSTEMS)[::-1] if args.armed_first else list(SYSTEMS)
    started = {name: _start(args.model, SYSTEMS[name]) for name in order}
    engines = {name: started[name] for name in SYSTEMS}
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(args.rounds + 2):
        order = list(engines) if turn % 2 else list(engines)[::-1]
        for name in order:
            rate = _decode(engines[name], args.batch, args.tokens)
            if turn >= 2:  # the first rounds warm both up
                rates[name].append(rate)
    for connection in engines.values():
        connection.send(None)
    _print(args, rates)


def _print(args: argparse.Namespace, rates: dict[str, list[float]]) -> None:
    bare, armed = rates.values()
    ratios = [a / b for a, b in zip(armed, bare, strict=True)]
    result: dict[str, Any] = {
        **machine(),
        "batch": args.batch,
        "tokens": args.tokens,
        "rounds": args.rounds,
        "first": "armed" if args.armed_first else "bare",
        "tokens_per_second": {name: statistics.median(r) for name, r in rates.items()},
        "ratio": statistics.median(ratios),
        "ratio_p10": statistics.quantiles(ratios, n=10)[0],
        "ratio_p90": statistics.quantiles(ratios, n=10)[-1],
    }
    for name, rate in result["tokens_per_second"].items():
        print(f"{name:14} {rate:8.1f} tok/s (median of {args.rounds} rounds)")
    print(
        f"armed / bare   {result['ratio']:.4f} (p10 {result['ratio_p10']:.4f}, "
        f"p90 {result['ratio_p90']:.4f})"
    )
    print("  ".join(f"{k}={v}" for k, v in machine().items()))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


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


if __name__ == "__main__":
    main()
