"""Every way a command can end: exit codes, messages, options in odd places, other formats."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from hotwirectl import exit_codes
from hotwirectl.main import cli, run
from hotwired.v1.node_pb2 import (
    NODE_ROLE_ENGINE,
    NODE_ROLE_WORKER,
    NODE_STATE_CONVERGED,
    NODE_STATE_DISARMED,
    NODE_STATE_REJECTED,
)
from hotwired.v1.receipt_pb2 import Receipt, ReceiptOp
from hotwired.v1.stats_pb2 import EngineStats
from tests.fakes.fake_daemon import FakeDaemon, Fault, fake_daemon, node, write_vector


@pytest.fixture
def fake(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A running stand-in that hotwirectl finds by its environment."""
    for name in ("HOTWIRE_TIMEOUT", "HOTWIRE_OUTPUT", "HOTWIRE_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    with fake_daemon(short_dir) as daemon:
        yield daemon


@pytest.mark.parametrize("status", [s for s in grpc.StatusCode if s is not grpc.StatusCode.OK])
def test_each_grpc_status_has_its_exit_code(
    fake: FakeDaemon, status: grpc.StatusCode, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status N ends with 64 + N, as text and in the JSON, with message and reason on stderr."""
    fault = Fault(status, "SOME_REASON", "it is so")
    for output in ("table", "json"):
        fake.state.faults = {"SetPolicy": fault}
        code = run(["off", "-o", output])
        captured = capsys.readouterr()
        assert code == 64 + status.value[0]
        assert captured.out == ""
        if output == "table":
            assert captured.err.splitlines()[0] == "error: it is so (SOME_REASON)"
        else:
            form = json.loads(captured.err)
            assert (form["code"], form["reason"]) == (status.name, "SOME_REASON")
            assert (form["message"], form["exit_code"]) == ("it is so", code)


def test_the_help_documents_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """--help names each code that the constants have, and the environment."""
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for code in (
        exit_codes.DONE,
        exit_codes.UNEXPECTED,
        exit_codes.USAGE,
        exit_codes.NOT_CONVERGED,
        exit_codes.UNHEALTHY,
        exit_codes.INCOMPLETE,
        exit_codes.INTERRUPTED,
    ):
        assert f"\n    {code:<5}" in shown
    assert "64+N" in shown
    for name in ("SERVER", "TIMEOUT", "OUTPUT", "RUN_DIR", "CONTEXT", "CONFIG"):
        assert f"HOTWIRE_{name} " in shown


def test_the_document_has_every_command_and_code() -> None:
    """docs/hotwirectl.md names each command, each flag of both `set` and each exit code."""
    text = (Path(__file__).parents[2] / "docs" / "hotwirectl.md").read_text()
    for name in cli.commands:
        assert re.search(rf"`{name}\b", text), name
    for group in ("policy", "vector"):
        for parameter in cli.commands[group].commands["set"].params:  # type: ignore[attr-defined]
            options = [*parameter.opts, *parameter.secondary_opts]
            assert all(f"`{o}" in text for o in options if o.startswith("-")), options
    for code in (0, 1, 2, 3, 4, 5, 130):
        assert f"\n| {code} |" in text


@pytest.mark.parametrize(
    "command",
    ["register", "list", "show", "delete", "inspect", "convert", "export", "diff", "extract",
     "vector", "vector set", "vector promote",
     "vector drop-canary", "policy", "policy show", "policy set", "off", "on",
     "stats", "nodes", "wait", "receipt", "health", "verify", "version", "completion"],
)  # fmt: skip
def test_every_command_has_help_and_the_global_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Help needs no daemon, and lists --server, --timeout and --output everywhere."""
    assert run([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--server", "--timeout", "--output"):
        assert option in shown


@pytest.mark.parametrize(
    "command",
    ["register", "delete", "off", "on", "policy set --strict", "vector set joy --disabled"],
)
def test_what_has_not_converged_ends_with_3(
    command: str, fake: FakeDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The change is reported on stdout, and stderr names the nodes that lack it."""
    file = write_vector(tmp_path / "joy.safetensors")
    run(["register", str(file)])
    fake.state.nodes = [
        node("i/engine-0-0-0"),
        node("i/worker-0-0-0", NODE_STATE_REJECTED, detail="too wide"),
    ]
    fake.state.converged = False
    capsys.readouterr()
    more = {"register": [str(file)], "delete": ["joy"]}.get(command, [])
    assert run([*command.split(), *more]) == 3
    captured = capsys.readouterr()
    assert "1/2 nodes)" in captured.out
    assert "(NOT_CONVERGED)" in captured.err
    assert "i/worker-0-0-0: too wide" in captured.err
    assert "hint: " in captured.err


def test_converged_without_every_node_gets_a_note(
    fake: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disarmed node does not fail a change, but is mentioned."""
    fake.state.nodes = [
        node("i/engine-0-0-0", NODE_STATE_CONVERGED),
        node("i/worker-0-0-0", NODE_STATE_DISARMED, detail="unknown layer\x1b[0m"),
    ]
    assert run(["off"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "note: i/worker-0-0-0 is disarmed: unknown layer\\x1b[0m\n"


def test_a_daemon_that_is_not_serving_ends_with_4(
    fake: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """NOT_SERVING is 4, with nothing on stdout."""
    fake.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    assert run(["health"]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "not serving (NOT_SERVING)" in captured.err


def test_a_daemon_that_is_down_ends_with_78(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command that needs the daemon says where it looked and how to start it."""
    monkeypatch.setenv("HOTWIRE_RUN_DIR", str(short_dir))
    monkeypatch.setenv("HOTWIRE_TIMEOUT", "0.1")
    for command in ("list", "show a", "off", "policy show", "stats", "nodes", "health"):
        assert run(command.split()) == 78
        captured = capsys.readouterr()
        assert captured.out == ""
        assert f"there is no socket {short_dir}/hotwired.sock (DAEMON_UNREACH" in captured.err
        assert "hotwired serve" in captured.err
    assert run(["version"]) == 0
    assert "not reachable at" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--server", "nonsense", "list"],
        ["list", "--server", "host:99999"],
        ["list", "--timeout", "0"],
        ["list", "--timeout", "nan"],
        ["list", "--timeout", "soon"],
        ["list", "--timeout", "1e9"],
        ["list", "-o", "xml"],
        ["stats", "-o", "name"],
        ["lst"],
        ["show"],
        ["show", "a", "b"],
        ["register", "/no/such.safetensors"],
        ["register"],
        ["inspect", "No Such Name"],
        ["diff", "a"],
        ["export", "a", "b.pt"],
        ["policy", "set"],
        ["policy", "set", "--mode", "maim"],
        ["policy", "set", "--max-relative-dose", "-1"],
        ["policy", "set", "--max-relative-dose", "inf"],
        ["stats", "--interval", "1"],
        ["stats", "--watch", "--interval", "0.01"],
        ["completion", "tcsh"],
        [],
    ],
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], fake: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is sent, nothing is on stdout, and stderr says what is wrong and where help is."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--help" in captured.err
    assert fake.state.calls == []
    if arguments:
        assert run(["-o", "json", *arguments] if "-o" not in arguments else arguments) == 2


@pytest.mark.parametrize(
    "place", [["-o", "json"], ["-ojson"], ["--output=json"], ["--output", "json"]]
)
def test_usage_errors_are_json_if_asked(
    place: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Even a line that cannot be parsed is answered in the format it asks for."""
    for arguments in (
        [*place, "lst"],
        ["list", "--no-such", *place],
        ["list", *place, "--no-such"],
    ):
        assert run(arguments) == 2
        assert json.loads(capsys.readouterr().err)["code"] == "USAGE"


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".pkl", ".BIN", ".txt", ""])
def test_other_formats_are_refused_with_the_way_out(
    suffix: str, fake: FakeDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can't be read is told how to get there, and what can."""
    file = tmp_path / f"joy{suffix}"
    file.write_bytes(b"x")
    assert run(["register", str(file)]) == 2
    shown = capsys.readouterr().err
    assert f"joy{suffix} is not taken" in shown
    assert "Save the vector as .safetensors" in shown
    assert ".gguf, .npz, .pt, .pth are read, too" in shown
    assert fake.state.calls == []


def test_global_options_go_before_and_after(
    fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last one on the line counts; a flag goes before the environment."""
    monkeypatch.setenv("HOTWIRE_OUTPUT", "json")
    monkeypatch.setenv("HOTWIRE_TIMEOUT", "8")
    for arguments in (
        ["policy", "show"],
        ["-o", "json", "policy", "show"],
        ["policy", "-o", "json", "show"],
        ["policy", "show", "-o", "json"],
        ["-o", "table", "policy", "show", "-o", "json"],
    ):
        assert run(arguments) == 0
        json.loads(capsys.readouterr().out)
    run(["-o", "table", "policy", "show"])
    assert capsys.readouterr().out.startswith("kill_switch")
    run(["policy", "show", "--timeout", "20"])
    run(["--timeout", "30", "policy", "show", "--server", fake.address])
    remaining = [round(seconds) for *_, seconds in fake.state.calls]
    assert remaining[0] == pytest.approx(8, abs=1)
    assert remaining[-2:] == [pytest.approx(20, abs=1), pytest.approx(30, abs=1)]


def test_a_bad_environment_is_a_usage_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says which variable is wrong."""
    monkeypatch.setenv("HOTWIRE_OUTPUT", "xml")
    assert run(["list"]) == 2
    assert "HOTWIRE_OUTPUT" in capsys.readouterr().err


def test_violations_are_shown_field_by_field(
    fake: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each field at fault has a line of its own, unless the message says it all."""
    fake.state.faults["SetPolicy"] = Fault(
        grpc.StatusCode.INVALID_ARGUMENT,
        "POLICY_INVALID",
        "two fields are wrong",
        (("policy.max_relative_dose", "is below 0"), ("policy.strict", "is odd\x1b[0m")),
    )
    run(["off"])
    assert capsys.readouterr().err.splitlines()[1:3] == [
        "  policy.max_relative_dose: is below 0",
        "  policy.strict: is odd\\x1b[0m",
    ]


def test_nodes_and_engines_are_shown(fake: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    """Roles and states are words; what a node says stands below the table."""
    fake.state.nodes = [
        node("i/engine-0-0-0", roles=[NODE_ROLE_ENGINE, NODE_ROLE_WORKER], generation=7, model="m"),
        node("i/worker-1-0-0", NODE_STATE_DISARMED, roles=[NODE_ROLE_WORKER], detail="no layers"),
    ]
    fake.state.engines = [
        EngineStats(
            engine="i/0",
            requests_total=9,
            requests_unsteered_total={"VECTOR_NOT_FOUND": 2, "KILL_SWITCH": 1},
            dose_decisions_total={"clamped": 4},
            fill_steps_total=2,
            fill_seconds_total=1e-4,
        )
    ]
    assert run(["nodes"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split()[0] == "NAME"
    assert shown[0].split()[-1] == "AGE"
    assert shown[1].split()[:4] == ["i/engine-0-0-0", "engine,worker", "converged", "7"]
    assert shown[-1] == "i/worker-1-0-0: no layers"
    assert run(["stats"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["i/0", "unsteered", "VECTOR_NOT_FOUND", "2"] in shown
    assert ["i/0", "dose", "clamped", "4"] in shown
    assert next(line for line in shown if line[:1] == ["i/0"])[-1] == "50.0"


def test_receipts_are_shown(fake: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    """A block of fields and a line an operation for each; what is unset is said to be."""
    op = ReceiptOp(vector="joy", revision="ab" * 32, layer=12, site="post", op="add")
    op.scale_asked, op.scale_applied = 2.0, 1.25
    swap = ReceiptOp(vector="joy", layer=12, site="post", op="swap", target="awe")
    clamped = Receipt(request_id="cmpl-x-0-1", engine="i/0", generation=7, outcome="clamped")
    clamped.relative_dose, clamped.worst_layer, clamped.tokens_steered = 0.8, 12, 31
    clamped.finished = True
    clamped.ops.extend([op, swap])
    gone = Receipt(request_id="cmpl-x-1-1", outcome="unsteered", reason="KILL_SWITCH")
    gone.message = "the kill switch is on\x1b[2J"
    fake.state.receipts = [clamped, gone]
    assert run(["receipt", "cmpl-x"]) == 0
    blocks = capsys.readouterr().out.split("\n\n")
    first = dict(line.split(maxsplit=1) for line in blocks[0].splitlines())
    assert (first["outcome"], first["tokens_steered"]) == ("clamped", "31")
    assert (first["relative_dose"], first["caller"]) == ("0.8 at layer 12", "<none>")
    assert (first["max_live_relative_dose"], first["finished"]) == ("none", "yes")
    row = blocks[1].splitlines()[1].split()
    assert row == ["joy", "abababab", "12", "post", "add", "2", "1.25"]
    assert "swap:awe" in blocks[1].splitlines()[2].split()
    second = dict(line.split(maxsplit=1) for line in blocks[2].splitlines())
    assert second["reason"] == "KILL_SWITCH: the kill switch is on\\x1b[2J"
    assert second["tokens_steered"] == "unknown"
    assert run(["receipt", "cmpl-x", "-o", "json"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert [r["outcome"] for r in form["receipts"]] == ["clamped", "unsteered"]
    assert form["receipts"][1]["tokens_steered"] is None
    assert run(["receipt", "nobody"]) == 69
    assert "(RECEIPT_NOT_FOUND)\nhint: " in capsys.readouterr().err


def test_something_unexpected_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault of ours is a sentence, and the traceback only if asked for."""

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("hotwirectl.precedence.Client", broken)
    assert run(["list"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: 'oops' (KeyError)\nhint: HOTWIRE_DEBUG=1")
    monkeypatch.setenv("HOTWIRE_DEBUG", "1")
    assert run(["list"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each shell gets a script that calls the command back."""
    assert run(["completion", shell]) == 0
    assert "_HOTWIRECTL_COMPLETE" in capsys.readouterr().out
