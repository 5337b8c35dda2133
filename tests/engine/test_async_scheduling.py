"""Asynchronous scheduling: steps are planned before the last one's tokens are known.

A CPU has no streams, so vLLM leaves it off there; with stand-ins for them its scheduler and runner
go the asynchronous way all the same.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests.engine.conftest import ONE_THREAD, Rig, Start
from tests.support import situations
from tests.support.engine_process import Ask
from tests.support.steered_check import ROW, SPECS, WINDOW, Judge, batch, prompt

pytestmark = pytest.mark.slow


class Stream:
    """Stands for a stream and for an event: what is asked of a CPU is done when it is asked."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what either takes."""

    def nothing(self, *args: Any) -> None:
        """There is nothing to wait for."""

    record = synchronize = wait = wait_stream = wait_event = nothing

    def query(self) -> bool:
        """All is done."""
        return True


def go_asynchronous() -> None:
    """Lets vLLM schedule asynchronously on a CPU."""
    import torch
    from vllm.platforms.cpu import CpuPlatform

    configure = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        configure(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    cuda: Any = torch.cuda
    cuda.Stream = cuda.Event = Stream
    cuda.current_stream = Stream
    cuda.stream = lambda stream: nullcontext()


@pytest.fixture(scope="module", params=["plain", "draft_model"])
def rig(
    request: pytest.FixtureRequest, start: Start, tiny_options: dict[str, Any], tiny_model: str
) -> Rig:
    """The small model with 48 tokens a step and 10 blocks of cache, two steps in flight."""
    options = tiny_options | {"max_num_batched_tokens": 48, "num_gpu_blocks_override": 11}
    if request.param == "draft_model":
        draft = {"method": "draft_model", "model": tiny_model, "num_speculative_tokens": 3}
        options |= {"speculative_config": draft}
    rig: Rig = start(options, env=ONE_THREAD, before=go_asynchronous)
    rig.driver.put({"joy": ROW})
    return rig


def test_it_is_on(rig: Rig) -> None:
    """The scheduler is the asynchronous one."""
    assert rig.engine.call("config", "scheduler_config.async_scheduling") is True


@pytest.mark.parametrize("length", [1, 47, 48, 49, 70])
@pytest.mark.parametrize("scope", SPECS)
def test_each_scope_at_each_tail(rig: Rig, judge: Judge, scope: str | None, length: int) -> None:
    """Chunks and their tails are prompt, what comes after is generated."""
    judge.check(rig.engine.one(Ask(prompt(length), SPECS[scope], tokens=20)), scope)


def test_preempted_with_a_step_in_flight(rig: Rig, judge: Judge) -> None:
    """Requests that lose their blocks while a step runs ahead are steered at the same positions."""
    before = rig.engine.call("preemptions")
    rig.engine.call("add", batch(70))
    judge.check_batch(rig.engine.call("finish"))
    assert rig.engine.call("preemptions") > before
    assert rig.driver.engine().requests_live == 0


def test_reset_with_a_step_in_flight(rig: Rig, judge: Judge) -> None:
    """So are those that lose them to a reset of the cache."""
    rig.engine.call("add", batch(30))
    rig.engine.call("step", 8)
    assert rig.engine.call("run", situations.reset_while_running)
    judge.check_batch(rig.engine.call("finish"))


def test_aborted_with_a_step_in_flight(rig: Rig, judge: Judge) -> None:
    """Those that stay are what they were, and nothing is left of the one that went."""
    rig.engine.call("add", batch(30))
    rig.engine.call("step", 6)
    rig.engine.call("abort", ["all"])
    answers = rig.engine.call("finish")
    assert sorted(answers) == ["None", "generated", "prompt"]
    for scope in (None, "generated", "prompt"):
        judge.check(answers[str(scope)], scope)
    rig.engine.one(Ask(prompt(4), tokens=3))
    assert (rig.driver.engine().requests_live, rig.driver.worker().rows_in_use) == (0, 0)


def test_a_window_is_kept_or_refused(rig: Rig, judge: Judge) -> None:
    """Generated tokens are counted exactly, but for steps that take drafts for accepted."""
    counted = rig.engine.call("config", "speculative_config") is None
    before = rig.driver.engine().requests_unsteered_total["GENERATED_NOT_COUNTED"]
    answer = rig.engine.one(Ask(prompt(21), WINDOW, tokens=20))
    judge.check_window(answer, WINDOW if counted else None)
    after = rig.driver.engine().requests_unsteered_total["GENERATED_NOT_COUNTED"]
    assert after == before + (not counted)
