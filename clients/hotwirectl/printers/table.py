"""Prints for people: plain columns, and failures as a sentence, a reason and the next step."""

from collections.abc import Sequence

from hotwirectl.failures import Failure
from hotwirectl.printers import stdio
from hotwirectl.printers.interface import Data, Text
from hotwirectl.text import escaped


class TablePrinter:
    """The format `table`."""

    def result(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints the text."""
        del data, wide, names
        stdio.out(text())

    def sample(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints the text."""
        self.result(data, text, wide=wide, names=names)

    def note(self, text: str) -> None:
        """Prints the remark on stderr."""
        stdio.err(f"note: {escaped(text)}")

    def failure(self, failure: Failure) -> None:
        """Prints one line, and one more for each field at fault, each node and the next step."""
        reason = "" if failure.reason == failure.code == "USAGE" else f" ({failure.reason})"
        stdio.err(escaped(f"error: {failure.message}{reason}"))
        for violation in failure.violations:
            if violation.description not in failure.message:
                stdio.err(escaped(f"  {violation.field}: {violation.description}"))
        if failure.code == "NOT_CONVERGED":
            for node, detail in failure.metadata.items():
                stdio.err(escaped(f"  {node}: {detail}"))
        if failure.hint:
            stdio.err(escaped(f"hint: {failure.hint}"))


class WidePrinter(TablePrinter):
    """The format `wide`: the table with more columns, where there are more."""

    def result(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints the wider text."""
        super().result(data, wide or text, names=names)
