"""Contexts: what the file may say, who goes before whom, and the commands that change it."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from hotwirectl.config import file
from hotwirectl.config.model import Context
from hotwirectl.precedence import Settings
from tests.fakes.fake_daemon import fake_daemon
from tests.support.ctl import VARIABLES, Ctl, in_process

TWO = """
current = "prod"  # since May

[contexts.prod]
server = "unix:/run/prod.sock"
timeout = 30
output = "wide"
ca = "ca.pem"
token_file = "/etc/token"

[contexts.staging]
server = "staging:7443"  # moves soon
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the configuration in force."""
    path = tmp_path / "config" / "config.toml"
    monkeypatch.setenv("HOTWIRE_CONFIG", str(path))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def write(text: str) -> Path:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def ctl(write: Write, capsys: pytest.CaptureFixture[str]) -> Ctl:
    """Runs hotwirectl with no configuration but what is written."""
    return in_process(capsys)


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HOTWIRE_CONFIG, else $XDG_CONFIG_HOME if it is absolute, else ~/.config."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/xdg")
    monkeypatch.setenv("HOTWIRE_CONFIG", str(tmp_path / "own.toml"))
    assert file.place() == tmp_path / "own.toml"
    monkeypatch.delenv("HOTWIRE_CONFIG")
    assert file.place() == Path("/xdg/hotwire/config.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert file.place() == Path("/home/me/.config/hotwire/config.toml")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert file.place() is None
    assert file.load().contexts == {}


def test_what_a_context_says(write: Write) -> None:
    """Every key is read; a relative path is one beside the file."""
    path = write(TWO)
    config = file.load()
    assert (config.current, sorted(config.contexts)) == ("prod", ["prod", "staging"])
    assert config.contexts["prod"] == Context(
        "prod",
        server="unix:/run/prod.sock",
        timeout=30.0,
        output="wide",
        ca=path.parent / "ca.pem",
        token_file=Path("/etc/token"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("current = ", "is no TOML: Invalid value"),
        ("[contexts.a]\n[contexts.a]", "is no TOML: Cannot declare"),
        (
            'curent = "a"',
            "curent is unknown; allowed are current, contexts; did you mean 'current'",
        ),
        ("contexts = 5", "contexts is 5; allowed is a table"),
        ("[contexts]\na = 5", "contexts.a is 5; allowed is a table"),
        ('[contexts."a b"]', "contexts is 'a b'; allowed is names of 1 to 63"),
        (
            "[contexts.a]\nsevrer = 'x:1'",
            "contexts.a.sevrer is unknown; allowed are server, timeout",
        ),
        (
            "[contexts.a]\nserver = 'nonsense'",
            "contexts.a.server is 'nonsense'; allowed is unix:PATH",
        ),
        ("[contexts.a]\nserver = 5", "contexts.a.server is 5; allowed is unix:PATH"),
        ("[contexts.a]\ntimeout = 0", "contexts.a.timeout is 0; allowed is a number of seconds"),
        ("[contexts.a]\ntimeout = nan", "contexts.a.timeout is nan; allowed is a number"),
        ("[contexts.a]\ntimeout = true", "contexts.a.timeout is True; allowed is a number"),
        ("[contexts.a]\ntimeout = '5'", "contexts.a.timeout is '5'; allowed is a number"),
        (
            "[contexts.a]\noutput = 'jsn'",
            "contexts.a.output is 'jsn'; allowed is one of table, wide",
        ),
        ("[contexts.a]\noutput = []", "contexts.a.output is []; allowed is one of"),
        ("[contexts.a]\nca = ''", "contexts.a.ca is ''; allowed is the path of a file"),
        ("current = 'b'\n[contexts.a]", "current is 'b'; allowed is the name of one"),
        ("current = []\n[contexts.a]", "current is []; allowed is the name of one"),
        ("current = 5\n[contexts.a]", "current is 5; allowed is the name of one"),
    ],
)
def test_a_broken_file_is_a_usage_error(text: str, message: str, write: Write, ctl: Ctl) -> None:
    """It names the file, the key and what is allowed, and breaks neither help nor completion."""
    path = write(text)
    for command in (["list"], ["context", "list"]):
        result = ctl(*command, "-o", "json")
        assert (result.code, result.out) == (2, "")
        said = result.error()["message"]
        assert said.startswith(str(path))
        assert message in said
    assert ctl("list").err.startswith(f"error: {path}")
    for command in (["--help"], ["list", "--help"], ["completion", "bash"]):
        assert ctl(*command).code == 0


def test_a_file_that_cannot_be_read(write: Write, ctl: Ctl) -> None:
    """A folder in its place, or bytes that are no text, are said too."""
    path = write("")
    path.write_bytes(b"\xff")
    assert "it is not UTF-8" in ctl("list").err
    path.unlink()
    path.mkdir()
    assert f"{path} cannot be read: Is a directory" in ctl("list").err


@pytest.mark.parametrize(
    "case",
    [
        ("server", "flag:1", "variable:1", "context:1", "unix:/r/hotwired.sock"),
        ("timeout", 1.0, 2.0, 3.0, 10.0),
        ("output", "json", "yaml", "wide", "table"),
    ],
    ids=lambda case: case[0],
)
def test_flag_before_environment_before_context_before_default(
    case: tuple[Any, ...], write: Write, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting alone: what is taken away lets the next one through."""
    key, flag, variable, in_context, default = case
    read = {"server": Settings.address, "timeout": Settings.seconds, "output": Settings.format}
    seen: list[Any] = []

    def client(settings: Settings, **_: Any) -> None:
        seen.append(read[key](settings))
        raise click.Abort

    def ask(*arguments: str) -> Any:
        ctl(*arguments, "health")
        return seen.pop()

    monkeypatch.setattr(Settings, "client", client)
    monkeypatch.setenv("HOTWIRE_RUN_DIR", "/r")
    path = write(f"current = 'a'\n[contexts.a]\n{key} = {in_context!r}")
    monkeypatch.setenv(f"HOTWIRE_{key.upper()}", str(variable))
    assert ask(f"--{key}", str(flag)) == flag
    assert ask() == variable
    monkeypatch.delenv(f"HOTWIRE_{key.upper()}")
    assert ask() == in_context
    path.unlink()
    assert ask() == default


def test_which_context_is_in_force(write: Write, ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """--context goes before HOTWIRE_CONTEXT, that before the one in use."""
    write(TWO + "\n[contexts.third]\n")
    assert ctl("context", "show", "-o", "json").json()["name"] == "prod"
    monkeypatch.setenv("HOTWIRE_CONTEXT", "staging")
    assert ctl("context", "show", "-o", "json").json()["name"] == "staging"
    for place in (
        ["--context", "third", "context", "show"],
        ["context", "show", "--context", "third"],
    ):
        assert ctl(*place, "-o", "json").json()["name"] == "third"
    wrong = ctl("--context", "stagign", "list")
    assert wrong.code == 2
    assert "there is no context 'stagign'; did you mean 'staging'?" in wrong.err
    assert "has prod, staging, third" in ctl("--context", "zzz", "list").err


def test_a_context_leads_to_its_daemon(write: Write, ctl: Ctl, short_dir: Path) -> None:
    """Its address, its timeout and its format are those of a call."""
    with fake_daemon(short_dir) as fake:
        write(f"[contexts.a]\nserver = '{fake.address}'\ntimeout = 7\noutput = 'json'\n")
        result = ctl("--context", "a", "policy", "show")
        assert result.json()["generation"] == "1"
        assert [round(seconds) for *_, seconds in fake.state.calls] == [7]
        broken = ctl("--context", "a", "show", "nobody")
        assert broken.error()["reason"] == "VECTOR_NOT_FOUND"
        assert ctl("--context", "a", "lst").error()["code"] == "USAGE"


def test_a_context_never_falls_back_to_plain_text(write: Write, ctl: Ctl) -> None:
    """What it says of TLS is used: a file that is not there is a usage error, not plain text."""
    write("[contexts.a]\nserver = 'far:1'\nca = '/none/ca.pem'\n")
    result = ctl("--context", "a", "list")
    assert result.code == 2
    assert "/none/ca.pem" in result.err


def test_another_daemon_gets_none_of_a_contexts_files(write: Write) -> None:
    """Its token is for its own; a certificate and its key come from one place."""
    write(TWO)
    assert Settings().destination().token_file == Path("/etc/token")
    other = Settings(server="tls://other:443").destination()
    assert (other.server, other.ca, other.token_file) == ("tls://other:443", None, None)
    same = Settings(server="unix:/run/prod.sock", cert=Path("/mine")).destination()
    assert (same.token_file, same.key) == (Path("/etc/token"), None)


def test_set_use_list_show_delete(ctl: Ctl, tmp_path: Path) -> None:
    """Each says what it did, and the next sees it; only the owner may read the file."""
    path = tmp_path / "config" / "config.toml"
    assert ctl("context", "list").out == f"no contexts are in {path}\n"
    made = ctl("context", "set", "prod", "--server", "prod:7443", "--timeout", "30")
    assert made.out == "context/prod set (server prod:7443, timeout 30)\n"
    assert ctl("context", "show").code == 2
    assert ctl("context", "use", "prod").out == "context/prod is in use\n"
    ctl("context", "set", "staging", "-o", "json", "--ca", tmp_path / "ca.pem")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [line.split() for line in ctl("context", "list").out.splitlines()] == [
        ["NAME", "IN-USE", "SERVER", "TIMEOUT", "OUTPUT"],
        ["prod", "*", "prod:7443", "30", "-"],
        ["staging", "-", "-", "-", "json"],
    ]
    assert f"{tmp_path}/ca.pem" in ctl("context", "list", "-o", "wide").out
    assert ctl("context", "list", "-o", "name").out == "context/prod\ncontext/staging\n"
    form = ctl("context", "list", "-o", "json").json()
    assert (form["current"], [c["timeout"] for c in form["contexts"]]) == ("prod", [30.0, None])
    assert "prod:7443" in ctl("context", "show").out
    assert ctl("context", "set", "prod", "--unset", "timeout").out.endswith("(server prod:7443)\n")
    assert ctl("context", "delete", "context/prod").out.startswith("context/prod deleted (")
    assert ctl("context", "list", "-o", "json").json()["current"] is None
    assert list(path.parent.iterdir()) == [path]


def test_the_options_of_set_are_the_contexts(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands before the command, and the environment, are for this run alone."""
    monkeypatch.setenv("HOTWIRE_TIMEOUT", "7")
    made = ctl("-o", "json", "--server", "run:1", "context", "set", "a", "-o", "yaml")
    assert made.json() | {"name": "a", "output": "yaml"} == made.json()
    assert (made.json()["server"], made.json()["timeout"]) == (None, None)


@pytest.mark.parametrize(
    "arguments",
    [
        ["set", "a"],
        ["set", "a b", "--timeout", "1"],
        ["set", "a", "--timeout", "0"],
        ["set", "a", "--server", "nonsense"],
        ["set", "a", "--timeout", "1", "--unset", "timeout"],
        ["set", "a", "--unset", "serve"],
        ["use"],
        ["use", "prod", "--none"],
        ["use", "nobody"],
        ["delete", "nobody"],
        ["show", "nobody"],
    ],
)
def test_what_cannot_be_changed_changes_nothing(
    arguments: list[str], write: Write, ctl: Ctl
) -> None:
    """Exit code 2, nothing on stdout, the file as it was."""
    path = write(TWO)
    result = ctl("context", *arguments)
    assert (result.code, result.out) == (2, "")
    assert path.read_text() == TWO


def test_comments_and_other_keys_stay(write: Write, ctl: Ctl) -> None:
    """A change touches the lines that it is about."""
    path = write(TWO)
    assert ctl("context", "set", "staging", "--timeout", "4").code == 0
    assert ctl("context", "use", "staging").code == 0
    expected = TWO.replace('"prod"  # since', '"staging"  # since').rstrip("\n")
    assert path.read_text().rstrip("\n") == expected + "\ntimeout = 4.0"


def test_current_stands_before_all_tables(write: Write, ctl: Ctl) -> None:
    """Though a comment belongs to the first of them."""
    path = write("# of prod\n[contexts.prod]\n")
    ctl("context", "use", "prod")
    assert path.read_text() == 'current = "prod"\n\n# of prod\n[contexts.prod]\n'
    ctl("context", "use", "--none")
    assert file.load().current is None


def test_a_broken_file_can_be_mended_by_what_is_at_fault(write: Write, ctl: Ctl) -> None:
    """A bad value by setting it, a bad `current` by using another; bad TOML by hand alone."""
    write("current = 'gone'\n[contexts.a]\ntimeout = 0\n")
    assert ctl("context", "use", "a").code == 2
    assert "contexts.a.timeout is 0" in ctl("context", "use", "a").err
    write("current = 'gone'\n[contexts.a]\ntimeout = 1\n")
    assert ctl("context", "use", "a").code == 0
    write("current = 'a'\n[contexts.a]\ntimeout = 0\n")
    assert ctl("context", "set", "a", "--timeout", "5").code == 0
    path = write("[contexts")
    broken = ctl("context", "set", "a", "--timeout", "5")
    assert (broken.code, path.read_text()) == (2, "[contexts")
    assert f"{path} cannot be changed: " in broken.err


def test_a_link_stays_a_link(write: Write, ctl: Ctl, tmp_path: Path) -> None:
    """Those who keep such files in one place find the change there."""
    path = write("")
    kept = tmp_path / "kept.toml"
    path.rename(kept)
    path.symlink_to(kept)
    ctl("context", "set", "a", "--timeout", "5")
    assert path.is_symlink()
    assert "timeout" in kept.read_text()


def test_a_place_that_cannot_be_written(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where the folder should be, and no home at all."""
    (tmp_path / "config").write_text("")
    assert "cannot be written: " in ctl("context", "set", "a", "--timeout", "5").err
    monkeypatch.setattr("hotwirectl.config.file.place", lambda: None)
    result = ctl("context", "set", "a", "--timeout", "5")
    assert (result.code, "set HOTWIRE_CONFIG" in result.err) == (2, True)
