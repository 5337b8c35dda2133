"""Putting the steering op at a site of a decoder block."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hotwire_plugin import op  # noqa: F401  (registers torch.ops.hotwired.steer)
from hotwire_plugin.layers import RESIDUAL, Block, child_at
from hotwire_plugin.shape import DEFAULT_SITE

Forward = Callable[..., Any]
Names = tuple[str, ...]
"""The attributes of a module that hold one launch's tensors, in the order of the op's schema."""


@dataclass(frozen=True, slots=True)
class SiteBuffers:
    """The tensors the op reads at one place; they are shared or views, and never move."""

    bank: torch.Tensor
    op_slots: torch.Tensor
    op_coef: torch.Tensor
    op_count: torch.Tensor
    limit: torch.Tensor
    token_row: torch.Tensor


def streams_at(block: Block, site: str) -> int:
    """Return how many residual streams are steered at a site of a block; 0 if it has no such site.

    What a module inside a block returns is one tensor, whatever the number of streams is.
    """
    if site in {"pre", DEFAULT_SITE}:
        return block.streams
    return 0 if child_at(block, site) is None else 1


def attach(block: Block, site: str, buffers: Sequence[SiteBuffers]) -> None:
    """Let a block steer at one of its sites, with one launch for each of its streams.

    The instance is wrapped, never the class, which a draft model can share. The buffers are
    registered on the wrapped module so that Dynamo lifts them as inputs, which keeps the compiled
    subgraphs of all blocks equal.

    Args:
        block: the block.
        site: one of shape.SITES, which the block has.
        buffers: those of each stream, in order.
    """
    is_inside = site not in {"pre", DEFAULT_SITE}
    module = child_at(block, site) if is_inside else block.module
    if module is None:
        raise ValueError(f"the block has no site {site}")
    tables = [_register(module, site, i, tensors) for i, tensors in enumerate(buffers)]
    # nn.Module lets an instance attribute stand before the class's forward.
    if site == "pre":
        module.forward = _steered_before(block, module.forward, tables)
    else:
        split = block.split and not is_inside
        module.forward = _steered_behind(module, module.forward, tables, split=split)


def _register(module: nn.Module, site: str, stream: int, buffers: SiteBuffers) -> Names:
    place = "" if (site, stream) == (DEFAULT_SITE, 0) else f"{site}_{stream}_"
    names = tuple(f"hotwired_{place}{name}" for name in SiteBuffers.__slots__)
    for name, field in zip(names, SiteBuffers.__slots__, strict=True):
        module.register_buffer(name, getattr(buffers, field), persistent=False)
    return names


def _steered_behind(
    module: nn.Module, inner: Forward, tables: Sequence[Names], *, split: bool
) -> Forward:
    @functools.wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        out = inner(*args, **kwargs)
        hidden, residual = out, None
        if isinstance(out, tuple):
            hidden, residual = out[0], out[1] if split else None
        _steer(module, tables, hidden, residual)
        return out

    return forward


def _steered_before(block: Block, inner: Forward, tables: Sequence[Names]) -> Forward:
    hidden_of = _argument(block, block.hidden)
    residual_of = _argument(block, RESIDUAL) if block.split else _nothing

    @functools.wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        _steer(block.module, tables, hidden_of(args, kwargs), residual_of(args, kwargs))
        return inner(*args, **kwargs)

    return forward


Pick = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def _argument(block: Block, name: str) -> Pick:
    """Return what picks an argument by its name, however the caller passes it."""
    at = block.parameters.index(name)

    def pick(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[at] if at < len(args) else kwargs.get(name)

    return pick


def _nothing(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG001
    return None


def _steer(
    module: nn.Module,
    tables: Sequence[Names],
    hidden: torch.Tensor,
    residual: torch.Tensor | None,
) -> None:
    """Launch the op on ``hidden``: (T, H), (1, T, H) as Hugging Face's modules have it, or
    (T, streams, H) where there are several streams. It's changed in place.
    """
    if len(tables) > 1:
        for stream, names in enumerate(tables):
            _launch(module, names, hidden[:, stream], None)
    elif hidden.dim() == 2:
        _launch(module, tables[0], hidden, residual)
    else:
        _launch(module, tables[0], hidden[0], None if residual is None else residual[0])


def _launch(
    module: nn.Module, names: Names, hidden: torch.Tensor, residual: torch.Tensor | None
) -> None:
    torch.ops.hotwired.steer(hidden, residual, *[getattr(module, name) for name in names])
