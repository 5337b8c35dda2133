"""The file that `norms measure` and `norms import` write: its schema, read and written."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from hotwirectl.json_file import FormError, read_json
from hotwired import fingerprint

SCHEMA = "hotwire.norms/1"
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class LayerNorms:
    """L2 norms of the residual stream after one block, over positions; None is not known.

    mean, p50, p95, max: in the stream's own units. count: of positions.
    """

    mean: float
    p50: float | None = None
    p95: float | None = None
    max: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """The first positions of each prompt, which are in no other figure.

    skipped: how many. rule: how that was decided. layers: their norms.
    """

    skipped: int
    rule: str
    layers: Mapping[int, LayerNorms]


@dataclass(frozen=True, slots=True)
class NormTable:
    """One model's norms.

    model: its name. fingerprint: as of hotwired.fingerprint; None if not known. layers: by the
    block that they are measured after. first: None if not known. dtype: of the residual stream.
    prompts: what it was measured on. source: with what, when and where.
    """

    model: str
    fingerprint: str | None
    layers: Mapping[int, LayerNorms]
    first: FirstTokens | None = None
    dtype: str | None = None
    prompts: Mapping[str, Any] | None = None
    source: Mapping[str, Any] = field(default_factory=dict)

    def means(self) -> dict[str, float]:
        """Returns what a policy takes: the mean by layer."""
        return {str(layer): norms.mean for layer, norms in self.layers.items()}

    def form(self) -> dict[str, Any]:
        """Returns the JSON form, numbers rounded to six significant digits."""
        first = self.first
        return {
            "schema": SCHEMA,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "site": "post",
            "dtype": self.dtype,
            "layers": _layers_form(self.layers),
            "first_tokens": first
            and {
                "skipped": first.skipped,
                "rule": first.rule,
                "layers": _layers_form(first.layers),
            },
            "prompts": self.prompts and dict(self.prompts),
            "source": dict(self.source),
        }


def write(table: NormTable, path: Path) -> None:
    """Writes the file.

    Raises:
        click.UsageError: It cannot be written.
    """
    try:
        path.write_text(json.dumps(table.form(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error


def read(path: Path) -> NormTable:
    """Returns the table that a file holds.

    Raises:
        click.UsageError: It holds none; a file of another tool is pointed to `norms import`.
    """
    form = read_json(path)
    if not is_table(form):
        raise click.UsageError(
            f"{path} is no table of {SCHEMA}; `hotwirectl norms import` converts those of others"
        )
    try:
        return from_form(form)
    except ValueError as error:
        raise click.UsageError(f"{path}: {error}") from error


def fingerprint_of(directory: Path) -> str:
    """Returns the fingerprint of the model in a directory, from its config.json.

    Raises:
        click.UsageError: There is none, or it has no shape.
    """
    config = read_json(directory / "config.json")
    try:
        return fingerprint.of_config(config if isinstance(config, dict) else {})
    except ValueError as error:
        raise click.UsageError(f"{directory / 'config.json'}: {error}") from error


def is_table(form: object) -> bool:
    """Whether a JSON value says that it is a table of any version."""
    return isinstance(form, dict) and str(form.get("schema", "")).startswith("hotwire.norms/")


def from_form(form: Mapping[str, Any]) -> NormTable:
    """Returns the table of a JSON form. Raises FormError, with the field at fault."""
    if form["schema"] != SCHEMA:
        raise FormError(f"its schema is {form['schema']!r}, and this command reads {SCHEMA}")
    if form.get("site") != "post":
        raise FormError("site is not 'post', the stream after a block")
    table = NormTable(
        model=_of_type(form, "model", str) or "",
        fingerprint=_of_type(form, "fingerprint", str),
        layers=_layers(form.get("layers"), "layers"),
        first=_first(form.get("first_tokens")),
        dtype=_of_type(form, "dtype", str),
        prompts=_of_type(form, "prompts", dict),
        source=_of_type(form, "source", dict) or {},
    )
    check_layers(table.layers, table.fingerprint)
    return table


def check_layers(layers: Mapping[int, object], mark: str | None) -> None:
    """Raises FormError if there are no layers, or the fingerprinted model has fewer."""
    if not layers:
        raise FormError("layers is empty")
    if mark is not None and max(layers) >= (depth := fingerprint.shape_of(mark).num_layers):
        raise FormError(f"layer {max(layers)} is not in 0..{depth - 1} of the model {mark}")


def layer_number(key: object) -> int:
    """Returns the layer that a JSON key names; raises FormError if it is no layer's number."""
    text = str(key)
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise FormError(f"{key!r} stands where a layer's number is wanted")
    return int(text)


def norm_value(value: object, where: str) -> float:
    """Returns a norm; raises FormError unless it is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormError(f"there is no number for {where}")
    if not 0 < value < math.inf:
        raise FormError(f"{value} for {where} is not a finite number > 0")
    return float(value)


def _first(form: object) -> FirstTokens | None:
    if form is None:
        return None
    if not isinstance(form, dict) or not isinstance(form.get("skipped"), int):
        raise FormError("first_tokens has no number `skipped`")
    layers = _layers(form.get("layers"), "first_tokens.layers")
    return FirstTokens(form["skipped"], str(form.get("rule", "")), layers)


def _layers(form: object, where: str) -> dict[int, LayerNorms]:
    if not isinstance(form, dict):
        raise FormError(f"{where} is no object")
    layers = {layer_number(key): _layer(form[key], f"{where}.{key}") for key in form}
    if len(layers) < len(form):
        raise FormError(f"{where} has a layer twice")
    return dict(sorted(layers.items()))


def _layer(form: object, where: str) -> LayerNorms:
    if not isinstance(form, dict):
        raise FormError(f"{where} is no object")
    count = form.get("count")
    if isinstance(count, bool) or not isinstance(count, int | None):
        raise FormError(f"{where}.count is no whole number")
    others = {
        name: norm_value(form[name], f"{where}.{name}")
        for name in ("p50", "p95", "max")
        if form.get(name) is not None
    }
    return LayerNorms(norm_value(form.get("mean"), f"{where}.mean"), **others, count=count)


def _layers_form(layers: Mapping[int, LayerNorms]) -> dict[str, dict[str, float | None]]:
    return {
        str(layer): {name: _rounded(value) for name, value in asdict(norms).items()}
        for layer, norms in layers.items()
    }


def _rounded(value: float | None) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _of_type(form: Mapping[str, Any], name: str, kind: type) -> Any:
    value = form.get(name)
    if value is not None and not isinstance(value, kind):
        raise FormError(f"{name} is of the wrong type")
    return value
