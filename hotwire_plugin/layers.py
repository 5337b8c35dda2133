"""Finding a model's decoder blocks and putting the steering op behind each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hotwire_plugin import op  # noqa: F401  (registers torch.ops.hotwired.steer)

STREAM_SHAPES = ("tuple[torch.Tensor, torch.Tensor]", "Tuple[torch.Tensor, torch.Tensor]")
"""What a block that hands on (hidden, residual) is annotated to return."""


class NotSteerable(Exception):
    """The model cannot be steered correctly; the message says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class LayerBuffers:
    """The tensors the op reads behind one block; they are shared or views, and never move."""

    bank: torch.Tensor
    op_slots: torch.Tensor
    op_coef: torch.Tensor
    op_count: torch.Tensor
    limit: torch.Tensor
    token_row: torch.Tensor


def find_layers(model: nn.Module, num_layers: int) -> dict[int, nn.Module]:
    """Return this rank's decoder blocks by their number in the whole model.

    They are the one ModuleList of ``num_layers`` members whose real ones are of one class; blocks
    of other pipeline stages stand in it as identities.

    Raises:
        NotSteerable: there is no such list, more than one, or a block of an unknown signature.
    """
    found = [
        blocks
        for module in model.modules()
        if isinstance(module, nn.ModuleList) and (blocks := _blocks(module, num_layers)) is not None
    ]
    if len(found) != 1:
        raise NotSteerable(f"{len(found)} lists of {num_layers} decoder blocks found, not one")
    for index, block in found[0].items():
        _check_signature(index, block)
    return found[0]


def _blocks(modules: nn.ModuleList, num_layers: int) -> dict[int, nn.Module] | None:
    if len(modules) != num_layers:
        return None
    own = {i: m for i, m in enumerate(modules) if not isinstance(m, nn.Identity)}
    is_blocks = len({type(m) for m in own.values()}) == 1 and all(
        "hidden_states" in inspect.signature(m.forward).parameters for m in own.values()
    )
    return own if is_blocks else None


def _check_signature(index: int, block: nn.Module) -> None:
    returns = inspect.signature(block.forward).return_annotation
    text = returns if isinstance(returns, str) else str(returns)
    if returns is not torch.Tensor and text not in ("torch.Tensor", *STREAM_SHAPES):
        raise NotSteerable(
            f"block {index} ({type(block).__name__}) returns {text!r}: neither a residual stream "
            "nor its (hidden, residual) halves"
        )


def attach(block: nn.Module, buffers: LayerBuffers) -> None:
    """Let ``block`` steer what it returns.

    The instance is wrapped, never the class, which a draft model can share. The buffers are
    registered on the module so that Dynamo lifts them as inputs, which keeps the compiled
    subgraphs of all blocks equal.
    """
    for name in LayerBuffers.__slots__:
        block.register_buffer(f"hotwired_{name}", getattr(buffers, name), persistent=False)
    # nn.Module lets an instance attribute stand before the class's forward.
    block.forward = _steered(block, block.forward)


def _steered(block: nn.Module, inner: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        out = inner(*args, **kwargs)
        hidden, residual = out if isinstance(out, tuple) else (out, None)
        torch.ops.hotwired.steer(
            hidden,
            residual,
            block.hotwired_bank,
            block.hotwired_op_slots,
            block.hotwired_op_coef,
            block.hotwired_op_count,
            block.hotwired_limit,
            block.hotwired_token_row,
        )
        return out

    return forward
