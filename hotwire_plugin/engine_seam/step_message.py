"""The scheduler's message to the ranks: what the plugin adds to it, and reads from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hotwire_plugin.engine_role import Stamp
from hotwire_plugin.fill import StepFill
from hotwire_plugin.program import PROGRAM_KEY

PROMPT_LEN_KEY = "hotwire_prompt_len"
"""In a request's extra_args: where its prompt ends, if what follows there was generated before."""

_STAMP = "hotwired_stamp"


def put_stamp(scheduler_output: Any, stamp: Stamp) -> None:
    """Let the stamp travel with a step: an extra attribute of a dataclass survives every pickle."""
    setattr(scheduler_output, _STAMP, tuple(stamp))


def stamp_of(scheduler_output: Any) -> Stamp:
    """Return the stamp of a step; one without holds nothing back."""
    return Stamp(*getattr(scheduler_output, _STAMP, (0, True)))


class Requests:
    """The requests of one rank, as its runner takes them up and gives them up."""

    def __init__(self, fill: StepFill) -> None:
        self._fill = fill
        self._prompt_lens: dict[str, int] = {}

    def begin(self, new_request: Any) -> None:
        """Take up a request that is new to this rank, with the program that admission gave it."""
        request_id, params = new_request.req_id, new_request.sampling_params
        extra_args = (params.extra_args if params is not None else None) or {}
        self.end(request_id)
        if PROGRAM_KEY in extra_args:
            self._fill.begin(request_id, extra_args[PROGRAM_KEY])
            if PROMPT_LEN_KEY in extra_args:
                self._prompt_lens[request_id] = extra_args[PROMPT_LEN_KEY]

    def end(self, request_id: str) -> None:
        """Give up a request; unknown ones are ignored."""
        self._fill.end(request_id)
        self._prompt_lens.pop(request_id, None)

    def prompt_lens(self, request_ids: Sequence[str], prompt_lens: np.ndarray) -> np.ndarray:
        """Return where the prompts of a batch end: (n,) or longer, as the runner has it."""
        if not self._prompt_lens:
            return prompt_lens
        own = prompt_lens.copy()
        for at, request_id in enumerate(request_ids):
            own[at] = self._prompt_lens.get(request_id, own[at])
        return own


def asked_prompt_len(extra_args: Mapping[str, Any] | None, actual: int) -> int:
    """Return where a request of ``actual`` prompt tokens says that its prompt ends."""
    asked = (extra_args or {}).get(PROMPT_LEN_KEY)
    return asked if type(asked) is int and 0 <= asked < actual else actual


def with_prompt_len(
    extra_args: dict[str, Any] | None, prompt_len: int | None
) -> dict[str, Any] | None:
    """Return admitted extra_args in which a rank finds ``prompt_len``; None is for none to find."""
    if not extra_args or PROMPT_LEN_KEY not in extra_args:
        return extra_args
    kept = {key: value for key, value in extra_args.items() if key != PROMPT_LEN_KEY}
    if prompt_len is not None and PROGRAM_KEY in kept:
        kept[PROMPT_LEN_KEY] = prompt_len
    return kept or None
