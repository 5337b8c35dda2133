"""Compares what a command printed with what the page says, by its shape.

Numbers, digests, times and ages are masked, runs of blanks count as one, and the world's own
places are put back as the page has them; all else must be the same, line by line. In the page
`...` stands for anything within a line, and on a line of its own for any lines.
"""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence

_MASKS = (
    (r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)", "TIME"),
    (r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b", "N"),  # digests, and the ids of requests
    (r"(?<![\w-])[0-9a-f]{5}(?=/)", "N"),  # vLLM's instance
    (r"\d+(\.\d+)?(e-?\d+)?", "N"),
    (r"\bN(s|m|h|d)\b", "N"),  # an age may be a second or a minute
    (r"-?N(KiB|MiB|GiB)", "N"),
    (r"\s+", " "),
)


def shape(line: str) -> str:
    """A line with all masked that differs from run to run."""
    for pattern, mask in _MASKS:
        line = re.sub(pattern, mask, line)
    return line.strip()


def difference(expected: Sequence[str], printed: str, places: Mapping[str, str]) -> str | None:
    """What tells the two apart, None if nothing does.

    places: what stands in the page, by what stands in the world for it.
    """
    for ours, theirs in places.items():
        printed = printed.replace(ours, theirs)
    got, wanted = printed.strip("\n"), "\n".join(expected)
    with contextlib.suppress(ValueError):
        got, wanted = _in_order(got), _in_order(wanted)
    lines = "".join(f"{shape(line)}\n" for line in got.splitlines())
    pattern = "".join(_pattern(shape(line)) for line in wanted.splitlines())
    if re.fullmatch(pattern, lines):
        return None
    return "\n".join(["the page says:", *expected, "it printed:", printed])


def _in_order(text: str) -> str:
    """JSON with its keys in order, since a map has none. Raises ValueError for other text."""
    return json.dumps(json.loads(text), indent=2, sort_keys=True)


def _pattern(line: str) -> str:
    if line == "...":
        return r"(?:.*\n)*?"
    return ".*".join(map(re.escape, line.split("..."))) + r"\n"
