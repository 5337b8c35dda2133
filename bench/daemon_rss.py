"""The daemon's memory with 1,000 vectors of 30 x 576: python -m bench.daemon_rss [--json PATH]."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from bench.machine import machine
from bench.push import HIDDEN, LAYERS, running_daemon, stub_of, upload
from hotwired.v1 import steering_service_pb2 as pb

LIMIT_MIB = 150.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="vectors")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
    rows = _measure(root, args.count)
    print(f"{'daemon':34} {'RSS MiB':>8} {'peak MiB':>9}")
    for row in rows:
        print(f"{row['case']:34} {row['rss_mib']:8.1f} {row['peak_mib']:9.1f}")
    met = all(row["peak_mib"] <= LIMIT_MIB for row in rows)
    print(f"promised: <= {LIMIT_MIB:g} MiB: {'met' if met else 'MISSED'}")
    facts = {**machine(), "grpc": grpc.__version__}
    print("  ".join(f"{key}={value}" for key, value in facts.items()))
    if args.json:
        result = {**facts, "count": args.count, "shape": [LAYERS, HIDDEN], "rows": rows, "met": met}
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def _measure(root: Path, count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    with ExitStack() as stack:
        address, pid = stack.enter_context(running_daemon(root / "run", root / "state"))
        stub = stub_of(stack, address)
        rows.append(_row("empty", pid))
        for number in range(count):
            messages = upload(f"v{number}", rng.normal(size=(LAYERS, HIDDEN)))
            stub.RegisterVector(iter(messages), timeout=10)
        rows.append(_row(f"{count} vectors registered", pid))
    with ExitStack() as stack:
        start = time.perf_counter()
        address, pid = stack.enter_context(running_daemon(root / "run", root / "state"))
        stub = stub_of(stack, address)
        found = stub.Stats(pb.StatsRequest(), timeout=5).stats.vectors
        seconds = time.perf_counter() - start
        rows.append(_row(f"{found} vectors, started in {seconds:.1f} s", pid))
    return rows


def _row(case: str, pid: int) -> dict[str, Any]:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in status if line.startswith("Vm")}
    return {"case": case, "rss_mib": kib["VmRSS"] / 1024, "peak_mib": kib["VmHWM"] / 1024}


if __name__ == "__main__":
    main()
