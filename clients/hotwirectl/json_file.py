"""Reads JSON strictly: what two readers could understand differently is refused."""

import json
from pathlib import Path
from typing import Any

import click


class FormError(ValueError):
    """Raised for JSON that has not the form that is wanted."""


def read_json(path: Path) -> Any:
    """Returns what a JSON file holds.

    Raises:
        click.UsageError: It cannot be read, names something twice, or has NaN or Infinity.
    """
    try:
        return parse_json(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise click.UsageError(f"{path} cannot be read as JSON: {error}") from error


def parse_json(text: bytes | str) -> Any:
    """Returns what JSON text holds; raises ValueError or RecursionError as for read_json."""
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    form = dict(pairs)
    if len(form) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return form


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
