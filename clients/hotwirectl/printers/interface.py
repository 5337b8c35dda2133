"""What a printer is, and what it is given."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from google.protobuf.message import Message

from hotwirectl.failures import Failure

#: What programs get: a message, or an object of ours.
Data = Message | Mapping[str, Any]
#: Makes what people get, if they get it.
Text = Callable[[], str]


class Printer(Protocol):
    """Prints results on stdout and failures on stderr."""

    def result(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints the one result of a command.

        `text` makes it for people, `wide` with more columns if there are more; `names` are those
        of the resources in it, such as vector/joy.
        """

    def sample(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints one result of many, on lines of its own, at once."""

    def note(self, text: str) -> None:
        """Prints a remark for people."""

    def failure(self, failure: Failure) -> None:
        """Prints why the command did not succeed."""
