"""Every command, run in this process against the stand-in and against the true daemon."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hotwire_client import Client
from hotwirectl.main import run
from tests.fakes.fake_daemon import fake_daemon, real_daemon, reset, write_vector


@dataclass
class Result:
    """What a command came to."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The object on stdout."""
        return json.loads(self.out)

    def error(self) -> Any:
        """The object on stderr."""
        return json.loads(self.err)


Ctl = Callable[..., Result]


@pytest.fixture(scope="module", params=["stand-in", "daemon"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The address of a daemon, either of the two."""
    directory = tmp_path_factory.mktemp("d")
    if request.param == "stand-in":
        with fake_daemon(directory) as fake:
            yield fake.address
    else:
        with real_daemon(directory) as real:
            yield real.address


@pytest.fixture
def ctl(daemon: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    """Runs hotwirectl on an empty daemon."""
    for name in ("HOTWIRE_TIMEOUT", "HOTWIRE_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTWIRE_SERVER", daemon)
    reset(daemon)

    def call(*arguments: object) -> Result:
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def joy(tmp_path: Path) -> Path:
    """A vector of two layers."""
    return write_vector(tmp_path / "joy.safetensors", [[3.0, 4.0], [0.0, 2.0]], model="some/model")


def test_register_prints_one_line(ctl: Ctl, joy: Path) -> None:
    """The line names the vector, its revision, the generation and the nodes."""
    result = ctl("register", joy)
    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(
        r"vector/joy registered \(revision [0-9a-f]{8}, generation \d+, 0/0 nodes\)\n", result.out
    )
    assert ctl("register", joy).out.startswith("vector/joy unchanged (revision ")


def test_register_takes_a_name_and_a_model(ctl: Ctl, joy: Path) -> None:
    """--name and --model go before the file's own."""
    made = ctl("register", joy, "--name", "glee", "--model", "other", "-o", "json").json()
    assert (made["vector"]["name"], made["vector"]["model"]) == ("glee", "other")
    assert made["converged"] is True


def test_a_dry_run_says_so_and_changes_nothing(ctl: Ctl, joy: Path) -> None:
    """--dry-run checks the file, and the name is not there afterwards."""
    result = ctl("register", joy, "--dry-run")
    assert re.fullmatch(
        r"vector/joy valid \(revision [0-9a-f]{8}, dry run, 0/0 nodes\)\n", result.out
    )
    assert ctl("show", "joy").code == 69


def test_list_has_name_first_and_age_last(ctl: Ctl, joy: Path) -> None:
    """Vectors are in the order of their names, with their layers as ranges."""
    assert ctl("list").out == "no vectors are registered\n"
    ctl("register", joy, "--name", "b")
    ctl("register", joy, "--name", "a")
    titles, *rows = [line.split() for line in ctl("list").out.splitlines()]
    assert (titles[0], titles[-1]) == ("NAME", "AGE")
    assert [row[0] for row in rows] == ["a", "b"]
    assert dict(zip(titles, rows[0], strict=True))["LAYERS"] == "0-1"
    listed = ctl("list", "-o", "json").json()
    assert listed["total_size"] == "2"
    assert [v["name"] for v in listed["vectors"]] == ["a", "b"]


def test_show_has_everything(ctl: Ctl, joy: Path) -> None:
    """The table has each layer's norm; the JSON has every field of the proto."""
    ctl("register", joy)
    shown = ctl("show", "joy").out
    assert "some/model" in shown
    assert re.search(r"^0 +5$", shown, re.MULTILINE)
    assert re.search(r"^1 +2$", shown, re.MULTILINE)
    form = ctl("show", "joy", "-o", "json").json()
    assert (form["norms"], form["any_layer"]) == ([5.0, 2.0], False)
    assert form["metadata"] == {"model": "some/model"}


def test_what_a_file_says_cannot_act_on_the_terminal(ctl: Ctl, tmp_path: Path) -> None:
    """Escape sequences in metadata and in the model's name are spelt out."""
    file = write_vector(tmp_path / "x.safetensors", **{"\x1b[2J": "\x07\nfake  line"})
    assert ctl("register", file, "--model", "m").code == 0
    for arguments in (("show", "x"), ("list",), ("show", "x", "-o", "json")):
        out = ctl(*arguments).out
        assert all(c.isprintable() or c == "\n" for c in out)
    assert r"\x1b[2J" in ctl("show", "x").out


def test_delete(ctl: Ctl, joy: Path) -> None:
    """The line is like that of register, and the name is gone."""
    ctl("register", joy)
    result = ctl("delete", "joy")
    assert re.fullmatch(
        r"vector/joy deleted \(revision [0-9a-f]{8}, generation \d+, 0/0 nodes\)\n", result.out
    )
    assert ctl("delete", "joy").code == 69


def test_delete_takes_a_revision_as_list_prints_it(ctl: Ctl, joy: Path) -> None:
    """Eight characters do; another revision is refused with the next step."""
    revision = ctl("register", joy, "-o", "json").json()["vector"]["revision"]
    wrong = ctl("delete", "joy", "--revision", "0" * 8)
    assert wrong.code in {67, 74}
    assert wrong.err.startswith("error: ")
    assert ctl("delete", "joy", "--revision", revision[:8]).code == 0


def test_a_misspelt_name_gets_a_suggestion(ctl: Ctl, joy: Path) -> None:
    """VECTOR_NOT_FOUND ends with 69 and names the nearest name."""
    ctl("register", joy, "--name", "tesla-car")
    result = ctl("show", "tesla_car")
    assert (result.code, result.out) == (69, "")
    assert "did you mean 'tesla-car'? (VECTOR_NOT_FOUND)\n" in result.err
    assert "hint: `hotwirectl list`" in result.err
    form = ctl("-o", "json", "show", "tesla_car").error()
    assert (form["code"], form["reason"]) == ("NOT_FOUND", "VECTOR_NOT_FOUND")
    assert (form["exit_code"], form["metadata"]["near"]) == (69, "tesla-car")


def test_a_refused_file_says_what_is_wrong(ctl: Ctl, tmp_path: Path) -> None:
    """INVALID_ARGUMENT ends with 67, with the reason and, as JSON, the field."""
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\x80\x02}q\x00.")
    result = ctl("register", bad)
    assert result.code == 67
    assert "(VECTOR_FORMAT_INVALID)" in result.err
    assert ctl("register", bad, "-o", "json").error()["violations"][0]["field"]
    nan = write_vector(tmp_path / "nan.safetensors", [[float("nan"), 0.0]])
    assert ctl("register", nan).code == 67


def test_policy_set_changes_exactly_what_is_named(ctl: Ctl) -> None:
    """Flags become the mask: what is not named stays."""
    result = ctl("policy", "set", "--max-relative-dose", "0.5", "--mode", "clamp", "--strict")
    assert re.fullmatch(r"policy set \(generation \d+, 0/0 nodes\)\n", result.out)
    ctl("policy", "set", "--max-total-relative-dose", "2", "--no-strict")
    policy = ctl("policy", "show", "-o", "json").json()["policy"]
    assert policy["max_relative_dose"] == 0.5
    assert policy["max_total_relative_dose"] == 2.0
    assert (policy["dose_mode"], policy["strict"]) == ("DOSE_MODE_CLAMP", False)
    ctl("policy", "set", "--max-relative-dose", "none", "--allow-unmonitored")
    policy = ctl("policy", "show", "-o", "json").json()["policy"]
    assert policy["max_relative_dose"] is None
    assert policy["max_total_relative_dose"] == 2.0
    assert policy["allow_unmonitored"] is True


def test_policy_show_is_readable(ctl: Ctl, tmp_path: Path) -> None:
    """Limits, mode and reference norms are words, not field numbers."""
    norms = tmp_path / "norms.json"
    norms.write_text('{"0": 10, "1": 20.5, "2": 30}')
    ctl("policy", "set", "--reference-norms", norms, "--mode", "warn")
    shown = dict(line.split(maxsplit=1) for line in ctl("policy", "show").out.splitlines())
    assert shown["reference_norms"] == "layers 0-2 (10 to 30)"
    assert (shown["dose_mode"], shown["max_relative_dose"]) == ("warn", "none")


def test_a_shown_policy_can_be_edited_and_set(ctl: Ctl, tmp_path: Path) -> None:
    """`policy show -o json` is a file for `policy set --file`, once: its etag guards it."""
    form = ctl("policy", "show", "-o", "json").json()
    form["policy"]["max_relative_dose"] = 0.75
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(form))
    assert ctl("policy", "set", "--file", file).code == 0
    assert ctl("policy", "show", "-o", "json").json()["policy"]["max_relative_dose"] == 0.75
    again = ctl("policy", "set", "--file", file)
    assert again.code == 74
    assert "(ETAG_MISMATCH)" in again.err
    assert "hint: `hotwirectl policy show`" in again.err


def test_a_policy_dry_run_changes_nothing(ctl: Ctl) -> None:
    """--dry-run of policy set leaves the policy and its etag."""
    before = ctl("policy", "show", "-o", "json").json()
    result = ctl("policy", "set", "--max-relative-dose", "0.1", "--dry-run")
    assert result.out.startswith("policy valid (dry run, ")
    assert ctl("policy", "show", "-o", "json").json() == before


def test_off_and_on(ctl: Ctl) -> None:
    """The kill switch is one word each way, and leaves the rest of the policy."""
    ctl("policy", "set", "--strict")
    assert re.fullmatch(r"steering off \(generation \d+, 0/0 nodes\)\n", ctl("off").out)
    policy = ctl("policy", "show", "-o", "json").json()["policy"]
    assert (policy["kill_switch"], policy["strict"]) == (True, True)
    assert re.fullmatch(r"steering on \(generation \d+, 0/0 nodes\)\n", ctl("on").out)
    assert ctl("stats", "-o", "json").json()["kill_switch"] is False


def test_stats_nodes_and_health(ctl: Ctl, joy: Path) -> None:
    """A daemon without nodes shows its own figures, and is well."""
    ctl("register", joy)
    time.sleep(0.06)  # the daemon's figures may be 50 ms old
    shown = dict(line.split(maxsplit=1) for line in ctl("stats").out.splitlines())
    assert (shown["vectors"], shown["kill_switch"], shown["converged"]) == ("1", "off", "yes")
    assert ctl("nodes").out == "no nodes are connected\n"
    assert ctl("nodes", "-o", "json").json()["nodes"] == []
    well = ctl("health")
    assert well.code == 0
    assert well.out.endswith("is serving\n")
    assert ctl("health", "-o", "json").json() == {"status": "SERVING"}
    assert ctl("health", "--service", "no.such").code == 69


def test_version(ctl: Ctl) -> None:
    """Versions are there as text and as JSON."""
    assert "api      hotwired.v1" in ctl("version").out
    form = ctl("version", "-o", "json").json()
    assert (form["reachable"], form["nodes"]) == (True, [])
    assert ctl("version", "--client", "-o", "json").json()["reachable"] is None


def test_names_are_completed(ctl: Ctl, joy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that asks for names beginning with "j" gets those that are registered."""
    for name in ("joy", "jolt", "calm"):
        ctl("register", joy, "--name", name)
    monkeypatch.setenv("_HOTWIRECTL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "hotwirectl show j")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        ctl()
    monkeypatch.delenv("_HOTWIRECTL_COMPLETE")


def test_cli_and_client_see_the_same(ctl: Ctl, joy: Path, daemon: str) -> None:
    """What the command registers, a program finds."""
    ctl("register", joy)
    with Client(daemon) as client:
        assert (
            client.get_vector("joy").revision == ctl("show", "joy", "-o", "json").json()["revision"]
        )
