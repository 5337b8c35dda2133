"""`hotwirectl wait`: 0 when every node is there, 3 when not in time."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotwire_client import Client, ListNodesResponse, NodeState
from hotwirectl.main import run
from tests.fakes.fake_daemon import FakeDaemon, Fault, fake_daemon, node


@pytest.fixture
def fake(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A stand-in at generation 7 with two nodes that use it."""
    with fake_daemon(short_dir) as daemon:
        monkeypatch.setenv("HOTWIRE_SERVER", daemon.address)
        daemon.state.generation = 7
        daemon.state.nodes = [node("i/engine-0-0-0"), node("i/worker-0-0-0")]
        yield daemon


@pytest.mark.parametrize("options", [(), ("--generation", "7"), ("--nodes", "2")])
def test_all_are_there(
    fake: FakeDaemon, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """At once, and it says how many."""
    assert run(["wait", *options]) == 0
    assert capsys.readouterr().out == "generation 7 is in use on 2 nodes\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--generation", "8"), "generation 7 is the newest, 8 is waited for"),
        (("--nodes", "3"), "2 nodes are known, 3 are waited for"),
    ],
)
def test_more_is_waited_for(
    fake: FakeDaemon, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    """A later generation, or more nodes, than there are."""
    assert run(["wait", "--timeout", "1.5", *options]) == 3
    assert f"error: {message} (NOT_CONVERGED)" in capsys.readouterr().err


def test_no_node_is_not_all_nodes(fake: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    """An engine that is still loading has no socket yet."""
    fake.state.nodes = []
    assert run(["wait", "--timeout", "1.5"]) == 3
    assert "0 nodes are known, 1 are waited for" in capsys.readouterr().err


@pytest.mark.parametrize("state", [s for s in NodeState.values() if s > 1])
def test_any_other_state_is_not_there(
    fake: FakeDaemon, capsys: pytest.CaptureFixture[str], state: int
) -> None:
    """The error names the node and says what it says."""
    fake.state.nodes[1] = node("i/worker-0-0-0", state, detail="because")
    assert run(["wait", "--timeout", "1.5", "-o", "json"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    error = json.loads(captured.err)
    assert error["message"] == "1 of 2 nodes use generation 7"
    assert error["metadata"] == {"i/worker-0-0-0": "because"}
    assert error["exit_code"] == 3


def test_it_ends_as_soon_as_the_last_one_is_there(
    fake: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """It looks again until the time is up."""
    fake.state.nodes[1] = node("i/worker-0-0-0", NodeState.NODE_STATE_RECONCILING)
    there = [node("i/engine-0-0-0"), node("i/worker-0-0-0")]
    timer = threading.Timer(0.4, lambda: setattr(fake.state, "nodes", there))
    timer.start()
    assert run(["wait", "--timeout", "20"]) == 0
    timer.join()
    assert capsys.readouterr().out == "generation 7 is in use on 2 nodes\n"


def test_a_last_answer_that_is_late_is_not_a_daemon_that_hangs(
    fake: FakeDaemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with 3 by what was known before, not with 68."""
    ask, asked = Client.list_nodes, []

    def late(client: Client, *, timeout: float | None = None) -> ListNodesResponse:
        asked.append(timeout)
        if len(asked) == 2:
            fake.state.faults["ListNodes"] = Fault(delay_s=5)
        return ask(client, timeout=timeout)

    monkeypatch.setattr(Client, "list_nodes", late)
    assert run(["wait", "--timeout", "2", "--generation", "8"]) == 3
    assert "8 is waited for (NOT_CONVERGED)" in capsys.readouterr().err
    assert len(asked) == 2


def test_a_daemon_that_is_away_is_78(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is not the same as nodes that are late."""
    monkeypatch.setenv("HOTWIRE_SERVER", f"unix:{short_dir}/nobody.sock")
    assert run(["wait", "--timeout", "1.5"]) == 78
    assert "DAEMON_UNREACHABLE" in capsys.readouterr().err
