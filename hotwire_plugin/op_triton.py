"""The steering op on a GPU: one Triton program a token, its whole row in one block.

A whole row, because ops that need ||x|| or x.u read all of it before they write any. Nothing
about a call picks a different compilation but its dtype, its width, whether it has a residual,
and whether its rows are aligned: ``warm`` can compile all of them.
"""

import torch
import triton
import triton.language as tl

_ALIGNMENT = 16  # bytes: the widest load a thread makes
_POINTERS = (
    "hidden", "residual", "bank", "op_slots", "op_coef", "op_count", "limit", "token_row",
)
_SIZES = ("hidden_stride", "residual_stride", "max_ops")


@triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=_POINTERS)  # type: ignore[untyped-decorator,unused-ignore]
def _steer_kernel(  # type: ignore[no-untyped-def]
    hidden, residual, bank, op_slots, op_coef, op_count, limit, token_row,
    hidden_stride, residual_stride, max_ops,
    H: tl.constexpr, BLOCK: tl.constexpr, RESIDUAL: tl.constexpr, ALIGNED: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    row = tl.load(token_row + token).to(tl.int64)
    if row == 0:
        return
    count = tl.load(op_count + row)
    if count == 0:
        return
    most = tl.load(limit + row)
    if not most > 0.0:
        return
    columns = tl.arange(0, BLOCK)
    inside = columns < H
    at = hidden + token * hidden_stride
    if ALIGNED:
        at = tl.multiple_of(at, 16)
    h = tl.load(at + columns, mask=inside, other=0.0).to(tl.float32)
    x = h
    if RESIDUAL:
        other = residual + token * residual_stride
        if ALIGNED:
            other = tl.multiple_of(other, 16)
        x += tl.load(other + columns, mask=inside, other=0.0).to(tl.float32)
    if most < float("inf"):
        most *= tl.sqrt(tl.sum(x * x))
    delta = tl.zeros([BLOCK], tl.float32)
    for k in range(count):
        op = row * max_ops + k
        slot_u = tl.load(op_slots + op * 2).to(tl.int64)
        slot_w = tl.load(op_slots + op * 2 + 1).to(tl.int64)
        amount = tl.load(op_coef + op * 6)
        c1 = tl.load(op_coef + op * 6 + 1)
        c2 = tl.load(op_coef + op * 6 + 2)
        c3 = tl.load(op_coef + op * 6 + 3)
        if c1 != 0.0:
            amount += c1 * tl.sqrt(tl.sum(x * x))
        if (c2 != 0.0) | (c3 != 0.0):
            lo = tl.load(op_coef + op * 6 + 4)
            hi = tl.load(op_coef + op * 6 + 5)
            u_at = bank + slot_u * H
            if ALIGNED:
                u_at = tl.multiple_of(u_at, 16)
            u = tl.load(u_at + columns, mask=inside, other=0.0)
            dot = tl.sum(x * u)
            amount += c2 * dot + c3 * (tl.minimum(tl.maximum(dot, lo), hi) - dot)
        w_at = bank + slot_w * H
        if ALIGNED:
            w_at = tl.multiple_of(w_at, 16)
        d = amount * tl.load(w_at + columns, mask=inside, other=0.0)
        x += d
        delta += d
    if most < float("inf"):
        norm = tl.sqrt(tl.sum(delta * delta))
        if norm > most:
            delta *= most / norm
    tl.store(at + columns, (h + delta).to(hidden.dtype.element_ty), mask=inside)


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
        H=width, BLOCK=block, RESIDUAL=residual is not None, ALIGNED=aligned,
        num_warps=max(1, min(8, block // 128)),
    )


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
    for offset in (0, 1):
        hidden = torch.zeros(hidden_size + 1, dtype=dtype, device=device)[offset:][None]
        hidden = hidden[:, :hidden_size]
        for residual in (None, hidden):
            launch(hidden, residual, bank, slots, coef, counts, limit, rows)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
