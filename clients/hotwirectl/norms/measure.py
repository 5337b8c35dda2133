"""Measures a table: every prompt through the model, then the figures."""

import datetime as dt
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import numpy as np

from hotwirectl.norms import eager, summary
from hotwirectl.norms.prompts import Prompts
from hotwirectl.norms.table import NormTable, fingerprint_of


def measure(
    directory: Path,
    prompts: Prompts,
    texts: Iterable[str],
    *,
    max_tokens: int | None = None,
    skip_first: int | None = None,
) -> NormTable:
    """Returns the table of a model.

    texts: the prompts' own, as the caller hands them out one by one. skip_first: how many first
    positions are left out; None goes by summary.RULE.

    Raises:
        click.UsageError: No position is left, or the stream is not finite.
        failures.CommandFailedError: As for eager.Eager.
    """
    mark = fingerprint_of(directory)
    model = eager.Eager(directory)
    try:
        found = [model.norms(text, max_tokens) for text in texts]
        skipped = summary.first_tokens(found) if skip_first is None else skip_first
        rule = summary.RULE if skip_first is None else summary.GIVEN
        layers, first = summary.layers(found, skipped), summary.apart(found, skipped, rule)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    lengths = [norms.shape[1] for norms in found]
    about = _about(prompts, lengths, max_tokens)
    name = directory.resolve().name
    return NormTable(name, mark, layers, first, model.dtype, about, _source(model.device))


def _about(prompts: Prompts, lengths: list[int], max_tokens: int | None) -> dict[str, Any]:
    return {
        "sha256": prompts.sha256,
        "count": len(lengths),
        "tokens": sum(lengths),
        "shortest": min(lengths),
        "median": float(np.median(lengths)),
        "longest": max(lengths),
        "max_tokens": max_tokens,
    }


def _source(device: str) -> dict[str, Any]:
    return {
        "tool": "hotwirectl norms measure",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "device": f"{device} ({platform.machine()})",
        "versions": {"hotwired": metadata.version("hotwired"), **eager.versions()},
    }
