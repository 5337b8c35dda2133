"""Steering without a daemon: vectors and dose limit from the environment, as generation 1.

The variables are those of hotwire-vllm 0.1.2:

    HOTWIRE_VECTORS        a .pt file or a folder of them; a vector's id is its file's name
    HOTWIRE_H_NORMS        a JSON file, {"20": 54.9, ...} or {"h_norms": {"20": 54.9, ...}}
    HOTWIRE_MAX_REL_DOSE   the limit of the relative dose per layer, or "warn"; unset is no limit
    HOTWIRE_REL_DOSE_MODE  "clamp", or else "reject"

As there, a layer without a reference norm may be steered. What is set but can't be read never
loosens a limit: a bad vector is left out, and a bad table or limit makes requests unsteered.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hotwire_plugin.log import named
from hotwire_plugin.snapshot import EnginePolicy, Snapshot, VectorMeta
from hotwire_plugin.spec_error import shown
from hotwired.dose import DoseMode, DosePolicy, usable_norm
from hotwired.vector_file import VectorData, canonical_bytes, revision_of

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

VECTORS = "HOTWIRE_VECTORS"
H_NORMS = "HOTWIRE_H_NORMS"
MAX_REL_DOSE = "HOTWIRE_MAX_REL_DOSE"
REL_DOSE_MODE = "HOTWIRE_REL_DOSE_MODE"

GENERATION = 1


@dataclass(frozen=True, slots=True)
class Standalone:
    """What the environment asks for: the vectors by name, and the snapshot that names them."""

    vectors: Mapping[str, VectorData]
    snapshot: Snapshot


def from_environment(environ: Mapping[str, str]) -> Standalone | None:
    """Returns what the environment asks for, None if it names no vectors.

    Whatever can't be read is logged as one error and left out; nothing is raised for it.
    """
    path = environ.get(VECTORS)
    if not path:
        return None
    vectors = _load_vectors(Path(path))
    metas = {name: _meta(name, data) for name, data in vectors.items()}
    policy = EnginePolicy(dose=_dose_policy(environ))
    return Standalone(vectors, Snapshot(GENERATION, metas, policy))


def _meta(name: str, data: VectorData) -> VectorMeta:
    revision = revision_of(canonical_bytes(data))
    return VectorMeta(name, revision, data.layers, data.norms, data.any_layer)


def _load_vectors(path: Path) -> dict[str, VectorData]:
    vectors: dict[str, VectorData] = {}
    for file in _files(path):
        try:
            vectors[file.stem] = _load_vector(file)
        except Exception as exc:  # noqa: BLE001 - torch.load raises many kinds; the others load
            why, fault = _why(exc), named("vector left out", path=str(file), error=_why(exc))
            logger.error("vector file %s is left out: %s", ascii(str(file)), why, extra=fault)
        else:
            loaded = named("vector loaded", vector=file.stem)
            logger.info("vector %s loaded", shown(file.stem), extra=loaded)
    return vectors


def _bad(setting: str) -> dict[str, Any]:
    return named("setting unusable", setting=setting)


def _why(exc: Exception) -> str:
    return f"{type(exc).__name__}: {shown(str(exc))}"


def _files(path: Path) -> list[Path]:
    try:
        return sorted(path.glob("*.pt")) if path.is_dir() else [path]
    except OSError as exc:
        logger.error("%s can't be read: %s", VECTORS, _why(exc), extra=_bad(VECTORS))
        return []


def _load_vector(file: Path) -> VectorData:
    """Reads a vector of shape (layers, hidden), row i for layer i, or (hidden,) for any layer.

    Raises ValueError for a bad shape, dtype or value, and what torch.load raises.
    """
    import torch

    tensor = _first_tensor(torch.load(file, map_location="cpu", weights_only=True))
    if tensor.dim() not in (1, 2) or tensor.numel() == 0:
        raise ValueError(f"shape {tuple(tensor.shape)} is not (layers, hidden) or (hidden,)")
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"dtype {tensor.dtype} is not one of numbers")
    rows = _float32_rows(tensor)
    if not np.isfinite(rows).all():
        raise ValueError("a value is NaN or infinite in float32")
    any_layer = tensor.dim() == 1
    layers = () if any_layer else tuple(range(len(rows)))
    dtype = str(tensor.dtype).removeprefix("torch.")
    return VectorData(layers, any_layer, rows, dtype, {})


def _first_tensor(loaded: Any) -> "torch.Tensor":
    import torch

    values = loaded.values() if isinstance(loaded, dict) else [loaded]
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
    raise ValueError("holds no tensor")


def _float32_rows(tensor: "torch.Tensor") -> np.ndarray[Any, np.dtype[np.float32]]:
    """Returns the rows as a C-contiguous (rows, hidden) float32 array of their own."""
    import torch

    dense = tensor.detach().to(torch.float32)
    return np.array(np.atleast_2d(dense.numpy()), dtype=np.float32, order="C")


def _dose_policy(environ: Mapping[str, str]) -> DosePolicy:
    asked = environ.get(MAX_REL_DOSE)
    if asked is None:
        return DosePolicy()
    norms = _load_norms(environ.get(H_NORMS))
    mode, limit = _limit(asked, environ.get(REL_DOSE_MODE))
    return DosePolicy(
        mode=mode,
        max_relative_dose=limit,
        allow_unmonitored=norms is not None,
        reference_norms=norms or {},
    )


def _limit(asked: str, mode: str | None) -> tuple[DoseMode, float | None]:
    """Returns the mode and the limit per layer; one that can't be read lets nothing through."""
    if asked == "warn":
        return DoseMode.WARN, 0.0  # so that every dose is over it, and logged
    if mode not in (None, "", "clamp", "reject"):
        logger.error(
            "%s=%s is neither clamp nor reject: reject",
            REL_DOSE_MODE,
            shown(mode),
            extra=_bad(REL_DOSE_MODE),
        )
    try:
        limit = float(asked)
    except ValueError:
        limit = math.nan
    if not limit >= 0.0:
        logger.error(
            "%s=%s is no limit: nothing is steered",
            MAX_REL_DOSE,
            shown(asked),
            extra=_bad(MAX_REL_DOSE),
        )
        return DoseMode.REJECT, 0.0
    dose_mode = DoseMode.CLAMP if mode == "clamp" else DoseMode.REJECT
    return dose_mode, limit if math.isfinite(limit) else None


def _load_norms(path: str | None) -> dict[int, float] | None:
    """Returns the reference norm by layer; empty without a table, None if it can't be read."""
    if not path:
        logger.warning(
            "%s is set without %s: no dose is measured", MAX_REL_DOSE, H_NORMS, extra=_bad(H_NORMS)
        )
        return {}
    try:
        table = json.loads(Path(path).read_text(encoding="utf-8"))
        if isinstance(table, dict) and isinstance(table.get("h_norms"), dict):
            table = table["h_norms"]
        norms = {int(layer): float(norm) for layer, norm in table.items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as exc:
        logger.error(
            "%s can't be read, nothing is steered: %s", H_NORMS, _why(exc), extra=_bad(H_NORMS)
        )
        return None
    unusable = [layer for layer, norm in norms.items() if not usable_norm(norm)]
    if unusable:
        logger.error(
            "%s has no usable norm for layers %s",
            H_NORMS,
            shown(str(unusable)),
            extra=_bad(H_NORMS),
        )
    return norms
