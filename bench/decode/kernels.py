"""The kernels of one decode step, counted and timed: python -m bench.decode.kernels SYSTEM SHAPE.

For finding out where a step's microseconds go; prints the most expensive kernels of each state.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.decode.__main__ import write_vectors
from bench.decode.engine import STATES, environment, generate, start_engine
from bench.decode.shapes import SHAPES, write_config

BATCH, TOKENS, SHOWN = 8, 40, 40


def main() -> None:
    """Profile every state of one system at one shape."""
    system, shape = sys.argv[1:]
    work = Path(tempfile.mkdtemp(prefix="kernels-"))
    write_config(shape, work / shape)
    write_vectors(shape, work / "vectors")
    os.environ.update(environment(system, work), VLLM_ENABLE_V1_MULTIPROCESSING="0")
    llm = start_engine(system, work / shape)
    layers = SHAPES[shape]["num_hidden_layers"]
    for state in STATES[system]:
        generate(llm, state, layers, BATCH, TOKENS)
        _print(state, _profile(lambda state=state: generate(llm, state, layers, BATCH, TOKENS)))


def _profile(run: Any) -> dict[str, list[float]]:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
    times: dict[str, list[float]] = defaultdict(list)
    for event in profiler.events():
        if str(event.device_type).endswith("CUDA"):
            times[event.name].append(event.device_time_total)
    return times


def _print(state: str, times: dict[str, list[float]]) -> None:
    total = sum(map(sum, times.values())) / TOKENS
    count = sum(map(len, times.values())) / TOKENS
    print(f"\n{state}: {count:.1f} kernels and {total:.1f} us of kernels a step, batch {BATCH}")
    for name, values in sorted(times.items(), key=lambda item: -sum(item[1]))[:SHOWN]:
        each = sum(values) / len(values)
        print(f"  {len(values) / TOKENS:7.1f} x {each:7.2f} us  {name[:110]}")


if __name__ == "__main__":
    main()
