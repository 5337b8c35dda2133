"""The HTTP side of vLLM without a model: the plugin's own frontend and engine decide everything.

It takes the requests that the pages show, reads them as vLLM does, and answers with one of two
texts: one for steered requests and one for all others.
"""

import json
import threading
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hotwire_plugin import spec
from hotwire_plugin.admission import Admission, Prompt
from hotwire_plugin.engine_role import EngineRole
from hotwire_plugin.program import PROGRAM_KEY, SPEC_KEY
from hotwire_plugin.shape import ModelShape
from hotwire_plugin.snapshot import SnapshotHolder

MODEL = "smollm2-135m-instruct"
LAYERS = 30
SLOTS = 64
PLAIN, STEERED = " cloudy, with a little rain.", " bright, and I could not stop smiling."
PROMPT = Prompt(8, tuple(range(8)))


@dataclass
class Engine:
    """An engine and a frontend that have a snapshot and no model.

    specs: what was asked for, as it was read. disarmed: why it cannot steer.
    """

    engine_holder: SnapshotHolder
    frontend_holder: SnapshotHolder
    disarmed: str = ""
    specs: list[spec.Spec] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = ModelShape(LAYERS, slots=SLOTS)
        self.frontend = Admission(self.frontend_holder, shape, lambda: self.disarmed or None)
        admission = Admission(self.engine_holder, shape, lambda: self.disarmed or None)
        self.role = EngineRole(admission, self.engine_holder)

    def answer(self, body: dict[str, Any], response_id: str) -> tuple[int, str]:
        """Serves a request; returns the HTTP status, and the text or the message."""
        assert body["model"] == MODEL, body
        asked = body.get("vllm_xargs") or {}
        if SPEC_KEY in asked:
            assert isinstance(asked[SPEC_KEY], str), "vllm_xargs takes text, not objects"
            self.specs.append(spec.parse(asked[SPEC_KEY]))
        if refusal := self.frontend.refuse(asked, PROMPT):
            return 400, f"hotwire: {refusal.reason}: {refusal.message} (parameter=vllm_xargs)"
        request_id = f"{response_id}-0-{uuid.uuid4().hex[:8]}"
        extra_args = self.role.admit(dict(asked), request_id, PROMPT) or {}
        if not body.get("never_ends"):
            self.role.finish(request_id, PROMPT.length + int(body.get("max_tokens", 16)) - 1)
        return 200, STEERED if PROGRAM_KEY in extra_args else PLAIN


class StandIn(ThreadingHTTPServer):
    """Serves an Engine as `vllm serve` would, on a port of the loopback interface.

    faults: what went wrong in answering; whoever uses it looks there at the end.
    """

    daemon_threads = True

    def __init__(self, engine: Engine) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.engine = engine
        self.faults: list[str] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stops."""
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        self._send(200 if self.path == "/health" else 404, b"")

    def do_POST(self) -> None:
        chat = {"/v1/completions": False, "/v1/chat/completions": True}[self.path]
        prefix = "chatcmpl" if chat else "cmpl"
        response_id = f"{prefix}-{self.headers.get('X-Request-Id') or uuid.uuid4().hex}"
        try:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.headers["Content-Type"] == "application/json"
            assert ("messages" if chat else "prompt") in body
            status, text = self.server.engine.answer(body, response_id)
        except Exception as error:
            self.server.faults.append(f"{type(error).__name__}: {error}")
            raise
        form = _form(response_id, status, text, chat=chat)
        self._send(status, json.dumps(form, separators=(",", ":")).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


def _form(response_id: str, status: int, text: str, *, chat: bool) -> dict[str, Any]:
    if status != 200:
        error = {"message": text, "type": "BadRequestError", "param": "vllm_xargs", "code": status}
        return {"error": error}
    content = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    choice = {"index": 0, "finish_reason": "length", **content}
    kind = "chat.completion" if chat else "text_completion"
    return {"id": response_id, "object": kind, "created": 0, "model": MODEL, "choices": [choice]}
