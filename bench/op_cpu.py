"""What the steering op costs a CPU engine: ``python -m bench.op_cpu`` prints the tables.

Times are in microseconds: the least, over rounds in which the cases take turns, of the mean of a
few calls, since a busy machine only ever adds to it.
"""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import torch

from hotwire_plugin import op

LAYERS, HIDDEN, ROWS, MAX_OPS, SLOTS = 30, 576, 65, 8, 128
STEP_US = 8500.0  # one decode step of SmolLM2-135M on two cores

Call = Callable[[], object]
Pass = Callable[[torch.Tensor], torch.Tensor]
Args = tuple[torch.Tensor | None, ...]


def best(
    cases: Mapping[str, Call],
    *,
    calls: int = 5,
    rounds: int = 400,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the time of one call of each case, in microseconds; the cases take turns."""
    times = dict.fromkeys(cases, math.inf)
    for _ in range(rounds):
        for name, call in cases.items():
            call()  # brings it back into the caches that the case before has filled
            start = clock()
            for _ in range(calls):
                call()
            times[name] = min(times[name], (clock() - start) / calls * 1e6)
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


class Toy(torch.nn.Module):
    """30 layers of (matmul, op), each layer with tables of its own."""

    def __init__(self, tokens: int, *, armed: bool) -> None:
        super().__init__()
        self.armed = armed
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.randn(HIDDEN, HIDDEN) / HIDDEN**0.5) for _ in range(LAYERS)
        )
        bank, *_, token_row = tables(tokens, programs=1)
        own = [tables(tokens, programs=1)[1:-1] for _ in range(LAYERS)]
        self.layer_tables = [(bank, *layer, token_row) for layer in own]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        residual = torch.zeros_like(hidden)
        for weight, layer in zip(self.weights, self.layer_tables, strict=True):
            hidden = hidden @ weight
            if self.armed:
                torch.ops.hotwired.steer(hidden, residual, *layer)
            residual = residual + hidden
            hidden = torch.nn.functional.rms_norm(residual, (HIDDEN,))
        return hidden


def toy_cost(*, compiled: bool, active: bool, tokens: int = 8) -> float:
    """Return what the op adds to a pass of the toy, in microseconds."""
    torch.manual_seed(0)
    hidden = torch.randn(tokens, HIDDEN)
    calls = {}
    for name, armed in (("bare", False), ("armed", True)):
        toy: Pass = Toy(tokens, armed=armed)
        if compiled:
            toy = cast("Pass", torch.compile(toy, fullgraph=True))
        calls[name] = partial(toy, hidden)
    op.cpu_gate.active = active
    with torch.inference_mode():
        for call in calls.values():
            call()
        torch.compiler.set_stance(skip_guard_eval_unsafe=True)  # as vLLM, which drops its guards
        result = best(calls, calls=1, rounds=400, clock=time.thread_time)
    torch.compiler.set_stance("default")
    return result["armed"] - result["bare"]


def print_calls(title: str, cases: Mapping[str, Call]) -> None:
    """Print one table of single calls."""
    print(f"\n{title}: us a layer, us for {LAYERS} layers, share of a {STEP_US / 1000} ms step")
    with torch.inference_mode():
        for name, each in best(cases).items():
            all_layers = each * LAYERS
            print(f"  {name:44} {each:8.2f} {all_layers:8.0f} {all_layers / STEP_US:8.2%}")


def main() -> None:
    """Print all tables."""
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, hidden {HIDDEN}")
    print_calls("Idle", idle())
    print_calls("Steered, adds only", steered())
    print_calls("Steered, needing x", limited())
    torch.set_num_threads(1)  # two threads that wait for each other drown the op on a busy machine
    print(f"\nAdded to {LAYERS} layers of a toy, 8 tokens, one thread: us a pass")
    for compiled in (False, True):
        for active in (False, True):
            how = "compiled" if compiled else "eager"
            what = "all steered" if active else "gate closed"
            print(f"  {how + ', ' + what:44} {toy_cost(compiled=compiled, active=active):8.0f}")


if __name__ == "__main__":
    main()
