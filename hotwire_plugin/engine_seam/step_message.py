"""The scheduler's message to the ranks: what the plugin adds to it, and reads from it."""

from __future__ import annotations

from typing import Any

from hotwire_plugin.engine_role import Stamp
from hotwire_plugin.fill import StepFill
from hotwire_plugin.program import PROGRAM_KEY

_STAMP = "hotwired_stamp"


def put_stamp(scheduler_output: Any, stamp: Stamp) -> None:
    """Let the stamp travel with a step: an extra attribute of a dataclass survives every pickle."""
    setattr(scheduler_output, _STAMP, tuple(stamp))


def is_enabled(scheduler_output: Any) -> bool:
    """Whether the stamp of a step lets anything be steered; a step without one does."""
    stamp = getattr(scheduler_output, _STAMP, None)
    return stamp is None or Stamp(*stamp).enabled


def begin(fill: StepFill, new_request: Any) -> None:
    """Take up a request that is new to this rank, with the program that admission gave it."""
    params = new_request.sampling_params
    program = (params.extra_args or {}).get(PROGRAM_KEY) if params is not None else None
    if program is None:
        fill.end(new_request.req_id)
    else:
        fill.begin(new_request.req_id, program)
