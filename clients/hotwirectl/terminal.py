"""Whether there is a terminal that can be drawn on."""

import os
import sys


def can_draw() -> bool:
    """Whether stdout is a terminal that knows how to move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}
