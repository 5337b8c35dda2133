"""Why a specification can't be honoured, and how its parts are shown. Pure."""

from __future__ import annotations

SPEC_TOO_LARGE = "SPEC_TOO_LARGE"
SPEC_NOT_JSON = "SPEC_NOT_JSON"
SPEC_INVALID = "SPEC_INVALID"
UNKNOWN_FIELD = "UNKNOWN_FIELD"
SCALE_NOT_FINITE = "SCALE_NOT_FINITE"
LAYER_INVALID = "LAYER_INVALID"
POSITIONS_INVALID = "POSITIONS_INVALID"
SITE_UNKNOWN = "SITE_UNKNOWN"
STREAM_INVALID = "STREAM_INVALID"
OP_UNSUPPORTED = "OP_UNSUPPORTED"
OP_ARGUMENT_INVALID = "OP_ARGUMENT_INVALID"
TOO_MANY_ENTRIES = "TOO_MANY_ENTRIES"
SPEC_REASONS = frozenset(
    {
        SPEC_TOO_LARGE,
        SPEC_NOT_JSON,
        SPEC_INVALID,
        UNKNOWN_FIELD,
        SCALE_NOT_FINITE,
        LAYER_INVALID,
        POSITIONS_INVALID,
        SITE_UNKNOWN,
        STREAM_INVALID,
        OP_UNSUPPORTED,
        OP_ARGUMENT_INVALID,
        TOO_MANY_ENTRIES,
    }
)

_SHOWN_CHARS = 80


class SpecError(Exception):
    """A specification that can't be honoured.

    reason: one of SPEC_REASONS. message: safe to show and to log. strict: whether what could be
    read of it said "strict": true.
    """

    def __init__(self, reason: str, message: str, *, strict: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.strict = strict


def shown(value: object) -> str:
    """Returns a value for a message: quoted, in ASCII without control characters, cut short."""
    if isinstance(value, str):
        text = ascii(value[: _SHOWN_CHARS + 1])
    else:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def kind(value: object) -> str:
    """Returns what a decoded value is, in JSON's terms."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    names |= {int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), "something else")
