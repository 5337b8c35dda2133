"""Prints for programs: the proto's JSON form, with the proto's field names and all fields."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from hotwirectl.failures import Failure
from hotwirectl.printers import stdio
from hotwirectl.printers.interface import Data, Text


class JsonPrinter:
    """The format `json`: one indented object, or one object a line for samples."""

    def result(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints the data."""
        del text, wide, names
        stdio.out(json.dumps(to_dict(data), indent=2))

    def sample(
        self, data: Data, text: Text, *, wide: Text | None = None, names: Sequence[str] = ()
    ) -> None:
        """Prints the data on one line."""
        del text, wide, names
        stdio.out(json.dumps(to_dict(data), separators=(",", ":")))

    def note(self, text: str) -> None:
        """Prints nothing: what is remarked on is in the data."""

    def failure(self, failure: Failure) -> None:
        """Prints the failure as one object on stderr."""
        stdio.err(json.dumps(failure_form(failure), indent=2))


def failure_form(failure: Failure) -> dict[str, Any]:
    """Returns the JSON form of a failure."""
    violations = [violation._asdict() for violation in failure.violations]
    return asdict(failure) | {"violations": violations}


def to_dict(data: Data) -> dict[str, Any]:
    """Returns the JSON form: snake_case, default values included, null for what is unset."""
    if not isinstance(data, Message):
        return dict(data)
    form: dict[str, Any] = MessageToDict(
        data, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _completed(data, form)


def _completed(message: Message, form: dict[str, Any]) -> dict[str, Any]:
    """Puts the fields in the proto's order, with null for those that are unset."""
    whole: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            whole[field.name] = None
        else:
            whole[field.name] = _part(getattr(message, field.name), form[field.name])
    return whole


def _part(value: Any, form: Any) -> Any:
    if isinstance(form, list):
        return [_part(item, item_form) for item, item_form in zip(value, form, strict=True)]
    if isinstance(value, Message) and isinstance(form, dict):
        return _completed(value, form)
    return form
