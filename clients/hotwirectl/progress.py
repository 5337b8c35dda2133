"""A bar for what takes long."""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence

import click


@contextlib.contextmanager
def progress(texts: Sequence[str], label: str) -> Iterator[Iterable[str]]:
    """Hands out the texts one by one, with a bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield texts
        return
    with click.progressbar(texts, label=label, show_pos=True, file=sys.stderr) as bar:
        yield bar
