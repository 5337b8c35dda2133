"""Small stand-ins for decoder blocks, and tables that steer one token."""

from __future__ import annotations

import torch
from torch import nn

from hotwire_plugin.sites import SiteBuffers

HIDDEN = 8


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.o_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return a projection, and no weights."""
        return self.o_proj(hidden_states), None


class Block(nn.Module):
    def forward(
        self, hidden_states: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Halve what comes in: hidden is half of it, the residual the other half."""
        whole = hidden_states if residual is None else hidden_states + residual
        return whole * 0.5, whole * 0.5


class WholeStream(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the stream in one piece."""
        return hidden_states * 1.0


class Model(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(len(blocks)))


def buffers(scale: float = 2.0, tokens: int = 4, *, norms: float = 0.0) -> SiteBuffers:
    """Return tables whose row 1 adds (scale + norms * ||x||) times ones, with token 1 on it."""
    coef = torch.zeros(3, 8, 6)
    coef[1, 0] = torch.tensor([scale, norms, 0, 0, -torch.inf, torch.inf])
    slots = torch.zeros(3, 8, 2, dtype=torch.int32)
    slots[1, 0, 1] = 1
    bank = torch.zeros(2, HIDDEN)
    bank[1] = 1
    token_row = torch.zeros(tokens, dtype=torch.int32)
    token_row[1] = 1
    count = torch.tensor([0, 1, 0], dtype=torch.int32)
    return SiteBuffers(bank, slots, coef, count, torch.full((3,), torch.inf), token_row)
