"""What makes files outlast a power cut."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Waits until a file's bytes, or a directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
