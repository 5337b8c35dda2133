"""The true command line and the true daemon, each a process of its own, with two nodes."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hotwire_client import Client, NodeState
from hotwired import errors
from tests.fakes.fake_daemon import RealDaemon, real_daemon, write_vector
from tests.fakes.fake_node import FakeNode, FakeServer
from tests.support import ctl

ROWS = [[3.0, 4.0, 0, 0, 0, 0, 0, 0], [0, 2.0, 0, 0, 0, 0, 0, 0]]


@dataclass
class Live:
    """A running daemon with an engine and a worker."""

    daemon: RealDaemon
    engine: FakeNode
    worker: FakeNode

    def ctl(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Runs hotwirectl to its end."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HOTWIRE")}
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment |= {"HOTWIRE_CONFIG": "/nonexistent/hotwire.toml"}
        return subprocess.run(
            [sys.executable, "-m", "hotwirectl", *map(str, arguments)],
            env=environment | {"HOTWIRE_SERVER": self.daemon.address},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def json(self, *arguments: object) -> Any:
        """Runs hotwirectl with -o json and returns what it printed."""
        result = self.ctl(*arguments, "-o", "json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The daemon, with both nodes converged."""
    directory = tmp_path_factory.mktemp("live")
    engine = FakeNode(instance_id="i", roles=("engine",))
    worker = FakeNode(instance_id="i", roles=("worker",))
    nodes = directory / "run" / "nodes" / "i"
    servers = [
        FakeServer(engine, nodes / "engine-0-0-0.sock"),
        FakeServer(worker, nodes / "worker-0-0-0.sock"),
    ]
    with real_daemon(directory) as daemon:
        for server in servers:
            server.start()
        yield Live(daemon, engine, worker)
        for server in servers:
            server.stop()


@pytest.fixture
def joy(tmp_path: Path) -> Path:
    """A vector of two layers that fits the nodes."""
    return write_vector(tmp_path / "joy.safetensors", ROWS)


def settled(live: Live) -> None:
    """Waits until the daemon has found both nodes and brought them to its generation."""
    with Client(live.daemon.address) as client:
        for _ in range(100):
            states = [node.state for node in client.list_nodes().nodes]
            if states == [NodeState.NODE_STATE_CONVERGED] * 2:
                return
            time.sleep(0.05)
    raise AssertionError(states)


def test_the_life_of_a_vector(live: Live, joy: Path) -> None:
    """register, list, show, stats, nodes, off, on, policy, delete: each does what it says."""
    settled(live)
    made = live.ctl("register", joy)
    assert re.fullmatch(
        r"vector/joy registered \(revision [0-9a-f]{8}, generation \d+, 2/2 nodes\)\n", made.stdout
    )
    assert (made.returncode, made.stderr) == (0, "")
    revision = live.json("show", "joy")["revision"]
    assert set(live.worker.held) == {revision}
    assert live.engine.snapshot is not None
    assert [v.name for v in live.engine.snapshot.vectors] == ["joy"]
    assert [v["name"] for v in live.json("list")["vectors"]] == ["joy"]
    states = {n["name"]: n["state"] for n in live.json("nodes")["nodes"]}
    assert states == {
        "i/engine-0-0-0": "NODE_STATE_CONVERGED",
        "i/worker-0-0-0": "NODE_STATE_CONVERGED",
    }
    stats = live.json("stats")
    assert (stats["vectors"], stats["converged"]) == ("1", True)
    assert [e["engine"] for e in stats["engines"]] == ["i/0"]
    assert live.ctl("off").stdout.startswith("steering off (generation ")
    assert live.engine.snapshot.policy.kill_switch
    assert live.ctl("on").stdout.startswith("steering on (generation ")
    assert not live.engine.snapshot.policy.kill_switch
    assert live.ctl("policy", "set", "--max-relative-dose", "0.5").returncode == 0
    assert live.engine.snapshot.policy.max_relative_dose == 0.5
    assert live.ctl("delete", "joy", "--revision", revision[:8]).returncode == 0
    assert list(live.engine.snapshot.vectors) == []


def test_a_watch_sees_what_others_do(live: Live, joy: Path) -> None:
    """Each change of the daemon's state is an object, whoever made it; Ctrl-C ends it with 0."""
    settled(live)
    wide = live.ctl("nodes", "i", "-o", "wide").stdout.splitlines()
    assert wide[0].split()[-3:] == ["DP/PP/TP", "PID", "AGE"]
    events = []
    arguments = ["--server", live.daemon.address, "list", "--watch", "--interval", "0.1"]
    with ctl.start(*arguments, "-o", "json") as process:
        assert process.stdout is not None
        for command in (
            ["register", joy, "--name", "seen"],
            ["vector", "set", "seen", "--disabled"],
            ["delete", "seen"],
        ):
            assert live.ctl(*command).returncode == 0
            events.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 0
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert {event["object"]["name"] for event in events} == {"seen"}


def test_refusals_end_with_their_status(live: Live, joy: Path, tmp_path: Path) -> None:
    """67, 69, 73 and 74 come from the daemon, with a reason, and change nothing."""
    settled(live)
    wide = write_vector(tmp_path / "wide.safetensors", [[1.0] * 9])
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(joy.read_bytes()[:-1])
    for arguments, code, reason in (
        (("register", wide), 67, "VECTOR_SHAPE_MISMATCH"),
        (("register", broken), 67, "VECTOR_FORMAT_INVALID"),
        (("register", joy, "--name", "No Name"), 67, "NAME_INVALID"),
        (("show", "nobody"), 69, "VECTOR_NOT_FOUND"),
    ):
        result = live.ctl(*arguments)
        assert (result.returncode, result.stdout) == (code, ""), result.stderr
        assert f"({reason})" in result.stderr.splitlines()[0]
    live.worker.refuse["Stage"] = lambda: errors.VectorNotFinite("layer 0 overflows")
    try:
        result = live.ctl("register", joy)
    finally:
        live.worker.refuse.clear()
    assert result.returncode == 73
    assert "(NODE_REJECTED)" in result.stderr
    assert "i/worker-0-0-0" in result.stderr
    with Client(live.daemon.address) as client:
        assert client.list_vectors() == []


def test_a_dry_run_reaches_the_workers_and_stays_nowhere(live: Live, joy: Path) -> None:
    """--dry-run is checked by the worker, which keeps nothing of it."""
    settled(live)
    live.worker.calls.clear()
    result = live.ctl("register", joy, "--name", "dry", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "vector/dry valid (" in result.stdout
    assert "Stage" in live.worker.calls
    assert live.worker.held == {}
    assert live.ctl("show", "dry").returncode == 69


def test_an_engine_that_lags_makes_it_3(live: Live, joy: Path) -> None:
    """A change that is stored but not in use everywhere in time ends with 3 and converges later."""
    settled(live)
    live.engine.delay["Commit"] = 3.0
    try:
        result = live.ctl("register", joy, "--name", "late", "--timeout", "1")
    finally:
        live.engine.delay.clear()
    assert result.returncode == 3, result.stderr
    assert "1/2 nodes" in result.stdout
    assert "(NOT_CONVERGED)" in result.stderr
    assert live.ctl("delete", "late").returncode == 0


def test_a_daemon_that_hangs_ends_with_68(live: Live) -> None:
    """A stopped process keeps its socket, so the deadline is what ends the command."""
    live.daemon.process.send_signal(signal.SIGSTOP)
    try:
        result = live.ctl("health", "--timeout", "0.5")
    finally:
        live.daemon.process.send_signal(signal.SIGCONT)
    assert (result.returncode, result.stdout) == (68, "")
    assert "did not answer within 0.5 s (DEADLINE_EXCEEDED)" in result.stderr
    assert live.ctl("health").returncode == 0


def test_a_daemon_that_has_stopped_ends_with_78(
    live: Live, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What worked while the daemon ran says that nobody answers once it has stopped."""
    with real_daemon(tmp_path_factory.mktemp("down")) as daemon:
        other = dataclasses.replace(live, daemon=daemon)
        assert other.ctl("health").returncode == 0
    for command in ("list", "off"):
        result = other.ctl(command, "--timeout", "0.5")
        assert (result.returncode, result.stdout) == (78, "")
        assert "(DAEMON_UNREACHABLE)" in result.stderr
