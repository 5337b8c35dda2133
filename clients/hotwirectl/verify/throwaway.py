"""A `vllm serve` and a `hotwired serve` of verify's own, in a directory of their own."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import click

from hotwire_client import Client, HotwireError, NodeState
from hotwirectl.verify import cost
from hotwirectl.verify.api import Api, ApiError
from hotwirectl.verify.results import FailedError, Timing
from hotwirectl.verify.run import Say
from hotwirectl.verify.target import Target, known_nodes

START_SECONDS = 1800.0
_CONVERGE_SECONDS = 60.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.2
_GROUP, _PLUGIN = "vllm.general_plugins", "hotwire_plugin"


@dataclass(frozen=True, slots=True)
class Throwaway:
    """What is needed to start servers for one model, one after the other.

    name: what the model is served as. command: `vllm serve` and its options, without a socket.
    root: a directory for all that they leave.
    """

    name: str
    command: Sequence[str]
    hotwired: str
    root: Path
    say: Say

    @contextlib.contextmanager
    def armed(self) -> Iterator[tuple[Client, Target]]:
        """Starts vLLM with the plugin, and a daemon; stops both, however it ends.

        Raises:
            FailedError: One of them does not come up; the message has the end of its log.
        """
        self.say("starting vllm serve and hotwired serve")
        run_dir, state_dir = self.root / "run", self.root / "state"
        daemon = [self.hotwired, "serve", "--run-dir", str(run_dir), "--state-dir", str(state_dir)]
        with (
            _process(daemon, self.root / "hotwired.log", os.environ) as hot,
            self._vllm("vllm.log", _armed(run_dir)) as (api, engine),
            Client(f"unix:{run_dir / 'hotwired.sock'}", connect_timeout=5) as client,
        ):
            _wait(lambda: _answers(api), (hot, engine), START_SECONDS)
            _wait(lambda: _converged(client), (hot, engine), _CONVERGE_SECONDS)
            length = api.models().get(self.name)
            yield client, Target(api, self.name, tuple(known_nodes(client)), length)

    def bare(self, when: str) -> Timing:
        """Starts vLLM without the plugin, times it and stops it; when: before or after.

        Raises:
            FailedError: It does not come up.
        """
        self.say("starting vllm serve without the plugin, to time it")
        environment = os.environ | {"VLLM_PLUGINS": bare_plugins()}
        with self._vllm(f"bare-{when}.log", environment) as (api, engine):
            _wait(lambda: _answers(api), (engine,), START_SECONDS)
            return cost.bare(api, self.name, when)

    @contextlib.contextmanager
    def _vllm(self, log: str, environment: Mapping[str, str]) -> Iterator[tuple[Api, "_Process"]]:
        uds = self.root / "http"
        uds.unlink(missing_ok=True)  # vLLM does not clear away the one before
        command = [*self.command, "--uds", str(uds)]
        with _process(command, self.root / log, environment) as process:
            yield Api(f"unix:{uds}"), process


@contextlib.contextmanager
def throwaway(model: Path, options: Sequence[str], say: Say) -> Iterator[Throwaway]:
    """Makes a directory for servers of the model in a directory, and removes it afterwards.

    options: more for `vllm serve`.

    Raises:
        click.UsageError: vLLM is not installed.
    """
    vllm, hotwired = _program("vllm"), _program("hotwired")
    name = model.resolve().name
    command = [vllm, "serve", str(model), "--served-model-name", name]
    command += ["--enable-prompt-tokens-details", *options]
    # Unix sockets want a short path.
    root = Path(tempfile.mkdtemp(prefix="hw-verify-", dir="/tmp"))
    try:
        yield Throwaway(name, command, hotwired, root, say)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def bare_plugins() -> str:
    """Returns the value of VLLM_PLUGINS that leaves all plugins but this one."""
    found = {point.name for point in metadata.entry_points(group=_GROUP)}
    return ",".join(sorted(found - {_PLUGIN}))


def _armed(run_dir: Path) -> Mapping[str, str]:
    """Returns the environment with all plugins, and nothing of another daemon's."""
    kept = {k: v for k, v in os.environ.items() if k not in {"VLLM_PLUGINS", "HOTWIRE_VECTORS"}}
    return kept | {"HOTWIRE_RUN_DIR": str(run_dir)}


def _program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise click.UsageError(
            f"there is no `{name}` here to start: run this in the environment that has it, or "
            "verify a running server"
        )
    return found


class _Process:
    """A command in a session of its own, and its log."""

    def __init__(self, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self.popen, self.log = popen, log

    def check(self) -> None:
        """Raises FailedError if it has ended."""
        if self.popen.poll() is not None:
            raise FailedError(f"{self.log.stem} ended with {self.popen.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        """Returns the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def stop(self) -> None:
        """Asks it to end, and kills what is left of its session after that."""
        self.popen.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(_STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


@contextlib.contextmanager
def _process(
    command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[_Process]:
    with log.open("wb") as out:
        popen = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    process = _Process(popen, log)
    try:
        yield process
    finally:
        process.stop()


def _wait(ready: Callable[[], bool], processes: Sequence[_Process], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not ready():
        for process in processes:
            process.check()
        if time.monotonic() > end:
            late = processes[-1]
            raise FailedError(f"{late.log.stem} is not ready after {seconds:g} s:\n{late.tail()}")
        time.sleep(_POLL_SECONDS)


def _answers(api: Api) -> bool:
    try:
        return bool(api.models())
    except ApiError:
        return False


def _converged(client: Client) -> bool:
    try:
        nodes = client.list_nodes().nodes
    except HotwireError:
        return False
    return bool(nodes) and all(n.state == NodeState.NODE_STATE_CONVERGED for n in nodes)
