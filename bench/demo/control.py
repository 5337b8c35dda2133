"""hotwirectl, run as a user would run it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOTWIRECTL = str(Path(sys.executable).parent / "hotwirectl")


class CommandFailedError(Exception):
    """hotwirectl ended with another code than 0; the message is what it printed."""


@dataclass(frozen=True, slots=True)
class Control:
    """Runs hotwirectl against the daemon whose socket is in `run_dir`."""

    run_dir: Path

    def __call__(self, *arguments: str) -> dict[str, Any]:
        """Runs a command and returns its JSON. Raises CommandFailedError."""
        environment = os.environ | {"HOTWIRE_RUN_DIR": str(self.run_dir)}
        environment.pop("HOTWIRE_SERVER", None)  # it would go to another daemon
        done = subprocess.run(
            [HOTWIRECTL, "-o", "json", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise CommandFailedError(f"hotwirectl {' '.join(arguments)}: {said}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def converged(self) -> bool:
        """Whether the daemon knows at least one node, and every node has the newest generation."""
        try:
            nodes = self("nodes").get("nodes", [])
        except CommandFailedError:
            return False
        return bool(nodes) and all(n["state"] == "NODE_STATE_CONVERGED" for n in nodes)
