"""Prints for other commands: a line for each resource, such as vector/joy, and nothing else."""

from collections.abc import Sequence

from hotwirectl.printers import stdio
from hotwirectl.printers.interface import Data, Text
from hotwirectl.printers.table import TablePrinter
from hotwirectl.text import escaped


class NamePrinter(TablePrinter):
    """The format `name`."""

    def result(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints the names."""
        del data, text, wide
        for name in names:
            stdio.out(escaped(name))
