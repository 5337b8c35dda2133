"""What is read inside vLLM's worker: the GPU time of each graph replay, the time between steps.

Runs in the worker by ``collective_rpc``. Knows names of vLLM's V2 runner; only the bench uses it.
"""

from __future__ import annotations

import time
from typing import Any

import torch


class Probe:
    """Times of the steps since the last reading."""

    def __init__(self, worker: Any) -> None:
        runner = worker.model_runner
        self.steps: list[float] = []
        self.replays: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._wrap_steps(runner)
        if getattr(runner, "cudagraph_manager", None) is not None:
            self._wrap_replays(runner.cudagraph_manager)

    def _wrap_steps(self, runner: Any) -> None:
        inner = runner.execute_model

        def execute_model(*args: Any, **kwargs: Any) -> Any:
            self.steps.append(time.perf_counter())
            return inner(*args, **kwargs)

        runner.execute_model = execute_model

    def _wrap_replays(self, manager: Any) -> None:
        inner = manager.run_fullgraph

        def run_fullgraph(*args: Any, **kwargs: Any) -> Any:
            pair = _event(), _event()
            pair[0].record()
            result = inner(*args, **kwargs)
            pair[1].record()
            self.replays.append(pair)
            return result

        manager.run_fullgraph = run_fullgraph

    def read(self) -> dict[str, list[float]]:
        """Return and forget: GPU milliseconds of each replay, milliseconds from step to step."""
        torch.cuda.synchronize()
        gpu = [start.elapsed_time(end) for start, end in self.replays]
        wall = [(b - a) * 1e3 for a, b in zip(self.steps, self.steps[1:], strict=False)]
        self.replays.clear()
        self.steps.clear()
        return {"gpu_replay_ms": gpu, "wall_step_ms": wall}


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


_PROBES: dict[int, Probe] = {}


def attach(worker: Any) -> None:
    """Start reading in this worker."""
    _PROBES[id(worker)] = Probe(worker)


def read(worker: Any) -> dict[str, list[float]]:
    """Return what was read since the last call."""
    return _PROBES[id(worker)].read()


def fill_micros(_worker: Any) -> float | None:
    """Return the host time of a fill so far, in microseconds a step; None without the plugin."""
    try:
        from hotwire_plugin.process import process
    except ImportError:
        return None
    if process.worker is None:
        return None
    counters = process.worker.fill.counters
    return float(counters.seconds / counters.steps * 1e6) if counters.steps else None


def buffer_mebibytes(worker: Any) -> float:
    """Return the GPU memory of the steering buffers on the model, each counted once."""
    seen = {
        buffer.untyped_storage().data_ptr(): buffer.untyped_storage().nbytes()
        for name, buffer in worker.model_runner.get_model().named_buffers(remove_duplicate=False)
        if ".hotwired_" in name
    }
    return float(sum(seen.values()) / 2**20)
