"""The steering op, ``torch.ops.hotwired.steer``: adds to each token what its program row says.

One call serves one layer. It changes ``hidden`` in place and returns nothing.

=============  ==================  ========  ====================================================
argument       shape               dtype     meaning
=============  ==================  ========  ====================================================
``hidden``     (T, H)              float     half of the residual stream; written in place
``residual``   (T, H) or None      as above  the other half; x = hidden + residual
``bank``       (slots, H)          float32   vector rows
``op_slots``   (rows, K, 2)        int32     [slot_u, slot_w] of each op, in order
``op_coef``    (rows, K, 6)        float32   [c0, c1, c2, c3, lo, hi] of each op
``op_count``   (rows,)             int32     how many of a row's K ops are in use, 0 to K
``limit``      (rows,)             float32   greatest ||d|| / ||x0||; +inf for none
``token_row``  (>= T,)             int32     row of each token; 0 leaves the token untouched
=============  ==================  ========  ====================================================

``hidden`` and ``residual`` are float32, bfloat16 or float16, of one dtype, with a contiguous last
dimension and any row stride. The tables and the bank are contiguous. Nothing is checked here
(it would cost more than the op itself on an idle step): who fills the tables answers for them.

``lo <= hi``, ``lo < inf`` and ``hi > -inf``: -inf and inf stand for no bound.

The arithmetic is that of :func:`hotwire_plugin.op_reference.steer_reference`. A token whose row
is 0, whose row has no ops, or whose limit isn't above zero (0, negative, NaN) keeps its bits, and
nothing of it is read but ``token_row``, ``op_count`` and ``limit``. ``slot_u`` counts only in an
op with ``c2`` or ``c3``.

Importing this module registers the op; Triton is imported by the first call on a GPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch

from hotwire_plugin import op_cpu

NAMESPACE = "hotwired"
SCHEMA = (
    "steer(Tensor(a!) hidden, Tensor? residual, Tensor bank, Tensor op_slots, Tensor op_coef, "
    "Tensor op_count, Tensor limit, Tensor token_row) -> ()"
)
_KEEP = "_hotwired_registration"


def _steer_cuda(
    hidden: torch.Tensor,
    residual: torch.Tensor | None,
    bank: torch.Tensor,
    op_slots: torch.Tensor,
    op_coef: torch.Tensor,
    op_count: torch.Tensor,
    limit: torch.Tensor,
    token_row: torch.Tensor,
) -> None:
    if not cpu_gate.active:
        return
    from hotwire_plugin import op_triton

    op_triton.launch(hidden, residual, bank, op_slots, op_coef, op_count, limit, token_row)


def _steer_fake(*_: Any) -> None:
    """Tell tracers that the op returns nothing; what it mutates is in the schema."""


def _register() -> op_cpu.CpuGate:
    """Register the op once a process, however often this module is loaded; return its gate.

    The registration is kept on the namespace object: the dispatcher holds the functions of the
    first load, so a second load must use that load's gate.
    """
    namespace = getattr(torch.ops, NAMESPACE)
    kept = vars(namespace).get(_KEEP)
    if kept is None:
        # torch.library's methods carry no annotations; seen as Any they need no ignores.
        library: Any = cast("Any", torch.library.Library)(NAMESPACE, "FRAGMENT")
        library.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
        library.impl("steer", op_cpu.steer_cpu, "CPU")
        library.impl("steer", _steer_cuda, "CUDA")
        torch.library.register_fake(f"{NAMESPACE}::steer", _steer_fake, lib=library)
        kept = (library, op_cpu.gate)
        setattr(namespace, _KEEP, kept)
    gate: op_cpu.CpuGate = kept[1]
    return gate


cpu_gate = _register()
"""Whether the op does anything: while ``cpu_gate.active`` is False a call on the CPU returns before
it looks at its tables, and one on a GPU launches nothing. It's read when the op is called, so a
captured graph keeps what it was captured with; the per-step fill of a CPU engine sets it.
"""


@contextmanager
def launching_nothing() -> Iterator[None]:
    """Close the gate: graphs captured meanwhile hold no launch of the op."""
    was, cpu_gate.active = cpu_gate.active, False
    try:
        yield
    finally:
        cpu_gate.active = was


def warm(hidden_size: int, dtype: torch.dtype, device: torch.device, max_ops: int) -> None:
    """Compile everything that calls of this width and dtype can need, so that no step does.

    ``max_ops`` is K. On a CPU there's nothing to compile. On a GPU this launches the kernel on
    scratch tensors and waits for it: call it before capturing graphs, never inside a capture.
    """
    if device.type == "cpu":
        return
    from hotwire_plugin import op_triton

    op_triton.warm(hidden_size, dtype, device, max_ops)
