"""The command `hotwired`: its version, its options and where they come from."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotwired import __version__


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command `hotwired`."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HOTWIRE")}
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-m", "hotwired.main", *arguments],
        env={**inherited, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_the_version() -> None:
    """It is printed, and it is the package's."""
    assert f"hotwired {__version__} " in run("version").stdout
    assert f'version = "{__version__}"' in Path("pyproject.toml").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "tcp:127.0.0.1:1"),
        ("--listen", "unix:"),
        ("--log-level", "loud"),
        ("--max-vector-mib", "0"),
        ("--nonsense",),
    ],
)
def test_bad_options_are_a_usage_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit status 2, and nothing is started."""
    result = run("serve", "--state-dir", str(tmp_path / "s"), *arguments)
    assert result.returncode == 2
    assert not (tmp_path / "s").exists()


def test_flags_beat_the_environment(short_dir: Path) -> None:
    """Each option has a variable; the flag wins. The refused socket path tells which was used."""
    long = "x" * 120
    for arguments, environment in (
        ((), {"HOTWIRED_LISTEN": f"unix:/tmp/{long}"}),
        (("--listen", f"unix:/tmp/{long}"), {"HOTWIRED_LISTEN": f"unix:{short_dir}/good.sock"}),
        ((), {"HOTWIRED_RUN_DIR": f"/tmp/{long}"}),
        ((), {"HOTWIRE_RUN_DIR": f"/tmp/{long}"}),
    ):
        result = run("serve", "--state-dir", str(short_dir / "s"), *arguments, **environment)
        assert (result.returncode, long in result.stderr) == (1, True)
