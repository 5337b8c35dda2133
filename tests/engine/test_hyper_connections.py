"""Several residual streams: DeepSeek V4's own blocks, with vLLM's torch reference of its kernels.

The blocks and their order of computation are the real ones. The attention and the experts inside
are small stand-ins, since what comes in and goes out of them is all that steering sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hotwire_plugin import op
from hotwire_plugin.blobs import BlobStore
from hotwire_plugin.program import Program, ProgramOp
from hotwire_plugin.shape import Place
from hotwire_plugin.worker import WorkerRole, WorkerSizes
from hotwired.vector_file import canonical_bytes, revision_of
from tests.support.engine_models import direction

STREAMS, WIDTH, LAYERS, TOKENS = 4, 64, 3, 5
SITES = ("pre", "attn_out", "mlp_out", "post")
JOY = direction(1, range(LAYERS), norm=20.0, width=WIDTH)
REVISION = revision_of(canonical_bytes(JOY))
STEERED = 2
"""The token that is steered; all others must keep their bits."""


class Attention(nn.Linear):
    def forward(self, positions: torch.Tensor, x: torch.Tensor, _: None) -> torch.Tensor:  # type: ignore[override]
        """Stand in for attention, called as the block calls it."""
        return super().forward(x)


class Experts(nn.Linear):
    def forward(self, x: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Stand in for the experts, called as the block calls them."""
        return super().forward(x)


def block() -> nn.Module:
    """Return one of DeepSeek V4's blocks, without what needs vLLM's whole configuration."""
    from vllm.model_executor.kernels import mhc
    from vllm.models.deepseek_v4.cpu.model import DeepseekV4DecoderLayer

    made: Any = DeepseekV4DecoderLayer.__new__(DeepseekV4DecoderLayer)
    nn.Module.__init__(made)
    made.attn = Attention(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16)
    made.ffn = Experts(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16)
    made.attn_norm = nn.RMSNorm(WIDTH, dtype=torch.bfloat16)
    made.ffn_norm = nn.RMSNorm(WIDTH, dtype=torch.bfloat16)
    made.hc_mult, made.use_fused_mhc = STREAMS, False
    made.rms_norm_eps = made.hc_eps = 1e-6
    made.hc_post_alpha, made.hc_sinkhorn_iters = 2.0, 4
    mixes = (2 + STREAMS) * STREAMS
    for part in ("attn", "ffn"):
        setattr(made, f"hc_{part}_fn", torch.randn(mixes, STREAMS * WIDTH) * 0.1)
        setattr(made, f"hc_{part}_base", torch.randn(mixes) * 0.1)
        setattr(made, f"hc_{part}_scale", torch.ones(3))
    made.mhc_pre, made.mhc_post = mhc.mhc_pre_torch, mhc.mhc_post_torch
    return made  # type: ignore[no-any-return]


class Trunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(block() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the blocks as the model does; return the streams, (T, STREAMS, H)."""
        state: tuple[Any, ...] = (x, None, None, None)
        for layer in self.layers:
            hidden, residual, post_mix, res_mix = state
            state = layer(hidden, None, None, post_mix, res_mix, residual)
        return state[0]  # type: ignore[no-any-return]


class Rig(SimpleNamespace):
    """A trunk, the same one untouched, and the worker that steers the first."""

    steered: Trunk
    plain: Trunk
    worker: WorkerRole

    def run(self, x: torch.Tensor, *ops: ProgramOp) -> torch.Tensor:
        """Return the steered trunk's streams with these operations on one token."""
        self.worker.fill.begin("r", Program(ops).encode())
        start, one = np.array([0, 1]), np.array([1])
        self.worker.fill.step(["r"], start, one - 1, one, enabled=True)
        row = int(self.worker.fill._tokens.rows[0])
        rows = np.zeros(TOKENS, dtype=np.int32)
        rows[STEERED] = row
        self.worker.fill._tokens.write(rows)
        out: torch.Tensor = self.steered(x.clone())
        self.worker.fill.end("r")
        return out


@pytest.fixture(scope="module")
def rig() -> Rig:
    """Three blocks with all sites armed, and a vector."""
    torch.manual_seed(3)
    steered, plain = Trunk(), Trunk()
    plain.load_state_dict(steered.state_dict())
    for one, other in zip(steered.layers, plain.layers, strict=True):
        for name in [n for n in vars(one) if n.startswith("hc_")]:
            setattr(other, name, getattr(one, name))
    blobs = BlobStore(WIDTH, LAYERS, "bfloat16", 1 << 20)
    blobs.add(JOY)
    sizes = WorkerSizes(WIDTH, LAYERS, 4, 64, 1 << 20, streams=STREAMS, sites=SITES)
    worker = WorkerRole(steered, sizes, blobs, torch.device("cpu"), torch.bfloat16)
    return Rig(steered=steered, plain=plain, worker=worker)


@pytest.fixture
def x() -> torch.Tensor:
    """What goes into the first block, (TOKENS, STREAMS, WIDTH) bf16."""
    torch.manual_seed(5)
    return torch.randn(TOKENS, STREAMS, WIDTH).bfloat16()


def plain_with(rig: Rig, x: torch.Tensor, at: ProgramOp) -> torch.Tensor:
    """Return the untouched trunk's streams, the operation done by a hook on the same module."""
    row = torch.from_numpy(JOY.rows[at.layer]) * at.scale
    streams = slice(None) if at.stream is None else at.stream
    layer: Any = rig.plain.layers[at.layer]

    def add(hidden: torch.Tensor) -> None:
        here = (STEERED, streams) if hidden.dim() == 3 else (STEERED,)
        hidden[here] = (hidden[here].float() + row).bfloat16()

    module = {"attn_out": layer.attn, "mlp_out": layer.ffn}.get(at.site, layer)
    if at.site == "pre":
        handle = module.register_forward_pre_hook(lambda _m, args: add(args[0]))
    else:
        handle = module.register_forward_hook(
            lambda _m, _a, out: add(out[0] if isinstance(out, tuple) else out)
        )
    out: torch.Tensor = rig.plain(x.clone())
    handle.remove()
    return out


def test_every_stream_of_every_block_is_a_place(rig: Rig) -> None:
    """Before and behind the block; what is inside returns one tensor, whatever the streams are."""
    of_one = [Place(1, site, s) for site in ("pre", "post") for s in range(STREAMS)]
    of_one += [Place(1, "attn_out"), Place(1, "mlp_out")]
    assert sorted(place for place in rig.worker.places if place.layer == 1) == sorted(of_one)


@pytest.mark.parametrize("site", ["pre", "post"])
@pytest.mark.parametrize("stream", [0, 2, 3, None])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_stream_is_steered_and_no_other(
    rig: Rig, x: torch.Tensor, site: str, stream: int | None, layer: int
) -> None:
    """Bit for bit what a hook on that stream does; None is each of them."""
    at = ProgramOp(REVISION, layer, 1.0, "add", "all", site=site, stream=stream)
    got, want = rig.run(x, at), plain_with(rig, x, at)
    assert torch.equal(got, want)
    untouched = rig.plain(x.clone())
    assert not torch.equal(got, untouched)
    others = [token for token in range(TOKENS) if token != STEERED]
    assert torch.equal(got[others], untouched[others])


@pytest.mark.parametrize("site", ["attn_out", "mlp_out"])
def test_what_is_inside_a_block_is_steered_once(rig: Rig, x: torch.Tensor, site: str) -> None:
    """What attention or the experts return is mixed into all streams afterwards."""
    at = ProgramOp(REVISION, 1, 1.0, "add", "all", site=site)
    assert torch.equal(rig.run(x, at), plain_with(rig, x, at))


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield
    op.cpu_gate.active = True
