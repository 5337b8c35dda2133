"""Decoder blocks are found by structure, and each instance steers what it returns."""

import pytest
import torch
from torch import nn

from hotwire_plugin import op
from hotwire_plugin.layers import LayerBuffers, NotSteerable, attach, find_layers

HIDDEN = 8


class Block(nn.Module):
    def forward(
        self, hidden_states: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Halve what comes in: hidden is half of it, the residual the other half."""
        return hidden_states * 0.5, hidden_states * 0.5


class WholeStream(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the stream in one piece."""
        return hidden_states * 1.0


class Unknown(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return something that has no residual stream in a known place."""
        return {"x": hidden_states}


class Model(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(len(blocks)))


def buffers(scale: float = 2.0, tokens: int = 4) -> LayerBuffers:
    """Return tables whose row 1 adds ``scale`` times a row of ones, with token 1 on it."""
    coef = torch.zeros(3, 8, 6)
    coef[1, 0] = torch.tensor([scale, 0, 0, 0, -torch.inf, torch.inf])
    slots = torch.zeros(3, 8, 2, dtype=torch.int32)
    slots[1, 0, 1] = 1
    bank = torch.zeros(2, HIDDEN)
    bank[1] = 1
    token_row = torch.zeros(tokens, dtype=torch.int32)
    token_row[1] = 1
    count = torch.tensor([0, 1, 0], dtype=torch.int32)
    return LayerBuffers(bank, slots, coef, count, torch.full((3,), torch.inf), token_row)


def test_blocks_are_found_by_structure() -> None:
    """The list whose members take hidden_states is the decoder, whatever else is as long."""
    model = Model(Block(), Block(), Block())
    assert list(find_layers(model, 3)) == [0, 1, 2]


def test_blocks_of_other_pipeline_stages_keep_their_numbers() -> None:
    """Identities stand for the blocks of other ranks: a rank's own keep their place."""
    model = Model(nn.Identity(), Block(), Block(), nn.Identity())
    assert list(find_layers(model, 4)) == [1, 2]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Model(Block(), Block()), "0 lists of 3"),
        (nn.ModuleList([Model(Block(), Block(), Block()), Model(Block(), Block(), Block())]), "2"),
        (Model(Unknown(), Unknown(), Unknown()), r"block 0 \(Unknown\)"),
    ],
)
def test_what_cannot_be_steered_correctly_is_refused(model: nn.Module, says: str) -> None:
    """No decoder, two of them, or blocks of an unknown kind: refused with the reason."""
    with pytest.raises(NotSteerable, match=says):
        find_layers(model, 3)


def test_only_the_mapped_token_is_steered() -> None:
    """The op adds to the hidden half of the mapped token and leaves all else bit-identical."""
    block, x = Block(), torch.randn(4, HIDDEN)
    attach(block, buffers())
    hidden, residual = block(hidden_states=x, residual=None)
    want = x * 0.5
    assert torch.equal(residual, want)
    assert torch.equal(hidden[[0, 2, 3]], want[[0, 2, 3]])
    assert torch.equal(hidden[1], want[1] + 2)


def test_the_instance_is_wrapped_and_not_its_class() -> None:
    """Another model of the same class, such as a draft model, is untouched."""
    steered, other = WholeStream(), WholeStream()
    attach(steered, buffers())
    x = torch.randn(4, HIDDEN)
    assert not torch.equal(steered(x), x)
    assert torch.equal(other(x), x)


def test_weights_and_checkpoints_do_not_see_the_buffers() -> None:
    """The buffers are no part of the state that is saved or loaded."""
    block = Block()
    attach(block, buffers())
    assert not block.state_dict()
    assert dict(block.named_buffers()).keys() == {
        f"hotwired_{name}" for name in LayerBuffers.__slots__
    }


@pytest.fixture(autouse=True)
def _open_gate() -> None:
    op.cpu_gate.active = True
