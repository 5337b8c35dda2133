"""python -m bench.decode SHAPE [--systems ...] [--out PATH]: on a machine with a GPU and vLLM."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.decode import report
from bench.decode.engine import STATES
from bench.decode.shapes import SHAPES, write_config

DEFAULT = ("vanilla", "ours", "hotwire", "eager", "vanilla-after")
VECTORS = 256


def main() -> None:
    """Measure every system at one shape; print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("--systems", nargs="+", default=DEFAULT, choices=sorted(STATES))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    write_config(args.shape, work / args.shape)
    write_vectors(args.shape, work / "vectors")
    figures: dict[str, Any] = {}
    for system in args.systems:
        figures[system] = _run(system, args.shape, work, args.out)
        rows = report.rows_of(args.shape, {k: v for k, v in figures.items() if v})
        args.out.write_text(json.dumps({**_machine(), "rows": rows}, indent=1) + "\n")
    print(report.table(rows))
    print("  ".join(f"{k}={v}" for k, v in _machine().items()))


def _run(system: str, shape: str, work: Path, out: Path) -> dict[str, Any] | None:
    raw, log = work / f"{system}.json", out.with_name(f"{shape}-{system}.log")
    command = [sys.executable, "-m", "bench.decode.engine", system, shape, str(work), str(raw)]
    with log.open("w") as sink:
        done = subprocess.run(command, stdout=sink, stderr=subprocess.STDOUT, check=False)
    if done.returncode or not raw.exists():
        print(f"{system}: failed, see {log}")
        print("\n".join(log.read_text().splitlines()[-15:]))
        return None
    figures: dict[str, Any] = json.loads(raw.read_text())
    figures["compile_s"] = _compile_seconds(log.read_text())
    seconds = f"start {figures['start_s']:.1f} s, compile {figures['compile_s']} s"
    print(f"{system}: {seconds}", flush=True)
    return figures


def _compile_seconds(log: str) -> float | None:
    """Return what vLLM says of its compilation, in seconds."""
    found = re.findall(r"torch\.compile (?:took|and initial profiling[^\d]*took) ([\d.]+) s", log)
    return float(found[-1]) if found else None


def write_vectors(shape: str, folder: Path) -> None:
    """Write a random vector for each request of the largest batch."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    layers, hidden = SHAPES[shape]["num_hidden_layers"], SHAPES[shape]["hidden_size"]
    generator = torch.Generator().manual_seed(0)
    for n in range(VECTORS):
        torch.save(torch.randn(layers, hidden, generator=generator), folder / f"v{n:03d}.pt")


def _machine() -> dict[str, Any]:
    import torch

    names = ("vllm", "torch", "triton", "hotwired", "hotwire-vllm")
    return {
        "device": torch.cuda.get_device_name(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "versions": {name: _version(name) for name in names},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
