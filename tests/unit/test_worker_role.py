"""A worker's buffers: large enough for any batch, and laid out so that nothing copies them."""

import pytest
import torch

from hotwire_plugin import op
from hotwire_plugin.blobs import BlobStore
from hotwire_plugin.placement import MAX_SETS
from hotwire_plugin.worker import WorkerRole, WorkerSizes
from tests.unit.blocks import Block, Model

HIDDEN, LAYERS = 8, 5
INDUCTOR_ALIGNMENT = 16


def role(max_requests: int) -> tuple[WorkerRole, Model]:
    """Return a worker on a model of five blocks, and the model."""
    model = Model(*(Block() for _ in range(LAYERS)))
    sizes = WorkerSizes(HIDDEN, LAYERS, max_requests, max_tokens=64, bank_bytes=1 << 16)
    blobs = BlobStore(HIDDEN, LAYERS, "float32", 1 << 20)
    return WorkerRole(model, sizes, blobs, torch.device("cpu"), torch.float32), model


@pytest.mark.parametrize("max_requests", [1, 5, 16, 255, 256])
def test_every_layers_buffers_begin_where_inductor_wants_them(max_requests: int) -> None:
    """No buffer of any layer is misaligned: Inductor would copy it in every step of every layer."""
    _, model = role(max_requests)
    for name, buffer in model.named_buffers(remove_duplicate=False):
        assert buffer.data_ptr() % INDUCTOR_ALIGNMENT == 0, name


def test_a_batch_never_runs_out_of_rows() -> None:
    """There is a row for the prompt and one for the generation of each request of a batch."""
    for max_requests in (1, 7, 256):
        worker, _ = role(max_requests)
        assert worker.report().rows_capacity >= MAX_SETS * max_requests


def test_the_bank_holds_a_program_at_all_layers_whatever_its_budget() -> None:
    """A budget too small for one full program is raised to it rather than useless."""
    sizes = WorkerSizes(HIDDEN, LAYERS, 4, max_tokens=64, bank_bytes=1)
    assert sizes.slots > LAYERS * 8


@pytest.fixture(autouse=True)
def _open_gate() -> None:
    op.cpu_gate.active = True
