"""How foreign files name the row of a layer."""

import re

_NUMBERED = re.compile(r"(?:(?:layers?|direction|hidden_states?)[._-]?)?(0|[1-9][0-9]{0,3})")


def layer_number(key: object) -> int | None:
    """Returns the number in a key such as 12, "12", "layer_12" or "layers.12"; None for others."""
    if isinstance(key, bool):
        return None
    found = _NUMBERED.fullmatch(str(key))
    return int(found[1]) if found else None


def listed(keys: object, limit: int = 6) -> str:
    """Returns the first of some keys, for a message; control characters are escapes."""
    found = [str(key)[:40] for key in keys]  # type: ignore[attr-defined]
    return ", ".join(found[:limit]) + (", ..." if len(found) > limit else "")
