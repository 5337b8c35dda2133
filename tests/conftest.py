"""What all tests share: quiet, offline settings, short socket directories, no example deadline."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Set before anything imports vLLM or transformers: nothing here may look for a network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
# Nor at the contexts of whoever runs the tests.
os.environ["HOTWIRE_CONFIG"] = "/nonexistent/hotwire.toml"

# A machine's load is no property of the code, so an example has no deadline of its own.
settings.register_profile("hotwired", deadline=None, print_blob=True)
settings.load_profile("hotwired")


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """An empty directory, mode 0700, with a path short enough for Unix sockets (107 bytes)."""
    path = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
