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
_NAME = "verified-model"


@contextlib.contextmanager
def served(
    model: Path, options: Sequence[str], say: Say, *, quick: bool
) -> Iterator[tuple[Client, Target, Timing]]:
    """Starts both for the model in a directory, and stops them, however it ends.

    options: more for `vllm serve`. Unless quick, one without the plugin runs before and is timed.

    Raises:
        click.UsageError: vLLM is not installed.
        FailedError: One of them does not come up; the message has the end of its log.
    """
    vllm = _program("vllm")
    hotwired = _program("hotwired")
    # Unix sockets want a short path.
    root = Path(tempfile.mkdtemp(prefix="hw-verify-", dir="/tmp"))
    try:
        run_dir, uds = root / "run", root / "http"
        command = [vllm, "serve", str(model), "--served-model-name", _NAME, "--uds", str(uds)]
        command += ["--enable-prompt-tokens-details", *options]
        api = Api(f"unix:{uds}")
        bare = cost.NO_BARE if quick else _timed_bare(command, root, api, say)
        uds.unlink(missing_ok=True)
        say("starting vllm serve and hotwired serve")
        daemon = [hotwired, "serve", "--run-dir", str(run_dir), "--state-dir", str(root / "state")]
        with (
            _process(daemon, root / "hotwired.log", os.environ) as hot,
            _process(command, root / "vllm.log", _armed(run_dir)) as engine,
            Client(f"unix:{run_dir / 'hotwired.sock'}", connect_timeout=5) as client,
        ):
            _wait(lambda: _answers(api), (hot, engine), START_SECONDS)
            _wait(lambda: _converged(client), (hot, engine), _CONVERGE_SECONDS)
            served = api.models()
            target = Target(api, _NAME, tuple(known_nodes(client)), served.get(_NAME))
            yield client, target, bare
            say("stopping both")
    finally:
        shutil.rmtree(root, ignore_errors=True)


def bare_plugins() -> str:
    """Returns the value of VLLM_PLUGINS that leaves all plugins but this one."""
    found = {point.name for point in metadata.entry_points(group=_GROUP)}
    return ",".join(sorted(found - {_PLUGIN}))


def _timed_bare(command: Sequence[str], root: Path, api: Api, say: Say) -> Timing:
    say("starting vllm serve without the plugin, to time it")
    environment = os.environ | {"VLLM_PLUGINS": bare_plugins()}
    with _process(command, root / "bare.log", environment) as engine:
        _wait(lambda: _answers(api), (engine,), START_SECONDS)
        return cost.idle(api, _NAME, quick=False)


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
