"""Prints for people: plain columns, and failures as a sentence, a reason and the next step."""

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import Message

from hotwirectl.failures import Failure
from hotwirectl.printers import stdio
from hotwirectl.text import escaped


class TablePrinter:
    """The format `table`."""

    def result(self, data: Message | Mapping[str, Any], text: Callable[[], str]) -> None:
        """Prints the text."""
        del data
        stdio.out(text())

    def sample(self, data: Message, text: Callable[[], str]) -> None:
        """Prints the text."""
        self.result(data, text)

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
