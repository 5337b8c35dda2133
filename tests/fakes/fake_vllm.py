"""A stand-in for `vllm serve` with the plugin: steers arithmetic instead of a model.

It speaks what verify asks of the OpenAI API, goes by a FakeDaemon's vectors and policy, and leaves
receipts and counters there. Every field is a fault that can be planted.
"""

import contextlib
import json
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from hotwired.v1.receipt_pb2 import Receipt
from hotwired.v1.stats_pb2 import WorkerStats
from tests.fakes.fake_daemon import State

MODEL = "fake-model"
ENGINE = "i/0"
BLOCK = 16


@dataclass
class FakeVllm:
    """What the server does, and does wrong.

    daemon: what it goes by. slow: seconds that each request takes. The rest are faults, or what the
    server is not set up for.
    """

    daemon: State
    drops: bool = False
    even: bool = False
    zero_acts: bool = False
    nothing_acts: bool = False
    leaks_to_mates: bool = False
    leaks_to_cache: bool = False
    serves_steered_from_cache: bool = False
    drifts: bool = False
    noisy_steering: bool = False
    serves_unknown: bool = False
    other_reason: bool = False
    stuck_rank: str = ""
    failing_rank: str = ""
    dead_layer: int = -1
    no_details: bool = False
    no_logprobs: bool = False
    unknown_to_daemon: bool = False
    limit: float = float("inf")
    models: tuple[str, ...] = (MODEL,)
    key: str = ""
    slow: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _steered_now: int = 0
    _cached: set[tuple[str, str]] = field(default_factory=set)

    def complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Returns status and answer."""
        if self.no_logprobs and body.get("logprobs"):
            return _error("logprobs are not served here")
        spec = json.loads(body.get("vllm_xargs", {}).get("hotwire", "null"))
        refusal = self._refusal(spec) if spec else ""
        if refusal and spec.get("strict"):
            return _error(f"hotwire: {refusal}: it is so (parameter=vllm_xargs)")
        time.sleep(self.slow)
        with self._lock:
            self.requests.append(body)
        request_id = f"cmpl-{uuid.uuid4().hex}"
        shift = self._shift(spec) if spec and not refusal else 0.0
        if spec:
            self._note(request_id, refusal, shift)
        return 200, self._answer(request_id, body, self._leaked(body, shift, spec), spec)

    def _refusal(self, spec: dict[str, Any]) -> str:
        if self.daemon.policy.kill_switch:
            return "KILL_SWITCH"
        if spec["id"] not in self.daemon.vectors:
            return "" if self.serves_unknown else "OTHER" if self.other_reason else (
                "VECTOR_NOT_FOUND")  # fmt: skip
        return "DOSE_EXCEEDED" if abs(spec.get("scale", 1.0)) > self.limit else ""

    def _shift(self, spec: dict[str, Any]) -> float:
        scale = spec.get("scale", 1.0)
        if spec["id"].endswith("zero"):
            return float(self.zero_acts)
        if self.drops or spec.get("layer") == self.dead_layer:
            return 0.0
        noise = random.random() if self.noisy_steering else 0.0
        scale = abs(scale) if self.even else scale
        return noise + (0.5 if self.nothing_acts and not scale else 0.01 * scale)

    def _leaked(self, body: dict[str, Any], shift: float, spec: object) -> float:
        """Returns the shift with what others have to do with it."""
        long = len(body["prompt"].split()) > BLOCK
        if self.leaks_to_mates and body["max_tokens"] > 8 and body.get("logprobs"):
            beside = self._beside(steers=bool(shift))
            shift += beside if not spec else 0
        if self.leaks_to_cache and long and not spec:
            shift += (body["prompt"], "steered") in self._cached
        if self.drifts and len(self.requests) > 40:
            shift += 1.0
        return shift

    def _beside(self, *, steers: bool) -> int:
        """Returns 1 if a request was steered at the same time."""
        with self._lock:
            self._steered_now += steers
        time.sleep(0.05)
        beside = self._steered_now > steers
        time.sleep(0.05)
        with self._lock:
            self._steered_now -= steers
        return int(beside)

    def _note(self, request_id: str, refusal: str, shift: float) -> None:
        outcome = "unsteered" if refusal else "steered"
        receipt = Receipt(request_id=request_id, engine=ENGINE, outcome=outcome, reason=refusal)
        with self._lock:
            if not self.unknown_to_daemon:
                self.daemon.receipts.append(receipt)
            for worker in self.daemon.engines[0].workers:
                self._count(worker)

    def _count(self, worker: WorkerStats) -> None:
        worker.steered_tokens_total += 8 * (worker.node != self.stuck_rank)
        if worker.node == self.failing_rank:
            worker.program_errors_total["REVISION_NOT_STAGED"] += 1

    def _answer(
        self, request_id: str, body: dict[str, Any], shift: float, spec: object
    ) -> dict[str, Any]:
        usage: dict[str, Any] = {"prompt_tokens": len(body["prompt"].split())}
        if not self.no_details:
            usage["prompt_tokens_details"] = {"cached_tokens": self._from_cache(body, spec)}
        tops = _tops(shift, body) if body.get("logprobs") else None
        text = f"{body['prompt']} {shift:.6f}"
        return {
            "id": request_id,
            "usage": usage,
            "choices": [{"text": text, "logprobs": tops}],
        }

    def _from_cache(self, body: dict[str, Any], spec: object) -> int:
        steered = "steered" if spec else "plain"
        if self.serves_steered_from_cache:
            steered = "plain"
        length = len(body["prompt"].split()) // BLOCK * BLOCK
        hit = (body["prompt"], steered) in self._cached
        self._cached.add((body["prompt"], "steered" if spec else "plain"))
        return length if hit else 0


def _tops(shift: float, body: dict[str, Any]) -> dict[str, Any]:
    first = -1.0 - len(body["prompt"]) / 100
    count = body["max_tokens"]
    top = {"token_id:1": first + shift, "token_id:2": first - 0.5, "token_id:3": first - 1.5}
    return {"tokens": ["token_id:1"] * count, "top_logprobs": [top] * count}


def _error(message: str) -> tuple[int, dict[str, Any]]:
    return 400, {"error": {"message": message, "type": "BadRequestError", "code": 400}}


class _Handler(BaseHTTPRequestHandler):
    vllm: ClassVar[FakeVllm]

    def do_GET(self) -> None:
        cards = [{"id": name, "max_model_len": 2048} for name in self.vllm.models]
        self._reply(*self._guarded(200, {"data": cards}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._reply(*self._guarded(*self.vllm.complete(body)))

    def _guarded(self, status: int, form: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        key = self.vllm.key
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            return 401, {"error": "Unauthorized"}
        return status, form

    def _reply(self, status: int, form: dict[str, Any]) -> None:
        raw = json.dumps(form).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class _Server(ThreadingHTTPServer):
    """Its threads end with it, and a client that hangs up is no news."""

    daemon_threads = False

    def handle_error(self, *_: object) -> None:
        """Says nothing of a connection that broke, and all of anything else."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*_)  # type: ignore[arg-type]


@contextlib.contextmanager
def serving(vllm: FakeVllm) -> Iterator[str]:
    """Serves on a free port of the loopback interface; yields the address."""
    handler = type("Handler", (_Handler,), {"vllm": vllm})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
