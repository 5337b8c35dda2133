"""--watch: what is printed when something changes, and how it ends."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotwire_client import Client
from hotwirectl import text, watching
from hotwirectl.listings import VECTORS
from hotwirectl.vectors import _mark
from hotwired.v1.node_pb2 import NODE_STATE_REJECTED
from hotwired.v1.vector_pb2 import Vector
from tests.fakes.fake_daemon import FakeDaemon, fake_daemon, node, write_vector
from tests.support.ctl import VARIABLES, in_process, start

EVERY = ("--watch", "--interval", "0.1")


@pytest.fixture
def fake(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A running stand-in that hotwirectl finds by its environment."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    with fake_daemon(short_dir) as daemon:
        yield daemon


@pytest.fixture
def joy(tmp_path: Path) -> Path:
    """A vector."""
    return write_vector(tmp_path / "joy.safetensors")


def line(process: subprocess.Popen[str]) -> str:
    """Returns the next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline()


def ended(process: subprocess.Popen[str]) -> int:
    """Sends Ctrl-C and returns the exit code; nothing is said."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=5)
    assert err == ""
    return process.returncode


def test_list_as_objects(fake: FakeDaemon, joy: Path) -> None:
    """What is there, what is new, what has changed and what is gone: an object a line."""
    with Client(fake.address) as client:
        client.register_vector(joy, name="a")
        with start("list", *EVERY, "-o", "json") as process:
            events = [json.loads(line(process))]
            client.register_vector(joy, name="b")
            events.append(json.loads(line(process)))
            fake.state.vectors["a"].disabled = True
            events.append(json.loads(line(process)))
            client.delete_vector("b")
            events.append(json.loads(line(process)))
            assert ended(process) == 0
    assert [(e["type"], e["object"]["name"]) for e in events] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "b"),
    ]
    assert events[2]["object"]["disabled"] is True


def test_list_as_rows(fake: FakeDaemon, joy: Path) -> None:
    """Titles once, in line with the rows that are there at first; what is gone says so."""
    with Client(fake.address) as client:
        client.register_vector(joy, name="a-name-that-is-long")
        client.register_vector(joy, name="b")
        with start("list", *EVERY) as process:
            titles, first, second = (line(process) for _ in range(3))
            assert first.index("enabled") == second.index("enabled") == titles.index("STATE")
            client.delete_vector("b")
            gone = line(process)
            assert (gone.split()[0], gone.index("deleted")) == ("b", titles.index("STATE"))
            assert ended(process) == 0


def test_names_and_documents(fake: FakeDaemon, joy: Path) -> None:
    """A name for each event; a YAML document for each."""
    with Client(fake.address) as client:
        client.register_vector(joy)
    for output, expected in (("name", ["vector/joy\n"]), ("yaml", ["---\n", "type: ADDED\n"])):
        with start("list", *EVERY, "-o", output) as process:
            assert [line(process) for _ in expected] == expected
            assert ended(process) == 0


def test_nodes(fake: FakeDaemon) -> None:
    """A node that is only seen again has not changed; one whose state is another has."""
    fake.state.nodes = [node("i/engine-0-0-0"), node("j/engine-0-0-0")]
    with start("nodes", "i", *EVERY) as process:
        assert line(process).startswith("NAME")
        assert "converged" in line(process)
        looks = len(fake.state.calls)
        while len(fake.state.calls) < looks + 2:
            fake.state.nodes[0].last_seen_time.GetCurrentTime()
        fake.state.nodes[0].state = NODE_STATE_REJECTED
        assert "rejected" in line(process)
        assert ended(process) == 0


def test_show_and_policy_show(fake: FakeDaemon, joy: Path) -> None:
    """The whole block again, after an empty line; a vector may go and come back."""
    with Client(fake.address) as client:
        client.register_vector(joy)
        with start("show", "joy", *EVERY) as process:
            while line(process) != "1       5\n":
                pass
            client.delete_vector("joy")
            assert [line(process), line(process)] == ["\n", "vector/joy deleted\n"]
            client.register_vector(joy)
            assert [line(process), line(process).split()[0]] == ["\n", "name"]
            assert ended(process) == 0
        with start("policy", "show", *EVERY) as process:
            assert line(process).split()[:2] == ["kill_switch", "off"]
            while line(process).split()[0] != "updated":
                pass
            client.delete_vector("joy")  # a generation, and no other policy
            client.set_kill_switch(engaged=True)
            assert [line(process), line(process).split()[1]] == ["\n", "on"]
            assert ended(process) == 0


@pytest.mark.parametrize("command", ["show nobody", "nodes nobody"])
def test_what_is_not_there_cannot_be_watched(
    command: str, fake: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends at once as it does without --watch."""
    assert in_process(capsys)(*command.split(), *EVERY).code == 69


def test_an_empty_list_says_so(fake: FakeDaemon) -> None:
    """To people only, on stderr."""
    with start("list", *EVERY) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "note: no vectors are registered\n"
        assert ended(process) == 0


def test_a_reader_that_has_enough_ends_it_though_nothing_changes(
    fake: FakeDaemon, joy: Path
) -> None:
    """`hotwirectl list --watch | head -2` ends at once, and quietly."""
    with Client(fake.address) as client:
        client.register_vector(joy)
    with start("list", "--watch", "--interval", "3600") as process:
        assert line(process).startswith("NAME")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(5) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_daemon_that_stops_ends_it(fake: FakeDaemon, joy: Path) -> None:
    """With the error that any command would end with."""
    with Client(fake.address) as client:
        client.register_vector(joy)
    with start("list", *EVERY, "--timeout", "0.5") as process:
        assert line(process).startswith("NAME")
        fake.stop()
        _, err = process.communicate(timeout=10)
    assert process.returncode in {68, 78}
    assert err.startswith("error: ")


def test_columns_only_grow() -> None:
    """A later row that is wider does not cut, and one that is narrower stays in line."""
    columns = text.Columns(["A", "B"])
    assert columns.head() == "A   B"
    assert columns.lines([["long", "x"]]) == ["long   x"]
    assert columns.lines([["s", "y"]]) == ["s      y"]


def test_a_vector_that_has_expired_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the daemon says the same of it."""
    vector = Vector(name="joy")
    vector.expire_time.FromSeconds(2000)
    monkeypatch.setattr("time.time_ns", lambda: 1000 * 10**9)
    before = _mark(vector)
    assert _mark(vector) == before
    monkeypatch.setattr("time.time_ns", lambda: 3000 * 10**9)
    assert _mark(vector) != before
    rows = watching.Rows[Vector](VECTORS, wide=False)
    assert "expired" in rows.text(watching.Event("MODIFIED", "vector/joy", vector))
