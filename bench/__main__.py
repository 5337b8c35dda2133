"""All measurements that need no GPU, one after another: `make bench`.

The figures are printed, and kept in .cache/bench.
"""

import subprocess
import sys

from bench.demo.settings import ROOT, places

OUT = ROOT / ".cache" / "bench"
MODEL = str(places(ROOT).model)
BENCHES: tuple[tuple[str, list[str]], ...] = (
    ("fill", []),
    ("op_cpu", []),
    ("push", []),
    ("daemon_rss", []),
    ("throughput", [MODEL]),
)
WITHOUT_FILE = {"op_cpu"}


def main() -> int:
    """Runs each; returns how many failed."""
    OUT.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, arguments in BENCHES:
        print(f"\n== bench.{name}", flush=True)
        command = [sys.executable, "-m", f"bench.{name}", *arguments]
        if name not in WITHOUT_FILE:
            command += ["--json", str(OUT / f"{name}.json")]
        failed += subprocess.run(command, check=False, cwd=ROOT).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
