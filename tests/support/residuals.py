"""What the residual stream is behind a model's last block: in vLLM, and in Hugging Face's model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from hotwire_plugin.program import ProgramOp
from tests.support.engine_process import Engine
from tests.support.steering_math import Load, steered

MAX_RELATIVE = 1e-5
"""How far two fp32 implementations may be apart, over the norm of the position's own stream."""


def watch(worker: Any, layers: int) -> None:
    """Has a worker keep what its last block returns, by request and position. Runs in vLLM."""
    from hotwire_plugin.layers import find_layers

    runner = worker.model_runner
    worker.residuals = {}

    def record(module: Any, args: Any, output: Any) -> None:
        stream = output[0] + output[1] if isinstance(output, tuple) else output
        rows = stream.reshape(-1, stream.shape[-1])
        batch, starts = runner.input_batch, runner.query_start_loc.np
        for at, request in enumerate(batch.req_ids):
            first = int(batch.num_computed_tokens_cpu[at])
            own = worker.residuals.setdefault(request, {})
            for i, row in enumerate(rows[int(starts[at]) : int(starts[at + 1])]):
                own[first + i] = row.clone()

    find_layers(runner.get_model(), layers)[layers - 1].module.register_forward_hook(record)


def taken(worker: Any) -> dict[str, np.ndarray]:
    """Returns what a worker has kept since the last call, by request.

    (positions, hidden) fp32, in the order of the positions. Arrays, since a tensor on its way to
    another process is shared memory, which asks for a key that the test's process has not.
    """
    kept: dict[str, dict[int, torch.Tensor]] = worker.residuals
    worker.residuals = {}
    return {
        request: torch.stack([rows[at] for at in sorted(rows)]).numpy()
        for request, rows in kept.items()
    }


def streams_of(engine: Engine) -> dict[str, torch.Tensor]:
    """Return what an engine's worker has kept since the last call, by the names that tests gave."""
    (kept,) = engine.call("on_workers", taken)
    return {request.rsplit("-", 1)[0]: torch.from_numpy(rows) for request, rows in kept.items()}


def reference(
    blocks: Sequence[nn.Module],
    run: Callable[[torch.Tensor], Any],
    tokens: Sequence[int],
    *,
    ops: Sequence[ProgramOp],
    prompt_len: int,
    load: Load,
    limit: float | torch.Tensor = math.inf,
) -> torch.Tensor:
    """Return the stream behind the last block, (n, hidden) fp32, with every op done by a hook.

    blocks: those of Hugging Face's model. run: calls it on (1, n) token ids.
    """
    found: list[torch.Tensor] = []

    def hook(layer: int) -> Any:
        own = [op for op in ops if op.layer == layer and op.site == "post"]

        def change(module: Any, args: Any, output: Any) -> Any:
            hidden = output[0] if isinstance(output, tuple) else output
            positions = range(len(tokens))
            x = steered(hidden[0].double(), own, positions, prompt_len, load, limit=limit)
            hidden[0] = x.to(hidden.dtype)
            if layer == len(blocks) - 1:
                found.append(hidden[0].clone())
            return output

        return change

    handles = [block.register_forward_hook(hook(at)) for at, block in enumerate(blocks)]
    with torch.inference_mode():
        run(torch.tensor([list(tokens)]))
    for handle in handles:
        handle.remove()
    return found[0]


def relative_error(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest distance of two streams at a position, over the other's norm there."""
    return float(((one - other).norm(dim=1) / other.norm(dim=1)).max())
