"""Runs a model on prompts and writes the vector: the part that needs numpy and torch."""

from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import numpy as np

from hotwirectl import text, views
from hotwirectl.extract import contrast
from hotwirectl.extract.how import LAST, How
from hotwirectl.formats import inspection, write
from hotwirectl.formats.layer_base import Vector
from hotwirectl.norms.eager import Eager
from hotwirectl.norms.prompts import Prompts
from hotwirectl.progress import progress
from hotwirectl.settings import Settings
from hotwired.vector_file import VectorData


def run(
    settings: Settings, model: Path, sets: tuple[Prompts, Prompts], how: How, target: Path
) -> None:
    """Writes the vector from the second set of prompts to the first, and says so."""
    streams = _streams(model, sets, how.position)
    try:
        rows = contrast.direction(*streams, how.method)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    about = _about(model, sets, how)
    vector = Vector(target.stem, "extracted", _data(rows, how.layers, about))
    write.save(write.encoded(vector, about), target)
    found = inspection.of_vector(vector, {})
    line = f"vector/{target.stem} extracted ({', '.join(_facts(vector, sets))}) to {target}"
    settings.printer().result(found.form() | {"file": str(target)}, lambda: text.escaped(line))


def _streams(
    model: Path, sets: tuple[Prompts, Prompts], position: str
) -> tuple[contrast.Stream, contrast.Stream]:
    eager = Eager(model, "`extract`")
    positive, negative = sets
    with progress((*positive.texts, *negative.texts), "extracting") as given:
        found = _pooled(eager, given, position)
    return np.stack(found[: len(positive.texts)]), np.stack(found[len(positive.texts) :])


def _pooled(eager: Any, given: Iterable[str], position: str) -> list[np.ndarray[Any, Any]]:
    """Returns [layers, width] of each prompt. Raises click.UsageError for one that has no token."""
    found = []
    for each in given:
        try:
            stream = eager.pooled(each, last=position == LAST)
        except ValueError as error:
            raise click.UsageError(f"prompt {text.escaped(each[:40])!r}: {error}") from error
        if not np.isfinite(stream).all():
            raise click.UsageError("the residual stream is not finite: try another dtype")
        found.append(stream)
    return found


def _data(
    rows: np.ndarray[Any, Any], layers: tuple[int, ...] | None, about: dict[str, str]
) -> VectorData:
    depth = len(rows)
    chosen = tuple(range(depth)) if layers is None else layers
    if chosen[-1] >= depth:
        raise click.UsageError(f"layer {chosen[-1]} is not in 0 to {depth - 1}, the model's")
    kept = np.ascontiguousarray(rows[list(chosen)])
    return VectorData(chosen, False, kept, "F32", about)


def _about(model: Path, sets: tuple[Prompts, Prompts], how: How) -> dict[str, str]:
    positive, negative = sets
    return {
        "model": model.resolve().name,
        "tool": f"hotwirectl extract {metadata.version('hotwired')}",
        "method": how.method,
        "position": how.position,
        "positive_prompts": f"{len(positive.texts)}, sha256 {positive.sha256}",
        "negative_prompts": f"{len(negative.texts)}, sha256 {negative.sha256}",
    }


def _facts(vector: Vector, sets: Sequence[Prompts]) -> list[str]:
    positive, negative = sets
    return [
        f"layers {text.layers(vector.data.layers)}",
        f"width {vector.data.hidden_size}",
        f"{len(positive.texts)} positive and {len(negative.texts)} negative prompts",
        f"revision {views.short(write.revision_of(vector))}",
    ]
