"""The V1 model runner: where a step's spans are final, before its forward pass."""

from __future__ import annotations

from typing import Any

from hotwire_plugin.engine_seam.patch import replace
from hotwire_plugin.engine_seam.scheduler import STAMP
from hotwire_plugin.fill import StepFill
from hotwire_plugin.program import PROGRAM_KEY


def follow(runner: Any, fill: StepFill) -> None:
    """Keep ``fill`` in step with this runner. The instance is wrapped, never its class.

    Raises:
        SeamMoved: the runner lacks a name that this needs.
    """

    def updated(inner: Any) -> Any:
        def _update_states(scheduler_output: Any) -> Any:
            result = inner(scheduler_output)
            for request_id in scheduler_output.finished_req_ids:
                fill.end(request_id)
            for new in scheduler_output.scheduled_new_reqs:
                _begin(fill, new)
            return result

        return _update_states

    def prepared(inner: Any) -> Any:
        def _prepare_inputs(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            result = inner(scheduler_output, *args, **kwargs)
            batch, stamp = runner.input_batch, getattr(scheduler_output, STAMP, None)
            fill.step(
                batch.req_ids,
                runner.query_start_loc.np,
                batch.num_computed_tokens_cpu,
                batch.num_prompt_tokens,
                enabled=stamp is None or stamp[1],
            )
            return result

        return _prepare_inputs

    def silenced(inner: Any) -> Any:
        def _dummy_run(*args: Any, **kwargs: Any) -> Any:
            fill.quiet()
            return inner(*args, **kwargs)

        return _dummy_run

    replace(runner, "_update_states", updated)
    replace(runner, "_prepare_inputs", prepared)
    replace(runner, "_dummy_run", silenced)


def _begin(fill: StepFill, new_request: Any) -> None:
    params = new_request.sampling_params
    program = (params.extra_args or {}).get(PROGRAM_KEY) if params is not None else None
    if program is None:
        fill.end(new_request.req_id)
    else:
        fill.begin(new_request.req_id, program)
