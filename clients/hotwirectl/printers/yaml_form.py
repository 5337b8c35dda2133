"""Prints the JSON form as YAML."""

from collections.abc import Sequence
from typing import Any

from hotwirectl.failures import Failure
from hotwirectl.printers import stdio
from hotwirectl.printers.interface import Data, Text
from hotwirectl.printers.json_form import failure_form, to_dict


class YamlPrinter:
    """The format `yaml`: one document, or one for each of several samples."""

    def result(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints the data."""
        del text, wide, names
        stdio.out(to_yaml(to_dict(data)))

    def sample(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints the data as a document of its own."""
        del text, wide, names
        stdio.out("---\n" + to_yaml(to_dict(data)))

    def note(self, text: str) -> None:
        """Prints nothing: what is remarked on is in the data."""

    def failure(self, failure: Failure) -> None:
        """Prints the failure as one document on stderr."""
        stdio.err(to_yaml(failure_form(failure)))


def to_yaml(form: dict[str, Any]) -> str:
    """Returns the form as YAML that reads back as the same, in ASCII."""
    import yaml  # no other format waits for it

    # Text that YAML would take for something else, such as "on" or "5", is quoted by the library;
    # an endless width keeps each value on its line.
    return yaml.safe_dump(form, sort_keys=False, width=float("inf")).rstrip("\n")
