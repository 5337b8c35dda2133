"""The worker role: the buffers of one rank and what keeps them in step with its batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import nn

from hotwire_plugin import op
from hotwire_plugin.bank import Bank
from hotwire_plugin.blobs import BlobStore
from hotwire_plugin.fill import StepFill, TokenMap
from hotwire_plugin.layers import Block, find_layers
from hotwire_plugin.placement import MAX_SETS
from hotwire_plugin.program import MAX_OPS_PER_LAYER
from hotwire_plugin.rows import ProgramRows
from hotwire_plugin.shape import DEFAULT_SITE, SITES, Place
from hotwire_plugin.sites import SiteBuffers, attach, streams_at
from hotwired.node.v1 import node_pb2

ROW_MULTIPLE = 32


@dataclass(frozen=True, slots=True)
class WorkerSizes:
    """What decides how much memory the buffers take.

    Attributes:
        hidden_size: the width of the residual stream.
        num_layers: the blocks of the whole model.
        max_requests: the most requests of one step.
        max_tokens: the most tokens of one step, padding included.
        bank_bytes: the memory for vector rows.
        streams: the residual streams of the model.
        sites: the sites to arm, of shape.SITES; those that a block has not are left out there.
    """

    hidden_size: int
    num_layers: int
    max_requests: int
    max_tokens: int
    bank_bytes: int
    streams: int = 1
    sites: tuple[str, ...] = (DEFAULT_SITE,)

    @property
    def rows(self) -> int:
        """The program rows: a batch can never need more, each request having MAX_SETS at most.

        A multiple of 32, so that each layer's part of a table begins at 128 bytes: Inductor copies
        an input that does not begin at 16, on every step.
        """
        return -(-(MAX_SETS * self.max_requests + 1) // ROW_MULTIPLE) * ROW_MULTIPLE

    @property
    def slots(self) -> int:
        """The bank slots that ``bank_bytes`` pays for: at least one program at all layers."""
        paid = self.bank_bytes // (4 * self.hidden_size)
        return max(paid, self.num_layers * MAX_OPS_PER_LAYER) + 1


def places_of(blocks: Mapping[int, Block], sites: Sequence[str]) -> list[Place]:
    """Return every place of these blocks at these sites: by layer, site and stream."""
    return [
        Place(layer, site, stream)
        for layer in sorted(blocks)
        for site in SITES
        if site in sites
        for stream in range(streams_at(blocks[layer], site))
    ]


class WorkerRole:
    """One rank's steering state, attached to its model's blocks.

    Attributes:
        places: where the op is launched on this rank, in the order of the tables.

    Raises:
        NotSteerable: from the constructor, before the model is touched.
    """

    def __init__(
        self,
        model: nn.Module,
        sizes: WorkerSizes,
        blobs: BlobStore,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        blocks = find_layers(model, sizes.num_layers, sizes.streams)
        self.places = places_of(blocks, sizes.sites)
        self.blobs = blobs
        self._bank = Bank(sizes.slots, sizes.hidden_size, device)
        self._rows = ProgramRows(
            places=self.places, rows=sizes.rows, bank=self._bank, load_row=self._load_row
        )
        tokens = TokenMap(sizes.max_tokens, device)
        self.fill = StepFill(self._rows, tokens)
        self._attach(blocks, tokens)
        if device.type == "cuda":
            op.warm(sizes.hidden_size, dtype, device, MAX_OPS_PER_LAYER)

    @property
    def slots(self) -> int:
        """The directions that the bank holds at once."""
        return self._bank.capacity

    def report(self) -> node_pb2.WorkerReport:
        """Return the counters since the start."""
        counters = self.fill.counters
        return node_pb2.WorkerReport(
            steered_tokens_total=counters.steered_tokens,
            fill_steps_total=counters.steps,
            fill_seconds_total=counters.seconds,
            rows_in_use=self._rows.in_use,
            rows_capacity=self._rows.capacity,
            slots_in_use=self._bank.in_use,
            slots_capacity=self._bank.capacity,
            blob_bytes=self.blobs.bytes_held,
            program_errors_total=dict(self.fill.errors),
        )

    def _attach(self, blocks: Mapping[int, Block], tokens: TokenMap) -> None:
        numbered = enumerate(self.places)
        for (layer, site), places in groupby(numbered, lambda item: item[1][:2]):
            buffers = [self._buffers(at, tokens) for at, _ in places]
            attach(blocks[layer], site, buffers)

    def _buffers(self, at: int, tokens: TokenMap) -> SiteBuffers:
        return SiteBuffers(
            bank=self._bank.rows,
            op_slots=self._rows.op_slots[at],
            op_coef=self._rows.op_coef[at],
            op_count=self._rows.op_count[at],
            limit=self._rows.limit,
            token_row=tokens.rows,
        )

    def _load_row(self, revision: str, layer: int) -> np.ndarray:
        vector = self.blobs.get(revision)
        try:
            at = 0 if vector.any_layer else vector.layers.index(layer)
        except ValueError:
            raise KeyError(layer) from None
        row: np.ndarray = vector.rows[at]
        return row
