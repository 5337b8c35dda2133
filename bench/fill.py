"""Host time of the per-step fill: python -m bench.fill [--json PATH]."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bench.machine import machine
from hotwire_plugin.bank import Bank
from hotwire_plugin.fill import StepFill, TokenMap
from hotwire_plugin.positions import EVERYWHERE, Positions
from hotwire_plugin.program import Program, ProgramOp
from hotwire_plugin.rows import ProgramRows
from hotwire_plugin.shape import Place

NOT_THE_FIRST = Positions(exclude=((0, 0),))
LAYERS, HIDDEN, REQUESTS, STEPS = 30, 576, 64, 5000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        _row("nothing steered", _fill(0)),
        _row("1 of 64 requests steered, 30 layers", _fill(1)),
        _row("64 requests steered, 30 layers, one program", _fill(REQUESTS, distinct=False)),
        _row("64 requests steered, 30 layers, 64 programs", _fill(REQUESTS)),
        _row("the same, but for each prompt's first token", _fill(REQUESTS, where=NOT_THE_FIRST)),
    ]
    print(f"{'decode step of 64 requests':46} {'p50 us':>8} {'p90 us':>8} {'p99 us':>8}")
    for row in rows:
        print(f"{row['case']:46} {row['p50_us']:8.1f} {row['p90_us']:8.1f} {row['p99_us']:8.1f}")
    result = {**machine(), "steps": STEPS, "rows": rows}
    print("  ".join(f"{k}={v}" for k, v in machine().items()))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def _fill(
    steered: int, *, distinct: bool = True, where: Positions = EVERYWHERE
) -> Callable[[], None]:
    cpu = torch.device("cpu")
    row = np.ones(HIDDEN, dtype=np.float32)
    bank = Bank(LAYERS + 1, HIDDEN, cpu)
    table = ProgramRows(
        places=[Place(layer) for layer in range(LAYERS)],
        rows=2 * REQUESTS + 1,
        bank=bank,
        load_row=lambda *_: row,
    )
    fill = StepFill(table, TokenMap(8192, cpu))
    ids = [f"cmpl-{n:032x}" for n in range(REQUESTS)]
    for n, request in enumerate(ids[:steered]):
        scale = 1.0 + n * distinct
        ops = [ProgramOp("a" * 64, n, scale, "add", "all", where) for n in range(LAYERS)]
        fill.begin(request, Program(tuple(ops)).encode())
    start = np.arange(REQUESTS + 1, dtype=np.int32)
    computed = np.full(REQUESTS, 40, dtype=np.int32)
    prompt = np.full(REQUESTS, 20, dtype=np.int32)
    return lambda: fill.step(ids, start, computed, prompt, enabled=True)


def _row(case: str, step: Callable[[], None]) -> dict[str, float | str]:
    for _ in range(100):
        step()
    micros = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        micros.append((time.perf_counter() - begin) * 1e6)
    cuts = statistics.quantiles(micros, n=100)
    return {"case": case, "p50_us": cuts[49], "p90_us": cuts[89], "p99_us": cuts[98]}


if __name__ == "__main__":
    main()
