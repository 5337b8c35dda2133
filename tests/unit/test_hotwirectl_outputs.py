"""The output formats: what each prints for each command, and failures in each of them."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hotwirectl.printers.yaml_form import to_yaml
from hotwirectl.values import FORMATS
from hotwired.v1.node_pb2 import NODE_ROLE_ENGINE, NODE_ROLE_WORKER
from hotwired.v1.receipt_pb2 import Receipt
from hotwired.v1.stats_pb2 import EngineStats
from tests.fakes.fake_daemon import FakeDaemon, Fault, fake_daemon, node, write_vector
from tests.support.ctl import VARIABLES, Ctl, commands, in_process, start


@pytest.fixture
def fake(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A stand-in with two nodes, an engine and a receipt, that hotwirectl finds."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    with fake_daemon(short_dir) as daemon:
        daemon.state.nodes = [
            node("i/engine-0-0-0", roles=[NODE_ROLE_ENGINE], dtype="bfloat16", pid=7),
            node("i/worker-0-0-0", roles=[NODE_ROLE_WORKER], sites=["pre", "post"]),
        ]
        daemon.state.engines = [EngineStats(engine="i/0", fill_steps_total=12345)]
        daemon.state.receipts = [Receipt(request_id="cmpl-1-0"), Receipt(request_id="cmpl-1-1")]
        yield daemon


@pytest.fixture
def ctl(fake: FakeDaemon, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ctl:
    """Runs hotwirectl on a daemon that has the vectors `awe` and `joy`."""
    ctl = in_process(capsys)
    for name in ("joy", "awe"):
        ctl("register", write_vector(tmp_path / f"{name}.safetensors"))
    return ctl


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("list", "vector/awe vector/joy"),
        ("show joy", "vector/joy"),
        ("vector set joy --disabled", "vector/joy"),
        ("delete joy", "vector/joy"),
        ("policy show", "policy"),
        ("policy set --strict", "policy"),
        ("off", "policy"),
        ("nodes", "node/i/engine-0-0-0 node/i/worker-0-0-0"),
        ("receipt cmpl-1", "receipt/cmpl-1-0 receipt/cmpl-1-1"),
    ],
)
def test_names(command: str, names: str, ctl: Ctl) -> None:
    """A line for each resource and nothing else."""
    result = ctl(*command.split(), "-o", "name")
    assert (result.code, result.out.split(), result.err) == (0, names.split(), "")


def test_a_printed_name_is_an_argument(ctl: Ctl) -> None:
    """`list -o name | xargs -n1 hotwirectl delete` works, and so does `nodes -o name`."""
    for line in ctl("list", "-o", "name").out.splitlines():
        assert ctl("delete", line).code == 0
    assert ctl("list", "-o", "name").out == ""
    for line in ctl("nodes", "-o", "name").out.splitlines():
        assert ctl("nodes", line, "-o", "name").out == f"{line}\n"


@pytest.mark.parametrize(
    "command", ["list", "show joy", "policy show", "nodes", "stats", "receipt cmpl-1", "version"]
)
def test_yaml_is_the_json_form(command: str, ctl: Ctl) -> None:
    """What a YAML reader finds is what a JSON reader finds."""
    form = ctl(*command.split(), "-o", "json").json()
    found = yaml.safe_load(ctl(*command.split(), "-o", "yaml").out)
    for moving in ("uptime_seconds", "sample_time"):
        form.pop(moving, None), found.pop(moving, None)
    assert found == form


@settings(max_examples=40)
@given(st.recursive(st.text() | st.floats(allow_nan=False) | st.none() | st.booleans(), st.lists))
def test_yaml_reads_back_and_moves_no_cursor(value: Any) -> None:
    """Whatever text there is: `on`, `5`, dates, control characters, other scripts."""
    text = to_yaml({"key": value})
    assert yaml.safe_load(text) == {"key": value}
    assert all(c.isprintable() or c == "\n" for c in text)


def test_wide_adds_columns(ctl: Ctl) -> None:
    """Every column of the table is there, NAME first and AGE last."""
    for command, more in (
        ("list", ["SHA256", "NORMS", "GENERATION", "UPDATED"]),
        ("nodes", ["PLUGIN", "DTYPE", "SITES", "DP/PP/TP", "PID"]),
    ):
        titles = ctl(command).out.splitlines()[0].split()
        wide = ctl(command, "-o", "wide").out.splitlines()
        assert wide[0].split() == [*titles[:-1], *more, titles[-1]]
    assert "pre,post" in wide[2]
    assert "12345" not in ctl("stats").out
    assert "12345" in ctl("stats", "-o", "wide").out
    assert ctl("show", "joy", "-o", "wide").out == ctl("show", "joy").out


@pytest.mark.parametrize("command", ["stats", "health", "version", "norms show"])
def test_what_a_format_cannot_do_is_said_before_any_call(
    command: str, ctl: Ctl, fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether a flag, the environment or the context asks for it."""
    fake.state.calls.clear()
    config = tmp_path / "config.toml"
    config.write_text("[contexts.a]\noutput = 'name'")
    monkeypatch.setenv("HOTWIRE_CONFIG", str(config))
    word = command.rpartition(" ")[2]
    for arguments in (["-o", "name"], ["--context", "a"]):
        result = ctl(*command.split(), *arguments)
        assert (result.code, result.out) == (2, "")
        by = " (of the context 'a')" if "--context" in arguments else ""
        assert f"{word} cannot print as name{by}; it can as table, wide, json, yaml" in result.err
    monkeypatch.setenv("HOTWIRE_OUTPUT", "name")
    assert ctl(*command.split()).code == 2
    assert fake.state.calls == []


def test_every_command_says_what_it_can_print() -> None:
    """All print tables and JSON but the one that prints a script."""
    for words, command in commands():
        formats = set(command._formats)
        assert formats <= set(FORMATS)
        if words not in {"completion", "context set", "context use"}:
            assert {"table", "json", "yaml"} <= formats, words


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize(
    "case",
    [
        (["show", "nobody"], 69, "VECTOR_NOT_FOUND"),
        (["nodes", "nobody"], 69, "NODE_NOT_FOUND"),
        (["lst"], 2, "USAGE"),
        (["list", "--no-such"], 2, "USAGE"),
        (["policy"], 2, "USAGE"),
        ([], 2, "USAGE"),
        (["--context", "nobody", "list"], 2, "USAGE"),
        (["--timeout", "0", "list"], 2, "USAGE"),
        (["list", "--interval", "1"], 2, "USAGE"),
        (["--server", "unix:/none", "--timeout", "0.1", "list"], 78, "DAEMON_UNREACHABLE"),
    ],
)
def test_every_failure_is_one_object(
    output: str, case: tuple[list[str], int, str], ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By flag and by variable, also for a line that cannot be parsed."""
    arguments, code, reason = case
    load = {"json": json.loads, "yaml": yaml.safe_load}[output]
    given = ctl("-o", output, *arguments)
    monkeypatch.setenv("HOTWIRE_OUTPUT", output)
    for result in (given, ctl(*arguments) if arguments else given):
        form = load(result.err)
        assert (result.out, result.code, form["reason"]) == ("", code, reason)
        assert (form["exit_code"], form["violations"]) == (code, [])


def test_an_interruption_is_an_object_too(fake: FakeDaemon) -> None:
    """Ctrl-C while a call is under way."""
    fake.state.faults["Stats"] = Fault(delay_s=2)
    with start("stats", "-o", "json") as process:
        while not fake.state.calls:
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=5)
    assert process.returncode == 130
    assert json.loads(err)["code"] == "INTERRUPTED"


def test_a_full_disk_is_said(fake: FakeDaemon) -> None:
    """Output that cannot be written is a failure, said once."""
    with Path("/dev/full").open("w") as full, start("list", "-o", "json", stdout=full) as process:
        assert process.stderr is not None
        err = process.stderr.read()
    assert process.returncode == 1
    form = json.loads(err)
    assert form["reason"] == "OUTPUT_FAILED"
    assert "No space left on device" in form["message"]


def test_a_closed_stderr_changes_no_exit_code(fake: FakeDaemon) -> None:
    """There is nobody to tell, and that is all."""
    with start("show", "nobody", stderr=None, preexec_fn=_close_stderr) as process:
        process.communicate(timeout=5)
    assert process.returncode == 69


def _close_stderr() -> None:
    os.close(2)
