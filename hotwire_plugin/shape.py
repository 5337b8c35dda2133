"""Where a model can be steered: its blocks, the sites in them, its residual streams. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

SITES = ("pre", "attn_out", "mlp_out", "post")
"""In the order a block computes them.

pre: the residual stream before the block. attn_out, mlp_out: what the attention and the MLP module
of the block return, before it is normalised or added to the stream. post: the stream after it.
"""

DEFAULT_SITE = "post"


class Place(NamedTuple):
    """One site of one block, and which of the model's residual streams: where one op is launched.

    Attributes:
        layer: 0-based over all pipeline stages.
        site: one of SITES.
        stream: 0-based; 0 where the model has one.
    """

    layer: int
    site: str = DEFAULT_SITE
    stream: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What admission knows of the model.

    Attributes:
        num_layers: its blocks, on all pipeline stages.
        streams: its residual streams; more than one with hyper-connections.
        layers_at: site -> the layers at which that site is armed. "post" is armed everywhere.
        slots: the directions that each worker's bank holds at once; None: not known.
        counts_generated: whether a rank knows the exact position of each generated token before it
            is computed. Where drafts are verified by steps that are scheduled ahead it does not,
            but it knows what is prompt.
    """

    num_layers: int
    streams: int = 1
    layers_at: Mapping[str, frozenset[int]] = field(default_factory=dict)
    slots: int | None = None
    counts_generated: bool = True

    def armed(self, layer: int, site: str) -> bool:
        """Whether a block's site takes operations."""
        if site == DEFAULT_SITE:
            return 0 <= layer < self.num_layers
        return layer in self.layers_at.get(site, ())
