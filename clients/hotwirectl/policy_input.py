"""Turns what is given to `policy set` into a policy and the names of the fields to change."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from google.protobuf.json_format import ParseDict, ParseError

from hotwire_client import Policy
from hotwirectl.json_file import read_json
from hotwirectl.norms import table

_NOT_SET_BY_MASK = {"etag", "update_time"}
_NAMES = {f.json_name: f.name for f in Policy.DESCRIPTOR.fields} | {
    f.name: f.name for f in Policy.DESCRIPTOR.fields
}


def parse_limit(value: str) -> float | str:
    """Returns the number, or "none"; raises ValueError unless it is finite and >= 0."""
    if value == "none":
        return value
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{value} is neither a finite number from 0 up nor `none`")
    return number


def parse_limits(values: Iterable[str]) -> dict[str, float] | str | None:
    """Returns limits by name from NAME=LIMIT texts, "none" if that is all, None if there are none.

    Raises ValueError for a text of another form, or a name given twice.
    """
    texts = tuple(values)
    if texts == ("none",):
        return "none"
    limits: dict[str, float] = {}
    for text in texts:
        name, found, number = text.rpartition("=")
        limit = parse_limit(number) if found and name else "none"
        if isinstance(limit, str) or name in limits:
            raise ValueError(f"{text} is not NAME=LIMIT, or names one twice")
        limits[name] = limit
    return limits or None


def build(given: dict[str, Any], file: Path | None) -> tuple[Policy, list[str]]:
    """Returns the policy with the values given, and the fields they are for.

    `given` holds the values of the flags by field, "none" for a cleared one; they go before what
    the file says.

    Raises:
        click.UsageError: Nothing is given, or a value cannot be used.
    """
    wanted = read_policy(file) if file else {}
    wanted |= {name: None if value == "none" else value for name, value in given.items()}
    fields = sorted(wanted.keys() - _NOT_SET_BY_MASK)
    if not fields:
        raise click.UsageError("there is nothing to set: name a field, or give --file")
    try:
        return ParseDict(wanted, Policy()), fields
    except ParseError as error:
        raise click.UsageError(f"this is no policy: {error}") from error


def read_policy(path: Path) -> dict[str, Any]:
    """Returns the fields that a JSON file names; it may be what `policy show -o json` prints.

    Raises:
        click.UsageError: The file does not hold one object with fields of the policy.
    """
    form = read_json(path)
    if isinstance(form, dict) and isinstance(form.get("policy"), dict):
        form = form["policy"]
    if not isinstance(form, dict):
        raise click.UsageError(f"{path} does not hold a JSON object")
    if unknown := sorted(form.keys() - _NAMES.keys()):
        known = ", ".join(f.name for f in Policy.DESCRIPTOR.fields)
        raise click.UsageError(f"{path} names {unknown[0]!r}; the policy has {known}")
    return {_NAMES[key]: value for key, value in form.items()}


def read_reference(path: Path) -> dict[str, Any]:
    """Returns the fields of the policy that a file of norms is for.

    It is a table of `norms measure`, which has its model's fingerprint, or a bare map or list.
    A fingerprint belongs to one table, so "none" takes that of the table before away.

    Raises:
        click.UsageError: The file holds anything else.
    """
    if not table.is_table(read_json(path)):
        return {"reference_norms": read_norms(path), "reference_norms_fingerprint": "none"}
    found = table.read(path)
    return {
        "reference_norms": found.means(),
        "reference_norms_fingerprint": found.fingerprint or "none",
    }


def read_norms(path: Path) -> dict[str, float]:
    """Returns the L2 norm of the residual stream by layer, from an object or a list.

    Raises:
        click.UsageError: The file holds anything else.
    """
    form = read_json(path)
    if isinstance(form, list):
        form = dict(enumerate(form))
    if not isinstance(form, dict):
        raise click.UsageError(f"{path} holds neither an object nor a list of norms")
    return {_layer(key, path): _norm(value, key, path) for key, value in form.items()}


def _layer(key: str | int, path: Path) -> str:
    if not str(key).isascii() or not str(key).isdigit():
        raise click.UsageError(f"{path} has {key!r} where a layer's number is wanted")
    return str(int(key))


def _norm(value: object, key: str | int, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise click.UsageError(f"{path} has no number for layer {key}")
    return float(value)
