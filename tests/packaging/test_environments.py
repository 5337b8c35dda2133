"""The wheel in fresh environments: at the oldest and the newest of what it needs, without torch.

Each of Python 3.11, 3.12 and 3.13 that this machine has; the report names those that it hasn't.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.packaging import environments

TESTS = ("registry", "migrations", "policy", "vector_file", "hotwirectl_wait")
TESTS += ("client_calls", "client_errors", "client_faults", "hotwirectl_commands")
SMOKE = Path(__file__).with_name("smoke.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree's wheel."""
    return environments.build_wheel(tmp_path_factory.mktemp("wheel"))


def cells() -> list[object]:
    """Returns each Python with each end; CI's own version alone is quick enough for every run."""
    return [
        pytest.param(version, end, marks=[] if version == "3.11" else [pytest.mark.slow])
        for version in environments.VERSIONS
        for end in ("lowest", "newest")
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("version", "end"), cells())
def test_the_daemon_runs(wheel: Path, tmp_path: Path, version: str, end: str) -> None:
    """Daemon, client and command line do their work, and no source of ours is deprecated there."""
    interpreter = environments.python(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    python = environments.fresh(tmp_path / "env", interpreter)
    pins = environments.lowest(version) if end == "lowest" else []
    environments.pip(python, "install", "--quiet", "--no-compile", str(wheel), *pins)
    (site,) = (tmp_path / "env").glob("lib/python3.*/site-packages")
    ours = [str(site / name) for name in ("hotwired", "hotwire_plugin", "hotwire_client")]
    compiled = subprocess.run(
        [python, "-W", "error", "-m", "compileall", "-q", *ours, str(site / "hotwirectl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
    ran = subprocess.run(
        [python, "-I", SMOKE], capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    check_versions(json.loads(ran.stdout), version, end)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", environments.VERSIONS[1:])
def test_the_tests_of_daemon_and_clients_pass(wheel: Path, tmp_path: Path, version: str) -> None:
    """On the Pythons that the other tests don't run on, with the newest of what is needed."""
    interpreter = environments.python(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    python = environments.fresh(tmp_path / "env", interpreter)
    plugins = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis")
    environments.pip(python, "install", "--quiet", str(wheel), *plugins)
    unit = [f"tests/unit/test_{name}.py" for name in TESTS]
    cache = f"cache_dir={tmp_path / 'cache'}"
    ran = subprocess.run(
        [python, "-m", "pytest", "-q", "-o", cache, "tests/daemon", *unit],
        cwd=environments.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr


def check_versions(found: dict[str, str], version: str, end: str) -> None:
    """What was installed is that end."""
    assert found["python"].startswith(version)
    if end == "lowest":
        assert (found["protobuf"], found["grpcio"]) == ("6.33.5", "1.78.0")
        assert found["grpcio-health-checking"] == "1.78.0"
    else:
        assert found["protobuf"].startswith("7.")
        assert found["grpcio"] > "1.78.0"
