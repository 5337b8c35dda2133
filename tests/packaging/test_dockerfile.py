"""The Dockerfile: linted, and what it copies is enough for the wheel that it builds."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.packaging import environments

DOCKERFILE = environments.ROOT / "docs" / "deploy" / "Dockerfile"
TEXT = DOCKERFILE.read_text()


def sources() -> list[str]:
    """Returns what is copied from the tree."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", TEXT, re.MULTILINE)
    return [name for line in lines for name in line.split()]


def test_it_is_linted() -> None:
    """By hadolint, with nothing to say."""
    hadolint = Path(sys.executable).with_name("hadolint")
    result = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_what_it_copies_makes_the_same_wheel(tmp_path: Path) -> None:
    """A wheel of those files alone holds what a wheel of the whole tree holds."""
    assert "RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ." in TEXT
    assert "RUN pip install --no-cache-dir /wheels/*.whl" in TEXT
    for name in sources():
        found = environments.ROOT / name
        copy = shutil.copytree if found.is_dir() else shutil.copy
        copy(found, tmp_path / name)
    theirs = environments.build_wheel(tmp_path / "theirs", tmp_path)
    ours = environments.build_wheel(tmp_path / "ours")
    names = [sorted(zipfile.ZipFile(wheel).namelist()) for wheel in (theirs, ours)]
    assert names[0] == names[1]


def test_its_python_is_one_that_is_tested() -> None:
    """The base image's version is in the matrix."""
    versions = set(re.findall(r"^FROM python:(\S+)-slim", TEXT, re.MULTILINE))
    assert versions
    assert versions <= set(environments.VERSIONS)
