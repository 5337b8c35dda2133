"""How results and failures are printed: an interface, and one module for each format."""

from collections.abc import Callable

from hotwirectl.printers.interface import Printer
from hotwirectl.printers.json_form import JsonPrinter
from hotwirectl.printers.name import NamePrinter
from hotwirectl.printers.table import TablePrinter, WidePrinter
from hotwirectl.printers.yaml_form import YamlPrinter

__all__ = ["Printer", "make_printer"]

_PRINTERS: dict[str, Callable[[], Printer]] = {
    "table": TablePrinter,
    "wide": WidePrinter,
    "json": JsonPrinter,
    "yaml": YamlPrinter,
    "name": NamePrinter,
}


def make_printer(output: str) -> Printer:
    """Returns the printer for the format."""
    return _PRINTERS[output]()
