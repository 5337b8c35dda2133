"""The V1 model runner: where a step's spans are final, before its forward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hotwire_plugin.engine_seam.patch import replace
from hotwire_plugin.engine_seam.step_message import Requests, stamp_of
from hotwire_plugin.fill import StepFill

Call = Callable[..., Any]


def follow(runner: Any, fill: StepFill) -> None:
    """Keep ``fill`` in step with this runner. The instance is wrapped, never its class.

    Raises:
        SeamMoved: the runner lacks a name that this needs.
    """
    requests = Requests(fill)
    replace(runner, "_update_states", partial(_updated, requests))
    replace(runner, "_prepare_inputs", partial(_prepared, fill, requests, runner))
    replace(runner, "_dummy_run", partial(silenced, fill))


def _updated(requests: Requests, inner: Call) -> Call:
    def _update_states(scheduler_output: Any) -> Any:
        result = inner(scheduler_output)
        for request_id in scheduler_output.finished_req_ids:
            requests.end(request_id)
        for new in scheduler_output.scheduled_new_reqs:
            requests.begin(new)
        return result

    return _update_states


def _prepared(fill: StepFill, requests: Requests, runner: Any, inner: Call) -> Call:
    def _prepare_inputs(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        result = inner(scheduler_output, *args, **kwargs)
        batch = runner.input_batch
        stamp = stamp_of(scheduler_output)
        fill.step(
            batch.req_ids,
            runner.query_start_loc.np,
            batch.num_computed_tokens_cpu,
            requests.prompt_lens(batch.req_ids, batch.num_prompt_tokens),
            enabled=stamp.enabled,
            limit=stamp.limit,
        )
        return result

    return _prepare_inputs


def silenced(fill: StepFill, inner: Call) -> Call:
    """Make a dummy run, for profiling, capture or an idle data-parallel rank, steer nothing."""

    def _dummy_run(*args: Any, **kwargs: Any) -> Any:
        fill.quiet()
        return inner(*args, **kwargs)

    return _dummy_run
