"""From the norms of every position to a table's figures, and which first positions are apart.

The first token of a prompt is an attention sink in most models: massive activations give it a
norm many times any other's, and a few positions behind it sometimes share that. A mean over short
prompts would be theirs, not the text's, so they are left out of it.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hotwirectl.norms.table import FirstTokens, LayerNorms

#: One prompt's norms, [layers, positions], fp32.
Norms: TypeAlias = NDArray[np.float32]

FACTOR = 4.0
MOST_SKIPPED = 8
RULE = (
    f"position 0, and those right behind it, up to {MOST_SKIPPED} in all, while the median over "
    f"prompts is over {FACTOR:g} times a layer's median at any layer"
)
GIVEN = "as asked"


def first_tokens(prompts: Sequence[Norms]) -> int:
    """Returns how many first positions are apart by RULE: from 1 to MOST_SKIPPED."""
    usual = np.median(_typical(prompts), axis=1)
    skipped = 1
    while skipped < MOST_SKIPPED and _is_massive(prompts, skipped, usual):
        skipped += 1
    return skipped


def layers(prompts: Sequence[Norms], skipped: int) -> dict[int, LayerNorms]:
    """Returns the figures of each layer over all positions from `skipped` on.

    Raises ValueError if no prompt is that long, or a norm is not finite.
    """
    return _figures([norms[:, skipped:] for norms in prompts])


def apart(prompts: Sequence[Norms], skipped: int, rule: str) -> FirstTokens | None:
    """Returns the figures of the positions before `skipped`; None if there are none."""
    if not skipped:
        return None
    return FirstTokens(skipped, rule, _figures([norms[:, :skipped] for norms in prompts]))


def _typical(prompts: Sequence[Norms]) -> Norms:
    """The positions behind any that may be skipped, or all if the prompts are so short."""
    late = np.concatenate([norms[:, MOST_SKIPPED:] for norms in prompts], axis=1)
    return late if late.shape[1] else np.concatenate(prompts, axis=1)


def _is_massive(prompts: Sequence[Norms], position: int, usual: NDArray[np.float32]) -> bool:
    there = [norms[:, position] for norms in prompts if norms.shape[1] > position]
    return bool(there) and bool(np.any(np.median(there, axis=0) > FACTOR * usual))


def _figures(parts: Sequence[Norms]) -> dict[int, LayerNorms]:
    whole = np.concatenate(parts, axis=1).astype(np.float64)
    if not whole.shape[1]:
        raise ValueError("no prompt is longer than the first tokens that are left out")
    if not np.isfinite(whole).all():
        raise ValueError("the residual stream is not finite: its dtype overflows")
    return {layer: _layer(row) for layer, row in enumerate(whole)}


def _layer(row: NDArray[np.float64]) -> LayerNorms:
    p50, p95 = np.percentile(row, [50, 95])
    return LayerNorms(float(row.mean()), float(p50), float(p95), float(row.max()), row.size)
