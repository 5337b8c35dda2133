"""The Pythons of this machine, wheels of this tree, and fresh environments to install them in."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
# The first numpy that has wheels for a Python, where that is later than what we ask for.
_FIRST_NUMPY = {"3.13": "2.1.0"}


def project() -> dict[str, object]:
    """Returns the table [project] of pyproject.toml."""
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def python(version: str) -> Path | None:
    """Returns an interpreter of a version: this one, one on the PATH, or one of pyenv."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}")]
    found += sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    return next((Path(path) for path in found if path and _runs(path)), None)


def _runs(path: str | Path) -> bool:
    # pyenv puts a shim on the PATH for each version it has, also for those that aren't chosen.
    command = [path, "-c", "import ssl, sqlite3, venv"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """Builds the wheel of a tree."""
    command = [
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    pip(Path(sys.executable), *command)
    (wheel,) = folder.glob("hotwired-*.whl")
    return wheel


def lowest(version: str) -> list[str]:
    """Returns the lower bound of each dependency as a pin, such as `grpcio==1.78`."""
    bounds = dict(str(d).split(",", 1)[0].split(">=") for d in dependencies())
    if version in _FIRST_NUMPY:
        bounds["numpy"] = _FIRST_NUMPY[version]
    return [f"{name}=={bound}" for name, bound in bounds.items()]


def dependencies() -> list[str]:
    """Returns what the project needs without any extra."""
    found = project()["dependencies"]
    assert isinstance(found, list)
    return found


def fresh(folder: Path, interpreter: Path) -> Path:
    """Makes an empty environment and returns its Python."""
    subprocess.run([interpreter, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


def pip(target: Path, *arguments: str) -> None:
    """Runs this environment's pip for the Python of another."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(target)]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
