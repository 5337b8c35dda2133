"""What a report says of the machine: never a host's or a user's name, or a path."""

import datetime as dt
import os
import platform
import re
from importlib import metadata
from pathlib import Path

_PATH = re.compile(r"(?<![\w.:/])/(?:[\w.@+~-]+/)*(?=[\w.@+~-])")
_GPUS = Path("/proc/driver/nvidia/gpus")


def facts() -> dict[str, str]:
    """Returns device, versions and date (UTC)."""
    uname = os.uname()
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": ", ".join([*_gpus(), f"{_cpu()}, {os.cpu_count()} cores"]),
        "kernel": f"{uname.sysname} {uname.release} {uname.machine}",
        "python": platform.python_version(),
        "hotwirectl": _version("hotwired"),
    }


def scrubbed(text: str) -> str:
    """Returns the text with absolute paths cut down to their last parts."""
    return _PATH.sub("", text)


def _gpus() -> list[str]:
    """Returns the NVIDIA GPUs, such as "2 x NVIDIA H200"."""
    names = [_field(path, "Model") for path in sorted(_GPUS.glob("*/information"))]
    return [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]


def _cpu() -> str:
    return _field(Path("/proc/cpuinfo"), "model name") or platform.machine()


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"
