"""Runs the whole path once, for real: `make demo`.

Starts vLLM and the daemon, makes a vector, registers it, and checks through the OpenAI API what
steering, the kill switch and a dose limit do. Ends with 0 only if every check passed; whatever was
started is stopped, however it ends.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

from bench.demo import control_checks, report, servers, steering_checks
from bench.demo.api import Api
from bench.demo.control import Control
from bench.demo.processes import Process, ProcessDiedError, wait_until
from bench.demo.settings import Places, places
from bench.demo.stage import Check, Stage

SERVER_SECONDS = 420.0
NODES_SECONDS = 30.0
GONE_SECONDS = 10.0
CHECKS: Sequence[Callable[[Stage], Check]] = (
    control_checks.register,
    steering_checks.meaning,
    steering_checks.readable,
    steering_checks.batchmates,
    steering_checks.prefix_cache,
    control_checks.replace,
    control_checks.kill_switch,
    control_checks.dose_limit,
    control_checks.unknown_vector,
    control_checks.counted,
)


class Progress:
    """Prints lines with the seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def seconds(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._start

    def __call__(self, line: str) -> None:
        print(f"[{self.seconds():5.1f} s] {line}", flush=True)


def main() -> int:
    """Runs the demo; returns the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    say = Progress()
    run_dir = Path(tempfile.mkdtemp(prefix="hotwire-demo-", dir="/tmp"))
    where = places(run_dir)
    shutil.rmtree(where.out, ignore_errors=True)
    checks: list[Check] = []
    try:
        _run(where, say, checks)
    except (ProcessDiedError, TimeoutError, subprocess.CalledProcessError) as error:
        checks.append(Check("the demo ran to its end", passed=False, seen=str(error)))
    except KeyboardInterrupt:
        checks.append(Check("the demo ran to its end", passed=False, seen="interrupted"))
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    report.write(where.out / "report.json", checks, say.seconds())
    print(f"\n{report.table(checks)}\n")
    failed = sum(not check.passed for check in checks)
    say(f"{len(checks) - failed} of {len(checks)} checks passed; .demo/report.json has the figures")
    return 1 if failed else 0


def _run(where: Places, say: Progress, checks: list[Check]) -> None:
    port = servers.free_port()
    api, control = Api(f"http://127.0.0.1:{port}"), Control(where.run_dir)
    engine, daemon = servers.vllm(where, port), servers.hotwired(where)
    with ExitStack() as stack:
        say("starting vllm serve and hotwired serve (logs in .demo/logs)")
        stack.enter_context(daemon)
        stack.enter_context(engine)
        say("making the contrast vector")
        _make_vector(where)
        say("waiting for vLLM to load and compile the model")
        wait_until(api.healthy, [engine, daemon], SERVER_SECONDS, "vllm serve did not get ready")
        checks.append(_nodes(control, [engine, daemon]))
        stage = Stage(api, control, where)
        for check in CHECKS:
            checks.append(_one(check, stage))
            say(f"{'passed' if checks[-1].passed else 'FAILED'}: {checks[-1].name}")
        say("stopping vLLM, then the daemon")
        engine.stop()
        left = _nodes_left(control, daemon)
    checks.append(_stopped([engine, daemon], left))


def _make_vector(where: Places) -> None:
    command = [sys.executable, "-m", "bench.demo.contrast", str(where.model), str(where.out)]
    # One thread: vLLM is compiling meanwhile, and two cores may be all there are.
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment)


def _one(check: Callable[[Stage], Check], stage: Stage) -> Check:
    try:
        return check(stage)
    except Exception as error:  # noqa: BLE001 - one check's failure is a result, not the demo's end
        seen = f"{type(error).__name__}: {error}"
        return Check(check.__name__.replace("_", " "), passed=False, seen=seen)


def _nodes(control: Control, processes: Sequence[Process]) -> Check:
    """Every role of vLLM's processes is known to the daemon, and up to date."""
    seconds = wait_until(control.converged, processes, NODES_SECONDS, "the nodes did not converge")
    nodes = control("nodes")["nodes"]
    roles = sorted({role.removeprefix("NODE_ROLE_").lower() for n in nodes for role in n["roles"]})
    passed = roles == ["engine", "frontend", "worker"]
    seen = f"{len(nodes)} processes: {', '.join(roles)}"
    figures = {"seconds": round(seconds, 2), "nodes": [n["name"] for n in nodes]}
    return Check("the daemon found vLLM's processes", passed, seen, figures)


def _nodes_left(control: Control, daemon: Process) -> list[str]:
    """The nodes that the daemon still lists some seconds after vLLM ended."""
    names: list[str] = []

    def none() -> bool:
        names[:] = [node["name"] for node in control("nodes")["nodes"]]
        return not names

    with suppress(TimeoutError):
        wait_until(none, [daemon], GONE_SECONDS, "nodes are left")
    return names


def _stopped(processes: Sequence[Process], left: Sequence[str]) -> Check:
    """Both ended when asked to, and the daemon saw vLLM go."""
    codes = {process.name: process.exit_code for process in processes}
    killed = [process.name for process in processes if process.killed]
    seen = ", ".join(f"{name} ended with {code}" for name, code in codes.items())
    figures = {"exit_codes": codes, "killed": killed, "nodes_left": list(left)}
    return Check("both stop when asked", not killed and not left, seen, figures)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
