"""Run by the Python of a fresh environment: daemon and command line work there, without torch.

Prints the versions that were used, as JSON.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

BIN = Path(sys.executable).parent
ABSENT = ("torch", "vllm", "transformers")


def main() -> None:
    """Fails with an AssertionError where something is not as it must be."""
    assert not any(map(importlib.util.find_spec, ABSENT))
    check_imports()
    with tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp") as root:
        check_commands(Path(root))
    names = ("protobuf", "grpcio", "grpcio-health-checking", "numpy")
    versions = {name: importlib.metadata.version(name) for name in names}
    print(json.dumps({"python": sys.version.split()[0], **versions}))


OF_EXTRAS = {"hotwired.otel"}
"""What is imported only where an extra is installed."""


def check_imports() -> None:
    """Every module of daemon and clients can be imported, each with its types marked."""
    for name in ("hotwired", "hotwire_client", "hotwirectl"):
        package = importlib.import_module(name)
        assert "site-packages" in str(package.__file__), package.__file__
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__") and module.name not in OF_EXTRAS:
                importlib.import_module(module.name)


def check_commands(root: Path) -> None:
    """A vector's life, a backup and its restore."""
    file = root / "joy.safetensors"
    save_file({"v": np.ones((2, 4), np.float32)}, file)
    with daemon(root / "run", root / "state"):
        call("hotwirectl", "health", "--timeout", "20")
        call("hotwirectl", "register", str(file))
        assert json.loads(call("hotwirectl", "show", "joy", "-o", "json"))["hidden_size"] == 4
        refused = ("hotwirectl", "show", "jou", "-o", "json")
        assert json.loads(call(*refused, code=69))["reason"] == "VECTOR_NOT_FOUND"
        call("hotwired", "backup", str(root / "b.tar"), "--state-dir", str(root / "state"))
    call("hotwired", "restore", str(root / "b.tar"), "--state-dir", str(root / "again"))
    with daemon(root / "run", root / "again"):
        call("hotwirectl", "health", "--timeout", "20")
        assert call("hotwirectl", "list").splitlines()[1].startswith("joy ")


@contextmanager
def daemon(run_dir: Path, state_dir: Path) -> Iterator[None]:
    """Runs `hotwired serve`, which must end with 0."""
    os.environ["HOTWIRE_RUN_DIR"] = str(run_dir)
    command = [str(BIN / "hotwired"), "serve", "--state-dir", str(state_dir)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def call(program: str, *arguments: str, code: int = 0) -> str:
    """Runs a command of this environment and returns what it printed."""
    command = [str(BIN / program), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == code, (command, result.stdout, result.stderr)
    return result.stdout + result.stderr


if __name__ == "__main__":
    main()
