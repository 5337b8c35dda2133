"""Converts the tables of others: hidden-directions' measure-h-norms, hotwire's HOTWIRE_H_NORMS.

Both are a JSON map of layer to norm, or a list, bare or under "h_norms". The number of entries
does not say what entry 0 is: the output of block 0, or the embedding as in transformers' tuple of
hidden states. Only measure-h-norms states it, in its note; for all others the user must.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotwirectl.json_file import FormError
from hotwirectl.layer_bases import OUTPUT
from hotwirectl.norms.table import LayerNorms, NormTable, check_layers, layer_number, norm_value
from hotwired import fingerprint

_STATED = "block-output"


class BaseUnknownError(FormError):
    """Raised when neither the file nor the user says what entry 0 is."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A table, and in sentences what was assumed of it."""

    table: NormTable
    assumed: tuple[str, ...]


def convert(form: object, *, base: str | None, mark: str | None, model: str) -> Imported:
    """Returns the table of a JSON value.

    base: one of BASES, or None if the user says nothing. mark: the fingerprint of its model, None
    if not known. model: its name; the file's own if empty.

    Raises BaseUnknownError, or FormError if the value is no such table or not of that model.
    """
    about = form if isinstance(form, dict) and "h_norms" in form else {}
    entries = _entries(about.get("h_norms", form))
    stated = OUTPUT if _STATED in str(about.get("note", "")) else None
    if stated and base and stated != base:
        raise FormError(f"the file says that it holds each block's output, not {base}")
    chosen = base or stated
    if chosen is None:
        raise BaseUnknownError(
            f"nothing says whether entry 0 of {len(entries)} is the output of block 0 or the "
            "embedding"
        )
    layers, assumed = _based(entries, chosen, mark)
    check_layers(layers, mark)
    said = f"entry 0 is {_meaning(chosen)}: {'as told' if base else 'so the file says'}"
    norms = {layer: LayerNorms(norm) for layer, norm in layers.items()}
    source = _source(about, chosen)
    name = model or str(about.get("model", ""))
    return Imported(NormTable(name, mark, norms, source=source), (said, *assumed, *_lacks(mark)))


def _entries(form: object) -> dict[int, float]:
    if isinstance(form, list):
        form = dict(enumerate(form))
    if not isinstance(form, dict) or not form:
        raise FormError("it holds neither a map of layer to norm nor a list of norms")
    entries = {layer_number(key): norm_value(form[key], f"entry {key}") for key in form}
    if len(entries) < len(form):
        raise FormError("it has a layer twice")
    return dict(sorted(entries.items()))


def _based(
    entries: Mapping[int, float], base: str, mark: str | None
) -> tuple[dict[int, float], list[str]]:
    """Returns the norms by block, and what was left out."""
    if base == OUTPUT:
        return dict(entries), []
    if mark is None:
        raise FormError(
            "a table of hidden states needs --model: transformers gives the last one after the "
            "final norm, and its place is the number of blocks"
        )
    last = fingerprint.shape_of(mark).num_layers
    if max(entries) > last:
        raise FormError(f"entry {max(entries)} is not in 0..{last}, the model's hidden states")
    left = [(0, "the embedding"), (last, "taken after the final norm, not after the last block")]
    said = [f"entry {entry} is left out: {why}" for entry, why in left if entry in entries]
    return {entry - 1: norm for entry, norm in entries.items() if 0 < entry < last}, said


def _meaning(base: str) -> str:
    return "the output of block 0" if base == OUTPUT else "the embedding"


def _lacks(mark: str | None) -> list[str]:
    if mark is not None:
        return []
    return ["the model has no fingerprint, so nothing keeps the table from another: see --model"]


def _source(about: Mapping[str, Any], base: str) -> dict[str, Any]:
    return {
        "tool": "hotwirectl norms import",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "layer_base": base,
        **{
            name: about[name]
            for name in ("context_tokens", "note")
            if isinstance(about.get(name), int | str)
        },
    }
