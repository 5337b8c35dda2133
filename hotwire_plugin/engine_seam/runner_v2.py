"""The V2 model runner: its batch, as ``prepare_inputs`` returns it, has the final spans."""

from __future__ import annotations

from functools import partial
from typing import Any

from hotwire_plugin.engine_seam import idle_graphs
from hotwire_plugin.engine_seam.patch import replace, resolve
from hotwire_plugin.engine_seam.runner_v1 import Call, silenced
from hotwire_plugin.engine_seam.step_message import Requests, stamp_of
from hotwire_plugin.fill import StepFill


def follow(runner: Any, fill: StepFill) -> None:
    """Keep ``fill`` in step with this runner. The instance is wrapped, never its class.

    Raises:
        SeamMoved: the runner lacks a name that this needs.
    """
    resolve(runner.req_states, "prompt_len")
    requests = Requests(fill)
    replace(runner, "finish_requests", partial(_finished, requests))
    replace(runner, "add_requests", partial(_added, requests))
    replace(runner, "prepare_inputs", partial(_prepared, fill, requests, runner))
    replace(runner, "_dummy_run", partial(silenced, fill))
    idle_graphs.double(runner, fill)


def _finished(requests: Requests, inner: Call) -> Call:
    def finish_requests(scheduler_output: Any) -> Any:
        # This runner forgets a preempted request too, and gets it again as a new one.
        gone = scheduler_output.finished_req_ids | (scheduler_output.preempted_req_ids or set())
        for request_id in gone:
            requests.end(request_id)
        return inner(scheduler_output)

    return finish_requests


def _added(requests: Requests, inner: Call) -> Call:
    def add_requests(scheduler_output: Any) -> Any:
        result = inner(scheduler_output)
        for new in scheduler_output.scheduled_new_reqs:
            requests.begin(new)
        return result

    return add_requests


def _prepared(fill: StepFill, requests: Requests, runner: Any, inner: Call) -> Call:
    def prepare_inputs(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        batch = inner(scheduler_output, *args, **kwargs)
        prompt_lens = runner.req_states.prompt_len.np[batch.idx_mapping_np]
        stamp = stamp_of(scheduler_output)
        fill.step(
            batch.req_ids,
            batch.query_start_loc_np,
            batch.num_computed_tokens_np,
            requests.prompt_lens(batch.req_ids, prompt_lens),
            enabled=stamp.enabled,
            limit=stamp.limit,
        )
        return batch

    return prepare_inputs
