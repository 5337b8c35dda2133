"""The steering op on a GPU: one Triton program a token, its whole row in one block.

A whole row, because ops that need ||x|| or x.u read all of it before they write any. Nothing
about a call picks another compilation but its dtype, its width, whether it has a residual, and
whether its rows are aligned: ``warm`` compiles them all.
"""
# Triton reads the annotations of kernels' parameters as its own, so they have few.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl

_ALIGNMENT = 16  # bytes: the widest load a thread makes
_POINTERS = (
    "hidden", "residual", "bank", "op_slots", "op_coef", "op_count", "limit", "token_row",
)  # fmt: skip
_SIZES = ("hidden_stride", "residual_stride", "max_ops")


@triton.jit
def _at(base, row, stride, aligned: tl.constexpr):
    """Return where a row starts, and tell the compiler if wide loads and stores may start there."""
    at = base + row * stride
    if aligned:
        at = tl.multiple_of(at, 16)
    return at


@triton.jit
def _load(base, row, stride, columns, width: tl.constexpr, aligned: tl.constexpr):
    """Return a row as float32, 0 past its width."""
    at = _at(base, row, stride, aligned) + columns
    return tl.load(at, mask=columns < width, other=0.0).to(tl.float32)


@triton.jit
def _norm(x):
    return tl.sqrt(tl.sum(x * x))


@triton.jit
def _amount(x, bank, slot, coef, columns, width: tl.constexpr, aligned: tl.constexpr):
    """Return the factor of w in one op; ``slot`` and ``coef`` point to the op's own."""
    amount = tl.load(coef)
    c1 = tl.load(coef + 1)
    c2 = tl.load(coef + 2)
    c3 = tl.load(coef + 3)
    if c1 != 0.0:
        amount += c1 * _norm(x)
    if (c2 != 0.0) | (c3 != 0.0):
        u = _load(bank, tl.load(slot).to(tl.int64), width, columns, width, aligned)
        dot = tl.sum(x * u)
        capped = tl.minimum(tl.maximum(dot, tl.load(coef + 4)), tl.load(coef + 5))
        amount += c2 * dot + c3 * (capped - dot)
    return amount


@triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=_POINTERS)
def _steer_kernel(
    hidden, residual, bank, op_slots, op_coef, op_count, limit, token_row,
    hidden_stride, residual_stride, max_ops,
    width: tl.constexpr, block: tl.constexpr, aligned: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    row = tl.load(token_row + token).to(tl.int64)
    if row == 0:
        return
    # What only depends on the row is asked for together: each wait for memory shows in the step.
    count = tl.load(op_count + row)
    most = tl.load(limit + row)
    slot_w = tl.load(op_slots + row * max_ops * 2 + 1)
    if count == 0:
        return
    if not most > 0.0:
        return
    columns = tl.arange(0, block)
    h = _load(hidden, token, hidden_stride, columns, width, aligned)
    x = h
    if residual is not None:
        x += _load(residual, token, residual_stride, columns, width, aligned)
    if most < float("inf"):
        most *= _norm(x)
    delta = tl.zeros([block], tl.float32)
    for k in range(count):
        slot = op_slots + (row * max_ops + k) * 2
        coef = op_coef + (row * max_ops + k) * 6
        w = _load(bank, slot_w.to(tl.int64), width, columns, width, aligned)
        slot_w = tl.load(slot + 3, mask=k + 1 < count, other=0)
        d = _amount(x, bank, slot, coef, columns, width, aligned) * w
        x += d
        delta += d
    if most < float("inf"):
        norm = _norm(delta)
        if norm > most:
            delta *= most / norm
    at = _at(hidden, token, hidden_stride, aligned) + columns
    tl.store(at, (h + delta).to(hidden.dtype.element_ty), mask=columns < width)


def launch(
    hidden: torch.Tensor,
    residual: torch.Tensor | None,
    bank: torch.Tensor,
    op_slots: torch.Tensor,
    op_coef: torch.Tensor,
    op_count: torch.Tensor,
    limit: torch.Tensor,
    token_row: torch.Tensor,
) -> None:
    """Steer ``hidden`` in place; arguments as in :mod:`hotwire_plugin.op`, all on one GPU."""
    tokens, width = hidden.shape
    if tokens == 0:
        return
    aligned = _aligned(hidden) and _aligned(bank) and (residual is None or _aligned(residual))
    block = triton.next_power_of_2(width)
    _steer_kernel[(tokens,)](
        hidden, residual, bank, op_slots, op_coef, op_count, limit, token_row,
        hidden.stride(0), 0 if residual is None else residual.stride(0), op_slots.shape[1],
        width=width, block=block, aligned=aligned, num_warps=max(1, min(8, block // 128)),
    )  # fmt: skip


def _aligned(rows: torch.Tensor) -> bool:
    """Whether every row starts where the widest load may."""
    start, step = rows.data_ptr(), rows.stride(0) * rows.element_size()
    return start % _ALIGNMENT == 0 and step % _ALIGNMENT == 0


def warm(hidden_size: int, dtype: torch.dtype, device: torch.device, max_ops: int) -> None:
    """Compile the kernel for this width and dtype: with a residual or not, aligned or not."""
    bank = torch.zeros(1, hidden_size, device=device)
    slots = torch.zeros(2, max_ops, 2, dtype=torch.int32, device=device)
    coef = torch.zeros(2, max_ops, 6, device=device)
    counts = torch.zeros(2, dtype=torch.int32, device=device)
    limit = torch.full((2,), float("inf"), device=device)
    rows = torch.zeros(1, dtype=torch.int32, device=device)
    memory = torch.zeros(hidden_size + 1, dtype=dtype, device=device)
    for offset in (0, 1):  # the allocator's blocks are aligned, one element further they aren't
        hidden = memory[offset : offset + hidden_size].unsqueeze(0)
        for residual in (None, hidden):
            launch(hidden, residual, bank, slots, coef, counts, limit, rows)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
