"""Two sets of full decode graphs on the V2 runner: one with the op's launches, one without.

A launch costs about a microsecond whatever it does, times the layers, on every step. A step that
steers nothing replays graphs that were captured while the op launches nothing, and are vanilla's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hotwire_plugin import op
from hotwire_plugin.engine_seam.patch import replace, resolve
from hotwire_plugin.engine_seam.runner_v1 import Call
from hotwire_plugin.fill import StepFill


def double(runner: Any, fill: StepFill) -> None:
    """Have the runner capture both sets, and replay the one that the step needs.

    Raises:
        SeamMoved: the runner lacks a name that this needs.
    """
    replace(runner, "capture_model", partial(_capturing, fill, runner))


def _capturing(fill: StepFill, runner: Any, inner: Call) -> Call:
    def capture_model(*args: Any, **kwargs: Any) -> Any:
        manager = runner.cudagraph_manager
        if manager is not None:
            resolve(manager, "graphs")
            replace(manager, "capture", partial(_captured_twice, fill, manager))
        return inner(*args, **kwargs)

    return capture_model


def _captured_twice(fill: StepFill, manager: Any, inner: Call) -> Call:
    from vllm.config import CUDAGraphMode

    def capture(*args: Any, **kwargs: Any) -> None:
        inner(*args, **kwargs)
        steered, wanted = manager.graphs, resolve(manager, "_capture_descs")
        full = wanted.get(CUDAGraphMode.FULL)
        if not full:
            return
        manager.graphs, manager._capture_descs = {}, {CUDAGraphMode.FULL: full}  # noqa: SLF001
        try:
            with op.launching_nothing():
                inner(*args, **kwargs)
            replace(manager, "run_fullgraph", partial(_chosen, fill, manager, steered))
        finally:
            manager._capture_descs = wanted  # noqa: SLF001

    return capture


def _chosen(fill: StepFill, manager: Any, steered: dict[Any, Any], inner: Call) -> Call:
    idle = manager.graphs

    def run_fullgraph(*args: Any, **kwargs: Any) -> Any:
        manager.graphs = steered if fill.active else idle
        return inner(*args, **kwargs)

    return run_fullgraph
