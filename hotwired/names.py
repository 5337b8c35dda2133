"""What a vector may be called, and what a caller meant who called it wrongly."""

import difflib
import itertools
import re
from collections.abc import Iterable

from hotwired.errors import NameInvalid, VectorNotFound, shown

RULE = "1 to 63 characters of [a-z0-9._-], the first a letter or digit"

# Comparing takes time, in which nobody is served.
_COMPARED = 64

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def is_valid(name: str) -> bool:
    """Whether a name keeps the rule."""
    return _NAME.fullmatch(name) is not None


def check(name: str, field: str) -> None:
    """Raises NameInvalid, blaming a field of the request, if a name breaks the rule."""
    if not is_valid(name):
        raise NameInvalid(
            f"{shown(name)} is no name for a vector: {RULE}",
            metadata={"name": shown(name)},
            violations=((field, RULE),),
        )


def not_found(name: str, names: Iterable[str]) -> VectorNotFound:
    """Returns the error for a name that isn't there, with the nearest that is."""
    alike = (other for other in names if other[0] == name[:1].lower())
    near = difflib.get_close_matches(name[:63], itertools.islice(alike, _COMPARED), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    metadata = {"name": shown(name)} | ({"near": near[0]} if near else {})
    return VectorNotFound(f"there is no vector {shown(name)}{hint}", metadata=metadata)
