"""`vllm serve` and `hotwired serve` as an operator runs them: processes that can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx

from hotwire_client import Client, HotwireError
from hotwired.v1.node_pb2 import NODE_STATE_CONVERGED, Node
from tests.support.engine_process import ROOT, environment, kill_group

BIN = Path(sys.executable).parent
MODEL_NAME = "smollm2"


@dataclass
class Reply:
    """An HTTP answer. text: the completion, or the error's message. Equal if those are.

    request_id: that of the response; empty for an error. headers: those of hotwired, by the rest
    of their names.
    """

    status: int
    text: str
    request_id: str = field(default="", compare=False)
    headers: dict[str, str] = field(default_factory=dict, compare=False)


class Server:
    """A command in a process group of its own, with a log; it can be started again."""

    def __init__(self, command: list[str], run_dir: Path, log: Path) -> None:
        self._command, self._run_dir, self._log = command, run_dir, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Start it and wait until ready() says so."""
        env = environment(self._run_dir) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                env=env,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        end = time.monotonic() + timeout_s
        while not ready():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self._command[0]} is not up:\n{self.log()[-3000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill it, and all that it started, with SIGKILL; nothing if it does not run."""
        if self._process is not None:
            kill_group(self._process)
            self._process = None

    def log(self) -> str:
        """Return what it has printed, over all starts."""
        return self._log.read_text(errors="replace")


@dataclass
class World:
    """One host: a vLLM and a daemon that share a run directory.

    root: a directory with a short path. before_daemon: set by who starts vLLM first.
    """

    root: Path
    model: str
    start_s: float
    uds: Path = field(init=False)
    vllm: Server = field(init=False)
    daemon: Server = field(init=False)
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.run_dir = self.root / "run"
        self.run_dir.mkdir(mode=0o700)
        self.uds = self.root / "http.sock"
        self.vllm = Server(_vllm(self.model, self.uds), self.run_dir, self.root / "vllm.log")
        self.daemon = Server(_hotwired(self.run_dir, self.root), self.run_dir, self.root / "log")
        self.client = Client(f"unix:{self.run_dir / 'hotwired.sock'}", connect_timeout=0.2)
        transport = httpx.HTTPTransport(uds=str(self.uds))
        self.http = httpx.Client(transport=transport, base_url="http://vllm", timeout=120)

    def start_vllm(self) -> None:
        """Start `vllm serve` and wait until it serves."""
        # vLLM does not clear away the socket of one that was killed.
        self.uds.unlink(missing_ok=True)
        self.vllm.start(self._serves, self.start_s)

    def start_daemon(self) -> None:
        """Start `hotwired serve` and wait until it answers."""
        self.daemon.start(self._answers, 30)

    def close(self) -> None:
        """Kill both."""
        self.client.close()
        self.http.close()
        self.vllm.kill()
        self.daemon.kill()

    def complete(self, prompt: str, spec: object = None, **more: Any) -> Reply:
        """Ask for a greedy completion."""
        body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, **more}
        return self._post("/v1/completions", body | xargs(spec))

    def chat(self, text: str, spec: object = None) -> Reply:
        """Ask for a greedy answer to one message."""
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages, "max_tokens": 24, "temperature": 0}
        return self._post("/v1/chat/completions", body | xargs(spec))

    def leave_early(self, prompt: str, spec: object) -> None:
        """Ask for a long stream, and hang up after its first piece."""
        body = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": 400, "stream": True}
        body |= {"ignore_eos": True} | xargs(spec)
        with self.http.stream("POST", "/v1/completions", json=body) as response:
            next(response.iter_lines())

    def nodes(self) -> list[Node]:
        """Return the nodes the daemon knows; none if it does not answer."""
        try:
            return list(self.client.list_nodes().nodes)
        except (HotwireError, grpc.RpcError):
            return []

    def converged(self) -> bool:
        """Whether a frontend, an engine and a worker are there, all as desired."""
        nodes = self.nodes()
        return len(nodes) == 3 and all(node.state == NODE_STATE_CONVERGED for node in nodes)

    def _post(self, path: str, body: dict[str, Any]) -> Reply:
        response = self.http.post(path, json={"model": MODEL_NAME, **body})
        answer = response.json()
        if response.status_code != httpx.codes.OK:
            return Reply(response.status_code, json.dumps(answer), headers=_ours(response))
        choice = answer["choices"][0]
        text = choice.get("text") or choice["message"]["content"]
        return Reply(200, text, answer["id"], _ours(response))

    def _serves(self) -> bool:
        try:
            return self.http.get("/health").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _answers(self) -> bool:
        try:
            return self.client.get_policy() is not None
        except (HotwireError, grpc.RpcError):
            return False


def _ours(response: httpx.Response) -> dict[str, str]:
    ours = "x-hotwire-"
    found = response.headers.items()
    return {name.removeprefix(ours): value for name, value in found if name.startswith(ours)}


def xargs(spec: object) -> dict[str, Any]:
    """Return the part of a request's body that asks for steering."""
    if spec is None:
        return {}
    return {"vllm_xargs": {"hotwire": spec if isinstance(spec, str) else json.dumps(spec)}}


def _vllm(model: str, uds: Path) -> list[str]:
    options = {
        "--served-model-name": MODEL_NAME,
        "--uds": str(uds),
        "--dtype": "float32",
        "--max-model-len": "512",
        "--max-num-seqs": "16",
        "--block-size": "32",
        "--middleware": "hotwire_plugin.http.ReceiptHeaders",
    }
    flat = [word for option in options.items() for word in option]
    return [str(BIN / "vllm"), "serve", model, "--enforce-eager", *flat]


def _hotwired(run_dir: Path, root: Path) -> list[str]:
    places = ["--run-dir", str(run_dir), "--state-dir", str(root / "state")]
    return [str(BIN / "hotwired"), "serve", *places]
