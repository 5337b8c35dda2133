"""The commands for flags and canaries, against the stand-in and against the true daemon."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hotwire_client import Canary, CanaryArm, CanaryCount, Client, EngineStats, Stats, Vector
from hotwirectl import text, views
from hotwirectl.main import run
from hotwirectl.terms import parse_percent, parse_ttl
from tests.fakes.fake_daemon import fake_daemon, real_daemon, reset, write_vector


@pytest.fixture(scope="module", params=["stand-in", "daemon"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The address of a daemon, either of the two."""
    make = fake_daemon if request.param == "stand-in" else real_daemon
    with make(tmp_path_factory.mktemp("d")) as daemon:
        yield daemon.address


@pytest.fixture
def client(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of an empty daemon, which hotwirectl calls, too."""
    monkeypatch.setenv("HOTWIRE_SERVER", address)
    reset(address)
    with Client(address) as client:
        yield client


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A vector and another of its shape."""
    return (
        write_vector(tmp_path / "joy.safetensors"),
        write_vector(tmp_path / "new.safetensors", [[9.0, 2.0], [3.0, 4.0]]),
    )


Out = pytest.CaptureFixture[str]


def test_a_vector_with_a_ttl_and_a_canary(
    client: Client, files: tuple[Path, Path], capsys: Out
) -> None:
    """What register and show say; promote makes it the name's own."""
    joy, new = files
    assert run(["register", str(joy), "--ttl", "24h"]) == 0
    assert run(["register", str(new), "--name", "joy", "--canary", "5"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    vector = client.get_vector("joy")
    canary = vector.canary.revision
    assert f"canary {canary[:8]} 5%" in line
    assert f"revision {vector.revision[:8]}" in line
    assert run(["list"]) == 0
    titles, row = (re.split(r" {2,}", line) for line in capsys.readouterr().out.splitlines())
    shown = dict(zip(titles, row, strict=True))
    assert (shown["STATE"], shown["CANARY"]) == ("enabled", f"{canary[:8]} 5%")
    assert shown["EXPIRES"] in ("23h", "1d")
    assert run(["show", "joy"]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"^canary\.revision +{canary}$", out, re.MULTILINE)
    assert re.search(r"^expires +\S+Z \(in 23h\)$", out, re.MULTILINE)
    assert re.search(r"^LAYER +NORM +CANARY$", out, re.MULTILINE)
    assert run(["vector", "promote", "joy", "--revision", canary]) == 0
    assert capsys.readouterr().out.startswith(f"vector/joy promoted (revision {canary[:8]}, enabl")
    assert client.get_vector("joy").revision == canary


def test_vector_set(client: Client, files: tuple[Path, Path], capsys: Out) -> None:
    """Each flag changes its field and no other."""
    joy, new = files
    run(["register", str(joy)])
    run(["register", str(new), "--name", "joy", "--canary", "5"])
    own = client.get_vector("joy").revision
    capsys.readouterr()
    assert run(["vector", "set", "joy", "--disabled", "--ttl", "90m", "--canary", "12.5"]) == 0
    assert "disabled, expires in 1h, canary" in capsys.readouterr().out
    vector = client.get_vector("joy")
    assert (vector.disabled, vector.canary.percent) == (True, 12.5)
    assert vector.HasField("expire_time")
    assert run(["vector", "set", "joy", "--enabled", "--revision", own[:8]]) == 0
    vector = client.get_vector("joy")
    assert (vector.disabled, vector.HasField("expire_time")) == (False, True)
    assert run(["vector", "set", "joy", "--no-ttl", "--dry-run"]) == 0
    assert client.get_vector("joy") == vector
    assert run(["vector", "set", "joy", "--no-ttl"]) == 0
    assert not client.get_vector("joy").HasField("expire_time")
    capsys.readouterr()
    assert run(["vector", "set", "joy", "--no-ttl"]) == 0
    assert capsys.readouterr().out.startswith("vector/joy unchanged (")
    assert run(["vector", "drop-canary", "joy"]) == 0
    assert capsys.readouterr().out.startswith("vector/joy canary dropped (")
    assert not client.get_vector("joy").HasField("canary")


def test_endings(client: Client, files: tuple[Path, Path], capsys: Out) -> None:
    """What is wrong on the command line ends with 2, a refusal with its status."""
    joy, new = files
    assert run(["register", str(joy), "--canary", "5"]) == 69
    run(["register", str(joy)])
    for arguments, code in (
        (["set", "joy"], 2),
        (["set", "joy", "--ttl", "1h", "--no-ttl"], 2),
        (["set", "joy", "--ttl", "soon"], 2),
        (["set", "joy", "--canary", "100"], 2),
        (["set", "nobody", "--disabled"], 69),
        (["set", "joy", "--disabled", "--revision", "0" * 64], 74),
        (["set", "joy", "--canary", "5"], 69),
        (["promote", "joy"], 69),
        (["drop-canary", "joy"], 69),
    ):
        assert run(["vector", *arguments]) == code
    assert "--canary PERCENT` gives it one" in capsys.readouterr().err
    wide = write_vector(new.parent / "wide.safetensors", [[1.0, 2.0, 3.0]])
    assert run(["register", str(wide), "--name", "joy", "--canary", "5"]) == 67


@pytest.mark.parametrize(
    ("given", "seconds"), [("90s", 90), ("1.5h", 5400), ("1d12h", 129600), ("2m30s", 150)]
)
def test_times(given: str, seconds: float) -> None:
    """A number and its unit, or several."""
    assert parse_ttl(given) == seconds


@pytest.mark.parametrize("given", ["", "5", "0s", "-1h", "1w", "1h ", "h", "٣s", "9" * 30 + "d"])
def test_what_is_no_time(given: str) -> None:
    """A number without a unit may mean anything."""
    with pytest.raises(ValueError, match="is no"):
        parse_ttl(given)


@pytest.mark.parametrize("given", ["0", "100", "-1", "nan", "inf", "x", "%"])
def test_what_is_no_share(given: str) -> None:
    """None and all are no canary."""
    assert parse_percent("2.5%") == parse_percent("2.5") == 2.5
    with pytest.raises(ValueError, match=r"."):
        parse_percent(given)


def test_states() -> None:
    """Disabled goes before expired."""
    past = Timestamp(seconds=1)
    assert views.state(Vector()) == "enabled"
    assert views.state(Vector(expire_time=past)) == "expired"
    assert views.state(Vector(expire_time=past, disabled=True)) == "disabled"
    assert re.search(r"^expires +1970-01-01T00:00:01Z$", views.vector(Vector(expire_time=past)),
                     re.MULTILINE)  # fmt: skip
    assert text.remaining(past) == "0s"
    assert text.remaining(Timestamp(seconds=7200), 1.0) == "1h"


def test_stats_have_a_line_for_each_arm() -> None:
    """Those of a vector together."""
    counts = [
        CanaryCount(vector="joy", revision="b" * 64, arm=CanaryArm.CANARY_ARM_CANARY,
                    requests_total=5),
        CanaryCount(vector="joy", revision="a" * 64, arm=CanaryArm.CANARY_ARM_STABLE,
                    requests_total=95),
    ]  # fmt: skip
    shown = views.stats(Stats(engines=[EngineStats(engine="i/0", canary_requests_total=counts)]))
    assert [line.split() for line in shown.splitlines()[-3:]] == [
        ["ENGINE", "VECTOR", "REVISION", "ARM", "REQUESTS"],
        ["i/0", "joy", "a" * 8, "stable", "95"],
        ["i/0", "joy", "b" * 8, "canary", "5"],
    ]


def test_a_canary_is_escaped() -> None:
    """What its file says cannot act on the terminal."""
    canary = Canary(revision="c" * 64, percent=5.0, metadata={"\x1b[2J": "\x07"})
    shown = views.vector(Vector(name="joy", canary=canary))
    assert all(c.isprintable() or c == "\n" for c in shown)
