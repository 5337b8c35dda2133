"""What each step needs before its forward pass: which token takes which program row."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hotwire_plugin import op
from hotwire_plugin.layout import Spans, Steered, take_up
from hotwire_plugin.log import bare, named
from hotwire_plugin.rows import NOT_PLACED, UNTOUCHED, ProgramError, ProgramRows

logger = logging.getLogger("hotwire_plugin.fill")


@dataclass(slots=True)
class FillCounters:
    """What a worker has done since it started; times are host seconds."""

    steps: int = 0
    seconds: float = 0.0
    steered_tokens: int = 0


class TokenMap:
    """``rows`` (max_tokens,) int32 on the device: token -> program row, 0 = untouched."""

    def __init__(self, max_tokens: int, device: torch.device) -> None:
        self.rows = torch.zeros(max_tokens, dtype=torch.int32, device=device)
        self._host = HostStage(self.rows)
        self._used = 0

    def write(self, rows: np.ndarray) -> None:
        """Map the first tokens as ``rows`` ((tokens,) int32) says and all others to row 0."""
        stage = self._host.next()
        used = max(self._used, len(rows))
        stage[: len(rows)] = rows
        stage[len(rows) : used] = UNTOUCHED
        self._host.flush(used)
        self._used = len(rows)

    def clear(self) -> None:
        """Map every token to row 0; free if none is mapped."""
        if self._used:
            self.write(np.empty(0, dtype=np.int32))


class HostStage:
    """The host side of a device buffer: pinned copies by turns, or the buffer itself on a CPU.

    A copy is reused only once the transfer that reads it has ended. With asynchronous scheduling
    two steps are in flight; twice as many copies keep the host from waiting for the device.
    """

    COPIES = 4

    def __init__(self, device_buffer: torch.Tensor) -> None:
        self._device = device_buffer
        self._on_cpu = device_buffer.device.type == "cpu"
        self._turn = 0
        self._pinned: list[torch.Tensor] = []
        self._events: list[torch.cuda.Event] = []
        if not self._on_cpu:
            host = torch.zeros_like(device_buffer, device="cpu")
            self._pinned = [host.clone().pin_memory() for _ in range(self.COPIES)]
            self._events = [
                torch.cuda.Event()  # type: ignore[no-untyped-call]
                for _ in range(self.COPIES)
            ]

    def next(self) -> np.ndarray:
        """Return the host array to write, of the device buffer's shape."""
        if self._on_cpu:
            return self._device.numpy()
        self._turn = (self._turn + 1) % self.COPIES
        self._events[self._turn].synchronize()
        return self._pinned[self._turn].numpy()

    def flush(self, count: int) -> None:
        """Send the first ``count`` elements, in stream order, without waiting."""
        if self._on_cpu:
            return
        self._device[:count].copy_(self._pinned[self._turn][:count], non_blocking=True)
        self._events[self._turn].record()


class StepFill:
    """Keeps the live requests' programs and maps each step's tokens to their rows.

    ``active`` tells whether the current step steers any token.
    """

    def __init__(self, rows: ProgramRows, tokens: TokenMap) -> None:
        self._rows = rows
        self._tokens = tokens
        self._live: dict[str, Steered] = {}
        self._step = 0
        self._laid_out: list[int] = []
        self.counters = FillCounters()
        self.errors: Counter[str] = Counter()
        self._set_active(False)

    def begin(self, request_id: str, raw_program: object) -> None:
        """Take up a request with the program that admission gave it. Never raises."""
        self.end(request_id)
        try:
            self._live[request_id] = take_up(self._rows, raw_program)
        except Exception as error:  # noqa: BLE001 - one request's program must not reach its batchmates
            self._fail(request_id, "PROGRAM_INVALID", error)

    def end(self, request_id: str) -> None:
        """Forget a request; unknown ones are ignored."""
        steered = self._live.pop(request_id, None)
        if steered is not None:
            steered.release()

    def quiet(self) -> None:
        """Steer nothing: for dummy and profiling runs, and where the kill switch is on."""
        self._tokens.clear()
        self._set_active(False)

    def step(
        self,
        request_ids: Sequence[str],
        query_start: np.ndarray,
        computed: np.ndarray,
        prompt_len: np.ndarray,
        *,
        enabled: bool,
        limit: float = math.inf,
    ) -> None:
        """Map the tokens of one step.

        Args:
            request_ids: the batch's n requests, in the order of their spans.
            query_start: (n + 1,) the first token of each span, and the end of the last.
            computed: (n,) the tokens of each request computed before this step.
            prompt_len: (n,) the prompt tokens of each request.
            enabled: whether the step's stamp lets anything be steered.
            limit: what the stamp holds the live relative dose of every request to.

        A token is prompt if its absolute position is below the prompt's length, whatever the
        length of its span: a chunk's tail of one token is prompt, a verified draft is generated.
        """
        if not self._live or not enabled:
            self.quiet()
            return
        start = time.perf_counter()
        batch = [self._live.get(request_id) for request_id in request_ids]
        if not any(batch):
            self.quiet()
            return
        self._rows.cap_limits(limit)
        spans = Spans(query_start, computed, prompt_len)
        rows = self._touch(batch, spans)
        if NOT_PLACED in rows:
            self._place_missing(request_ids, batch)
            rows = self._touch(batch, spans)
        self._map(rows, batch, spans)
        self.counters.steps += 1
        self.counters.seconds += time.perf_counter() - start

    def _touch(self, batch: list[Steered | None], spans: Spans) -> list[int]:
        """Mark the batch's rows as used in this step; return them in (prompt, generated) pairs.

        Those of a request that is laid out in another way follow after the pairs.
        """
        step = self._step = self._step + 1
        rows: list[int] = []
        others: list[int] = []
        self._laid_out = []
        computed = spans.computed[: len(batch)].tolist()
        for at, steered in enumerate(batch):
            if steered is None:
                rows += (UNTOUCHED, UNTOUCHED)
            elif steered.settled_from <= computed[at]:
                prompt, generated = steered.prompt, steered.generated
                prompt.last_step = generated.last_step = step
                rows += (prompt.row, generated.row)
            else:
                self._laid_out.append(at)
                steered.lay_out(spans.of(at))
                others += steered.touch(step)
                rows += (UNTOUCHED, UNTOUCHED)
        return rows + others

    def _map(self, rows: list[int], batch: list[Steered | None], spans: Spans) -> None:
        n = len(batch)
        mapped = np.array(rows[: 2 * n], dtype=np.int32).repeat(spans.phases(n))
        # Those that _touch laid out: to be laid out can itself settle a request, for the next step.
        for at in self._laid_out:
            if (steered := batch[at]) is not None:
                mapped[spans.tokens(at)] = steered.rows()
        steered_tokens = int(np.count_nonzero(mapped))
        self.counters.steered_tokens += steered_tokens
        self._tokens.write(mapped)
        self._set_active(steered_tokens > 0)

    def _set_active(self, active: bool) -> None:  # noqa: FBT001
        self.active = active
        # On a GPU the host calls the op to capture it, and must then find the gate open.
        if self._tokens.rows.device.type == "cpu":
            op.cpu_gate.active = active

    def _place_missing(self, request_ids: Sequence[str], batch: list[Steered | None]) -> None:
        for at, steered in enumerate(batch):
            if steered is not None and not self._place(request_ids[at], steered):
                batch[at] = None

    def _place(self, request_id: str, steered: Steered) -> bool:
        try:
            for entry in steered.entries():
                if entry.row == NOT_PLACED:
                    self._rows.place(entry, self._step)
        except Exception as error:  # noqa: BLE001 - nor must what its vectors hold
            reason = error.reason if isinstance(error, ProgramError) else "INTERNAL"
            self._fail(request_id, reason, error)
            self.end(request_id)
            return False
        return True

    def _fail(self, request_id: str, reason: str, error: Exception) -> None:
        self.errors[reason] += 1
        logger.error(
            "request %s runs unsteered: %s: %s",
            request_id,
            reason,
            error,
            extra=named(
                "request unsteered", request_id=bare(request_id), reason=reason, error=str(error)
            ),
        )
