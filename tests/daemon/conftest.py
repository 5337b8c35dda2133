"""Fleets: one for each test, and one that the tests of a module share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import Fleet
from tests.daemon.harness import fleet as make_fleet


@pytest.fixture
def fleet(short_dir: Path) -> Iterator[Fleet]:
    """Starts daemons and nodes for one test."""
    yield from make_fleet(short_dir)


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    """Starts daemons and nodes for the tests of a module, which leave no trace in them."""
    path = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
    yield from make_fleet(path)
    shutil.rmtree(path, ignore_errors=True)
