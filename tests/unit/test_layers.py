"""Decoder blocks are found by structure: which they are, and how the stream goes through them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hotwire_plugin.layers import NotSteerable, child_at, find_layers
from tests.unit.blocks import Block, Inner, Model, WholeStream


class Unknown(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return something that has no residual stream in a known place."""
        return {"x": hidden_states}


class Recurrent(nn.Module):
    def forward(self, hidden_states, residual):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
        """Return two halves without saying so, as blocks without attention do."""
        residual = hidden_states if residual is None else hidden_states + residual
        return hidden_states, residual


class Unsaid(nn.Module):
    def forward(self, hidden_states):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
        """Return the stream without saying so."""
        hidden_states *= 2
        return hidden_states


class UnsaidOther(nn.Module):
    def forward(self, hidden_states):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
        """Return who knows what."""
        if hidden_states is None:
            return hidden_states
        return self.pick(hidden_states)


class ForFormsSake(nn.Module):
    def forward(
        self, hidden_states: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the whole stream, and beside it what it was before."""
        residual = hidden_states
        return hidden_states * 2, residual


class Streams(nn.Module):
    hc_mult = 2
    use_fused_mhc = False

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return several streams, (T, 2, H)."""
        return x * 1.0, None


class FusedStreams(Streams):
    use_fused_mhc = True


class UnknownStreams(Block):
    hc_attn_fn: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.hc_attn_fn = nn.Linear(2, 2)


class AltUp(WholeStream):
    altup = True


class KvLayer(nn.Linear):
    def get_kv_cache_spec(self) -> None:
        """Marks a layer with state of its own."""


class Multimodal(nn.Module):
    def __init__(self, vision: nn.Module, language: nn.Module) -> None:
        super().__init__()
        self.vision, self.language = vision, language

    def get_language_model(self) -> nn.Module:
        """Return the part that generates."""
        return self.language


def test_blocks_are_found_by_structure() -> None:
    """The list whose members take hidden_states is the decoder, whatever else is as long."""
    model = Model(Block(), Block(), Block())
    assert list(find_layers(model, 3)) == [0, 1, 2]


def test_blocks_of_other_pipeline_stages_keep_their_numbers() -> None:
    """Identities stand for the blocks of other ranks: a rank's own keep their place."""
    model = Model(nn.Identity(), Block(), Block(), nn.Identity())
    assert list(find_layers(model, 4)) == [1, 2]


def test_a_list_may_mix_classes() -> None:
    """Attention blocks beside recurrent ones, which do not say what they return."""
    blocks = find_layers(Model(Block(), Recurrent(), Block()), 3)
    assert [block.split for block in blocks.values()] == [True, True, True]


def test_a_second_half_that_is_none_is_known_as_such() -> None:
    """Where the block does not read the residual, the first half is the whole stream."""
    blocks = find_layers(Model(ForFormsSake(), ForFormsSake()), 2)
    assert not any(block.split for block in blocks.values())
    assert not any(block.split for block in find_layers(Model(WholeStream()), 1).values())


def test_a_block_that_returns_what_it_was_given_need_not_say_so() -> None:
    """Its forward has no annotation, but all it returns is the stream under its own name."""
    assert not find_layers(Model(Unsaid()), 1)[0].split


def test_a_vision_tower_as_deep_as_the_model_is_not_taken() -> None:
    """Only the language model's blocks are looked at."""
    language = Model(Block(), Block())
    model = Multimodal(Model(Block(), Block()), language)
    found = [block.module for block in find_layers(model, 2).values()]
    assert found == list(language.layers)


def test_blocks_without_state_give_way_to_blocks_with() -> None:
    """Of two lists the one whose layers keep key-values is the decoder."""
    tower, decoder = Model(Block(), Block()), Model(Block(), Block())
    decoder.layers[0].self_attn = KvLayer(2, 2)
    found = find_layers(nn.ModuleList([tower, decoder]), 2)
    assert found[0].module is decoder.layers[0]


def test_experts_that_look_like_blocks_are_not_taken() -> None:
    """A list inside a block is part of the block."""
    block = Block()
    block.experts = nn.ModuleList([WholeStream()])
    assert find_layers(Model(block), 1)[0].module is block


def test_hyper_connections_have_several_streams() -> None:
    """Their number is the block's own, and the stream is in one piece."""
    block = find_layers(Model(Streams(), Streams()), 2, streams=2)[0]
    assert (block.streams, block.hidden, block.split) == (2, "x", False)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Model(Block(), Block()), "0 lists of 3"),
        (nn.ModuleList([Model(Block(), Block(), Block()), Model(Block(), Block(), Block())]), "2"),
        (Model(Unknown(), Unknown(), Unknown()), r"block 0 \(Unknown\)"),
        (Model(Block(), Block(), UnsaidOther()), r"block 2 .* does not say"),
        (Model(Block(), AltUp(), Block()), r"block 1 \(AltUp\)"),
        (Model(Streams(), Streams(), Streams()), "do not hand on 1 residual streams"),
        (Model(Block(), Block(), UnknownStreams()), "mixes several residual streams"),
        (Model(FusedStreams(), FusedStreams(), FusedStreams()), "leaves the mixing"),
    ],
)
def test_what_cannot_be_steered_correctly_is_refused(model: nn.Module, says: str) -> None:
    """No decoder, two of them, or blocks of an unknown kind: refused with the reason."""
    with pytest.raises(NotSteerable, match=says):
        find_layers(model, 3)


def inside(**children: nn.Module) -> nn.Module:
    """Return a block with these modules in it."""
    block = Block()
    for name, child in children.items():
        setattr(block, name, child)
    return block


def found_child(block: nn.Module, site: str) -> nn.Module | None:
    """Return the module at a site of a block."""
    return child_at(find_layers(Model(block), 1)[0], site)


@pytest.mark.parametrize("name", ["self_attn", "attn", "attention", "self_attention"])
def test_attention_is_found_by_its_name(name: str) -> None:
    """Whatever a family calls it."""
    child = Inner()
    assert found_child(inside(**{name: child}), "attn_out") is child


def test_a_site_that_no_one_module_returns_is_not_armed() -> None:
    """A recurrent block, a sum of two modules, heads before their projection, a partial sum."""
    assert found_child(inside(mamba=Inner()), "attn_out") is None
    assert found_child(inside(block_sparse_moe=Inner(), shared_mlp=Inner()), "mlp_out") is None
    assert found_child(inside(attn=KvLayer(2, 2)), "attn_out") is None
    partial = Inner()
    partial.o_proj.input_is_parallel, partial.o_proj.reduce_results = True, False
    partial.o_proj.tp_size = 1
    assert found_child(inside(self_attn=partial), "attn_out") is partial
    partial.o_proj.tp_size = 2
    assert found_child(inside(self_attn=partial), "attn_out") is None


def test_a_linear_attention_that_keeps_state_and_projects_is_one() -> None:
    """A layer with state counts if it ends in a projection to the stream."""
    child = KvLayer(2, 2)
    child.out_proj = nn.Linear(2, 2)
    child.out_proj.input_is_parallel = True
    assert found_child(inside(linear_attn=child), "attn_out") is child
