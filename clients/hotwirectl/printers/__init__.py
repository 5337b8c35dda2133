"""How results and failures are printed: an interface, and one module for each format."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from google.protobuf.message import Message

from hotwirectl.failures import Failure
from hotwirectl.printers.json_form import JsonPrinter
from hotwirectl.printers.table import TablePrinter


class Printer(Protocol):
    """Prints results on stdout and failures on stderr."""

    def result(self, data: Message | Mapping[str, Any], text: Callable[[], str]) -> None:
        """Prints the one result of a command; `text` makes it for people."""

    def sample(self, data: Message, text: Callable[[], str]) -> None:
        """Prints one result of many, on lines of its own, at once."""

    def note(self, text: str) -> None:
        """Prints a remark for people."""

    def failure(self, failure: Failure) -> None:
        """Prints why the command did not succeed."""


def make_printer(output: str) -> Printer:
    """Returns the printer for the format."""
    return JsonPrinter() if output == "json" else TablePrinter()
