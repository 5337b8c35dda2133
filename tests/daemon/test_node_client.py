"""A foreign client: Node.js with @grpc/grpc-js, against the real daemon, on both of its ways in."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.daemon.harness import Fleet, a_file
from tests.daemon.remote import made, token_of

CLIENT = Path(__file__).parents[2] / "clients" / "node"
INSTALL_SECONDS = 90


def installed() -> Path:
    """Returns the client's folder with its packages in it.

    Without npm it is skipped on a developer's machine, and fails in CI.
    """
    if shutil.which("npm") is None:
        ending = pytest.fail if os.environ.get("CI") else pytest.skip
        ending("npm is not on the PATH: the Node client's test needs Node.js 20 or newer")
    lock, stamp = CLIENT / "package-lock.json", CLIENT / "node_modules" / ".package-lock.json"
    if not stamp.exists() or stamp.stat().st_mtime < lock.stat().st_mtime:
        result = subprocess.run(
            ["npm", "ci", "--no-progress"],
            cwd=CLIENT,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if result.returncode:
            pytest.fail(f"npm can't install the Node client's packages: {result.stderr[-500:]}")
    return CLIENT


def test_a_client_in_another_language(fleet: Fleet, short_dir: Path) -> None:
    """Its own tests pass, and every one has run."""
    (remote,) = made(fleet, short_dir)
    fleet.instance()
    remote.daemon.wait_for(3)
    file = short_dir / "joy.safetensors"
    file.write_bytes(a_file())
    result = subprocess.run(
        ["node", "--test", "--test-reporter=tap"],
        cwd=installed(),
        env={
            **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
            "HOTWIRE_TEST_FILE": str(file),
            "HOTWIRE_TEST_SOCKET": f"unix:{remote.daemon.socket}",
            "HOTWIRE_TEST_TLS": remote.address,
            "HOTWIRE_TEST_CERTIFICATES": str(remote.folder),
            "HOTWIRE_TEST_TOKEN": token_of("admin"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
    counts = dict(re.findall(r"^# (tests|pass|skipped) (\d+)$", result.stdout, re.MULTILINE))
    assert counts == {"tests": "5", "pass": "5", "skipped": "0"}
    assert remote.daemon.log("rpc", method="RegisterVector", caller="admin-caller", code="OK")
    assert remote.daemon.log("rpc", method="RegisterVector", caller="local", code="OK")
