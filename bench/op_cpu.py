"""What the steering op costs a CPU engine: ``python -m bench.op_cpu`` prints the tables.

Single calls are the least, over rounds in which the cases take turns, of the mean of a few calls,
since a busy machine only ever adds to it. Whole steps are medians.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping

import torch

from hotwire_plugin import op

LAYERS, HIDDEN, ROWS, MAX_OPS, SLOTS = 30, 576, 65, 8, 128

Call = Callable[[], object]
Args = tuple[torch.Tensor | None, ...]


def best(
    cases: Mapping[str, Call],
    *,
    calls: int = 5,
    rounds: int = 400,
) -> dict[str, float]:
    """Return the time of one call of each case, in microseconds; the cases take turns."""
    times = dict.fromkeys(cases, math.inf)
    for _ in range(rounds):
        for name, call in cases.items():
            call()  # brings it back into the caches that the case before has filled
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times[name] = min(times[name], (time.perf_counter() - start) / calls * 1e6)
    return times


def tables(tokens: int, *, programs: int, ops: int = 1, steered: int | None = None) -> Args:
    """Return (bank .. token_row) of a layer: the first ``steered`` tokens share the programs."""
    op_slots = torch.zeros(ROWS, MAX_OPS, 2, dtype=torch.int32)
    op_coef = torch.zeros(ROWS, MAX_OPS, 6)
    op_count = torch.zeros(ROWS, dtype=torch.int32)
    token_row = torch.zeros(max(tokens, 1), dtype=torch.int32)
    for row in range(1, programs + 1):
        op_slots[row, :ops, 1] = torch.arange(ops, dtype=torch.int32) + row
        op_coef[row, :ops, 0] = 0.5
        op_count[row] = ops
    if programs:
        count = tokens if steered is None else steered
        token_row[:count] = torch.arange(count, dtype=torch.int32) % programs + 1
    limit = torch.full((ROWS,), math.inf)
    return torch.randn(SLOTS, HIDDEN), op_slots, op_coef, op_count, limit, token_row


def stream(tokens: int, dtype: torch.dtype) -> Args:
    """Return (hidden, residual)."""
    return torch.randn(tokens, HIDDEN).to(dtype), torch.randn(tokens, HIDDEN).to(dtype)


def caller(args: Args, *, active: bool = True) -> Call:
    """Return a call of the op as Inductor's code makes it, with the gate as asked."""
    steer = torch.ops.hotwired.steer.default

    def call() -> None:
        op.cpu_gate.active = active
        steer(*args)

    return call


def idle() -> dict[str, Call]:
    """Return the cases in which the op has nothing to do."""
    two = stream(8, torch.float32)
    return {
        "gate closed": caller(two + tables(8, programs=1), active=False),
        "gate open, no op at this layer": caller(two + tables(8, programs=0)),
        "gate open, these tokens in row 0": caller(two + tables(8, programs=1, steered=0)),
    }


def steered() -> dict[str, Call]:
    """Return the cases that steer, by dtype, tokens and programs."""
    cases: dict[str, Call] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for tokens in (1, 8, 64):
            name = f"{str(dtype).removeprefix('torch.')}, {tokens} tokens"
            two = stream(tokens, dtype)
            cases[f"{name}, one program"] = caller(two + tables(tokens, programs=1))
            if tokens > 1:
                half = tables(tokens, programs=1, steered=tokens // 2)
                cases[f"{name}, half of them steered"] = caller(two + half)
                each = tables(tokens, programs=tokens)
                cases[f"{name}, a program each"] = caller(two + each)
                cases[f"{name}, one program of 4 adds"] = caller(
                    two + tables(tokens, programs=1, ops=4)
                )
    return cases


def limited() -> dict[str, Call]:
    """Return the cases that need x: a live limit, an ablation."""
    two = stream(8, torch.float32)
    with_limit = tables(8, programs=1)
    ablation = tables(8, programs=1)
    assert with_limit[4] is not None
    assert ablation[2] is not None
    with_limit[4].fill_(0.1)
    ablation[2][1, 0] = torch.tensor([0, 0, -1.0, 0, -math.inf, math.inf])
    return {
        "float32, 8 tokens, add with a limit": caller(two + with_limit),
        "float32, 8 tokens, ablate": caller(two + ablation),
    }


class Step(torch.nn.Module):
    """The matmuls and norms of a decode step of SmolLM2-135M, without attention.

    It reads as many weights as the model does, so that the op's code and tables are as cold in the
    caches as they are in an engine, which a loop over the op alone doesn't show.
    """

    def __init__(self) -> None:
        super().__init__()
        shapes = ((HIDDEN, 960), (HIDDEN, HIDDEN), (HIDDEN, 3072), (1536, HIDDEN))
        self.weights = [
            [torch.randn(rows, columns) / rows**0.5 for rows, columns in shapes]
            for _ in range(LAYERS)
        ]

    def forward(self, hidden: torch.Tensor, layer_tables: list[Args] | None) -> torch.Tensor:
        residual = torch.zeros_like(hidden)
        for number, (qkv, out, gate_up, down) in enumerate(self.weights):
            attended, residual = self.norm(hidden, residual)
            hidden = (attended @ qkv)[:, :HIDDEN] @ out
            normed, residual = self.norm(hidden, residual)
            gate, up = (normed @ gate_up).chunk(2, -1)
            hidden = (torch.nn.functional.silu(gate) * up) @ down
            if layer_tables is not None:
                torch.ops.hotwired.steer.default(hidden, residual, *layer_tables[number])
        return self.norm(hidden, residual)[0]

    @staticmethod
    def norm(hidden: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        residual = residual + hidden
        return torch.nn.functional.rms_norm(residual, (HIDDEN,)), residual


def layer_tables(tokens: int, *, programs: int) -> list[Args]:
    """Return all layers' tables, which share a bank and the tokens' rows."""
    bank, *_, token_row = tables(tokens, programs=programs)
    own = [tables(tokens, programs=programs)[1:-1] for _ in range(LAYERS)]
    return [(bank, *layer, token_row) for layer in own]


def print_steps(tokens: int) -> float:
    """Print what the op adds to a compiled step: medians of steps that take turns.

    Returns the median of one without the op, in microseconds.
    """
    hidden = torch.randn(tokens, HIDDEN)
    some, none = (layer_tables(tokens, programs=programs) for programs in (1, 0))
    torch.compiler.reset()
    step = torch.compile(Step(), fullgraph=True, options={"size_asserts": False})
    cases = {
        "without the op": (None, False),
        "without the op, again": (None, False),
        "gate closed": (some, False),
        "gate open, no op at these layers": (none, True),
        "gate open, all tokens steered": (some, True),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for each in (None, some):
        step(hidden, each)
    torch.compiler.set_stance(skip_guard_eval_unsafe=True)  # as vLLM, which drops its guards
    for _ in range(100):
        for name, (each, op.cpu_gate.active) in cases.items():
            start = time.perf_counter()
            step(hidden, each)
            times[name].append((time.perf_counter() - start) * 1e6)
    torch.compiler.set_stance("default")
    base = statistics.median(times["without the op"])
    print(f"\nCompiled step, batch of {tokens}: us a step, us added, share added")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"  {name:44} {median:8.0f} {median - base:8.0f} {median / base - 1:8.2%}")
    return base


def print_calls(title: str, cases: Mapping[str, Call], step_us: float) -> None:
    """Print one table of single calls, beside a step of so many microseconds."""
    print(f"\n{title}: us a layer, us for {LAYERS} layers, share of a {step_us / 1000:.1f} ms step")
    with torch.inference_mode():
        for name, each in best(cases).items():
            all_layers = each * LAYERS
            print(f"  {name:44} {each:8.2f} {all_layers:8.0f} {all_layers / step_us:8.2%}")


def main() -> None:
    """Print all tables."""
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, hidden {HIDDEN}")
    with torch.inference_mode():
        print_steps(1)
        step_us = print_steps(8)
    print_calls("Idle", idle(), step_us)
    print_calls("Steered, adds only", steered(), step_us)
    print_calls("Steered, needing x", limited(), step_us)


if __name__ == "__main__":
    main()
