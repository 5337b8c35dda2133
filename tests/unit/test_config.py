"""The configuration: read whole, refused whole, and as documented."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hotwired.config import Caller, Config
from hotwired.config_file import SECTIONS, InForce, Override, load
from hotwired.config_text import in_force, sample
from hotwired.errors import ConfigInvalid
from hotwired.main import main
from hotwired.settings import about

SAMPLE = Path(__file__).parents[2] / "docs" / "hotwired.toml"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOTWIRED_LISTEN", "HOTWIRED_CONFIG", "HOTWIRED_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)


def written(folder: Path, text: str) -> Path:
    """Returns a file with a text."""
    path = folder / "hotwired.toml"
    path.write_text(text)
    return path


def problems(folder: Path, text: str) -> dict[str, str]:
    """Returns what is wrong with a file, by key."""
    with pytest.raises(ConfigInvalid) as caught:
        load(written(folder, text))
    return dict(caught.value.violations)


def run(*arguments: str | Path) -> Result:
    """Runs `hotwired`."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_sample_is_the_defaults() -> None:
    """The committed file is what the code says, and read, it changes nothing."""
    assert SAMPLE.read_text() == sample()
    assert load(SAMPLE).config == Config() == load(None).config


def test_the_sample_has_every_key() -> None:
    """Those of callers in a comment, which is right once uncommented."""
    text = SAMPLE.read_text()
    tables = tomllib.loads(text)
    assert {name: set(table) for name, table in tables.items()} == {
        name: {found.name for found in fields(section)} for name, section in SECTIONS.items()
    }
    commented = text.partition("[callers.ci]\n")[2].replace("\n# ", "\n")
    caller = tomllib.loads(commented.removeprefix("# "))
    assert set(caller) == {found.name for found in fields(Caller)}


def test_every_default_is_allowed_and_survives_writing() -> None:
    """What `config show` prints is what `serve --config` takes."""
    for name, section in SECTIONS.items():
        for found in fields(section):
            kind, value = about(found.metadata).kind, getattr(section(), found.name)
            read = kind.read(tomllib.loads(f"x = {kind.write(value)}")["x"])
            assert read == value, (name, found.name)


def test_all_problems_at_once_each_with_its_key(tmp_path: Path) -> None:
    """Unknown keys get the nearest known one; a wrong value gets what is allowed."""
    found = problems(
        tmp_path,
        """
        colour = 1
        limits = 3
        [deamon]
        [daemon]
        log_levle = "info"
        log_level = "loud"
        run_dir = "here"
        [tcp]
        listen = "nowhere"
        reflection = 1
        [rates]
        read_burst = true
        reads_per_second = nan
        [callers."no name"]
        role = "admin"
        [callers.ci]
        role = "root"
        sans = ["Not A Name"]
        token_sha256 = ["short"]
        """,
    )
    assert "did you mean 'daemon'?" in found["deamon"]
    assert "did you mean 'log_level'?" in found["daemon.log_levle"]
    assert "there are daemon, unix" in found["colour"]
    assert '"debug", "info"' in found["daemon.log_level"]
    assert "an absolute path" in found["daemon.run_dir"]
    assert "HOST:PORT" in found["tcp.listen"]
    assert "true or false" in found["tcp.reflection"]
    assert "whole number from 1" in found["rates.read_burst"]
    assert "a number from 0" in found["rates.reads_per_second"]
    assert "must be a table" in found["limits"]
    assert {key for key in found if key.startswith("callers")} == {
        "callers.'no name'",
        "callers.ci",
        "callers.ci.role",
        "callers.ci.sans",
        "callers.ci.token_sha256",
    }
    assert len(found) == 15


@pytest.mark.parametrize(
    ("text", "size"),
    [("2097152", 2 << 20), ('"2 MiB"', 2 << 20), ('"2MiB"', 2 << 20), ('"1 GiB"', 1 << 30)],
)
def test_sizes_may_have_units(tmp_path: Path, text: str, size: int) -> None:
    """Bytes or text."""
    path = written(tmp_path, f"[limits]\nmax_vector_bytes = {text}")
    assert load(path).config.limits.max_vector_bytes == size


@pytest.mark.parametrize("text", ['"2 MB"', '"-1 MiB"', "1", '"5 TiB"', "2.5", "[]", '"x"'])
def test_a_size_is_no_other_text(tmp_path: Path, text: str) -> None:
    """Also not out of range."""
    found = problems(tmp_path, f"[limits]\nmax_vector_bytes = {text}")
    assert "a size from 1 MiB to 4 GiB" in found["limits.max_vector_bytes"]


def test_tcp_without_tls_is_refused(tmp_path: Path) -> None:
    """Each file that is missing is named, with the reason."""
    found = problems(tmp_path, '[tcp]\nlisten = "0.0.0.0:7443"\nkey = "/k"')
    assert set(found) == {"tcp.certificate", "tcp.client_ca"}
    assert "never without mutual TLS" in found["tcp.client_ca"]


def test_a_proof_belongs_to_one_caller(tmp_path: Path) -> None:
    """Otherwise who calls would be anybody's guess."""
    token = "ab" * 32
    found = problems(
        tmp_path,
        f"""
        [callers.a]
        sans = ["x.example.org"]
        token_sha256 = ["{token}"]
        [callers.b]
        sans = ["x.example.org"]
        token_sha256 = ["{token}"]
        """,
    )
    assert set(found) == {"callers.b.sans", "callers.b.token_sha256"}


@pytest.mark.parametrize("content", [b"[tcp", b"\xff\xfe", b"[tcp]\n[tcp]\n", b"a = 1\na = 2"])
def test_what_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    """By the name of the file."""
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match=r"x\.toml"):
        load(path)
    with pytest.raises(ConfigInvalid, match="can't be read"):
        load(tmp_path / "none.toml")


def test_flags_beat_variables_beat_the_file_beats_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each setting tells where it came from."""
    path = written(
        tmp_path, '[daemon]\nlog_level = "debug"\n[unix]\nlisten = "unix:/f"\nreflection = false'
    )
    monkeypatch.setenv("HOTWIRED_LISTEN", "unix:/v")
    monkeypatch.setenv("HOTWIRED_LOG_LEVEL", "error")
    lines = run("config", "check", path, "--log-level", "warning").output.splitlines()
    assert 'log_level = "warning"  # --log-level' in lines
    assert 'listen = "unix:/v"  # HOTWIRED_LISTEN' in lines
    assert "reflection = false  # file" in lines
    assert 'listen = ""  # default' in lines
    monkeypatch.setenv("HOTWIRED_CONFIG", str(path))
    shown = run("config", "show", "--log-level", "warning")
    assert (shown.exit_code, shown.output.splitlines()) == (0, lines)


def test_what_is_shown_is_a_file_again(tmp_path: Path) -> None:
    """With the same settings."""
    path = written(
        tmp_path, '[callers.ci]\nrole = "operator"\nsans = ["spiffe://a/b"]\n[quotas]\nvectors = 7'
    )
    found = load(path, {"unix.listen": Override("unix:/a b", "--listen")})
    assert found.config.socket == Path("/a b")
    again = load(written(tmp_path, in_force(found)))
    assert again.config == found.config
    assert isinstance(again, InForce)


def test_check_ends_with_0_or_2(tmp_path: Path) -> None:
    """It says every problem, one a line."""
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("[quotas]\nvectors = 3\n")
    bad.write_text("[quotas]\nvector = 3\nupload_bytes_per_hour = -1\n")
    assert run("config", "check", good).exit_code == 0
    result = run("config", "check", bad)
    assert result.exit_code == 2
    assert "CONFIG_INVALID" in result.output
    assert "  quotas.vector: there is no such setting; did you mean 'vectors'?" in result.output
    assert "  quotas.upload_bytes_per_hour: '-1' is not allowed" in result.output
    assert run("serve", "--config", bad).exit_code == 2
    assert run("config", "sample").output == SAMPLE.read_text()
