"""Each instance steers at its sites: only mapped tokens, only its own tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hotwire_plugin import op
from hotwire_plugin.layers import Block as Found
from hotwire_plugin.layers import find_layers
from hotwire_plugin.sites import SiteBuffers, attach, streams_at
from tests.unit.blocks import HIDDEN, Block, Inner, Model, WholeStream, buffers
from tests.unit.test_layers import ForFormsSake, Streams


def found(block: nn.Module) -> Found:
    """Return a block as the model's only one."""
    return find_layers(Model(block), 1, getattr(block, "hc_mult", 1))[0]


class Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.mlp = Inner(), WholeStream()

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Add what attention returns, then what the MLP returns."""
        hidden_states = hidden_states + self.self_attn(hidden_states)[0]
        return hidden_states + self.mlp(hidden_states) * 10


def test_only_the_mapped_token_is_steered() -> None:
    """The op adds to the hidden half of the mapped token and leaves all else bit-identical."""
    block, x = Block(), torch.randn(4, HIDDEN)
    attach(found(block), "post", [buffers()])
    hidden, residual = block(hidden_states=x, residual=None)
    want = x * 0.5
    assert torch.equal(residual, want)
    assert torch.equal(hidden[[0, 2, 3]], want[[0, 2, 3]])
    assert torch.equal(hidden[1], want[1] + 2)


def test_a_batch_axis_is_looked_through() -> None:
    """What Hugging Face's blocks return is (1, T, H)."""
    block, x = WholeStream(), torch.randn(1, 4, HIDDEN)
    attach(found(block), "post", [buffers()])
    assert torch.equal(block(x)[0, 1], x[0, 1] + 2)
    assert torch.equal(block(x)[0, 0], x[0, 0])


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("residual", [None, torch.ones(4, HIDDEN)])
def test_before_the_block_the_stream_is_the_sum_of_its_halves(
    residual: torch.Tensor | None, *, by_name: bool
) -> None:
    """What is added in proportion to the stream's norm shows which stream that is."""
    block, x = Block(), torch.randn(4, HIDDEN)
    attach(found(block), "pre", [buffers(0.0, norms=1.0)])
    stream = x if residual is None else x + residual
    want = stream.clone()
    want[1] += stream[1].norm()
    taken = x.clone()
    given = {"hidden_states": taken, "residual": residual}
    got = block(**given) if by_name else block(taken, residual)
    assert torch.allclose(got[0] + got[1], want)


def test_halves_for_forms_sake_are_not_added_up() -> None:
    """Behind a block that returns the whole stream first, its norm is that of the first half."""
    block, x = ForFormsSake(), torch.randn(4, HIDDEN)
    attach(found(block), "post", [buffers(0.0, norms=1.0)])
    hidden, residual = block(x, torch.full_like(x, 9.0))
    assert torch.allclose(hidden[1], 2 * x[1] + 2 * x[1].norm())
    assert torch.equal(residual, x)


def test_all_sites_of_one_block() -> None:
    """Before, behind attention, behind the MLP, behind the block: each with tables of its own."""
    block, plain, x = Layered(), Layered(), torch.randn(4, HIDDEN)
    plain.load_state_dict(block.state_dict())
    only = found(block)
    for scale, site in enumerate(("post", "mlp_out", "attn_out", "pre"), 1):
        attach(only, site, [buffers(float(scale))])
    with torch.no_grad():
        got, before = block(x.clone()), x.clone()
        before[1] += 4
        attention = plain.self_attn(before)[0]
        attention[1] += 3
        before = before + attention
        mlp = before.clone()
        mlp[1] += 2
        want = before + mlp * 10
        want[1] += 1
    assert torch.allclose(got, want)


def test_each_stream_has_a_launch_of_its_own() -> None:
    """A hyper-connection block's streams are steered one by one."""
    block, x = Streams(), torch.randn(4, 2, HIDDEN)
    assert streams_at(found(block), "post") == 2
    assert streams_at(found(block), "attn_out") == 0
    attach(found(block), "post", [buffers(1.0), buffers(5.0)])
    out, _ = block(x)
    assert torch.equal(out[1, 0], x[1, 0] + 1)
    assert torch.equal(out[1, 1], x[1, 1] + 5)
    assert torch.equal(out[[0, 2, 3]], x[[0, 2, 3]])


def test_the_instance_is_wrapped_and_not_its_class() -> None:
    """Another model of the same class, such as a draft model, is untouched."""
    steered, other = WholeStream(), WholeStream()
    attach(found(steered), "post", [buffers()])
    x = torch.randn(4, HIDDEN)
    assert not torch.equal(steered(x), x)
    assert torch.equal(other(x), x)


def test_weights_and_checkpoints_do_not_see_the_buffers() -> None:
    """The buffers are no part of the state that is saved or loaded."""
    block = Block()
    attach(found(block), "post", [buffers()])
    assert not block.state_dict()
    assert dict(block.named_buffers()).keys() == {
        f"hotwired_{name}" for name in SiteBuffers.__slots__
    }


def test_an_armed_model_is_read_as_before() -> None:
    """The wrapped forward says what the block's own takes and returns."""
    block = Block()
    before = found(block)
    for site in ("pre", "post"):
        attach(before, site, [buffers()])
    assert found(block) == before


def test_a_site_that_a_block_has_not() -> None:
    """Nobody is to attach there."""
    with pytest.raises(ValueError, match="no site mlp_out"):
        attach(found(Block()), "mlp_out", [buffers()])


@pytest.fixture(autouse=True)
def _open_gate() -> None:
    op.cpu_gate.active = True
