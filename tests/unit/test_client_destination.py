"""What a client shows to a daemon, and when it shows nothing."""

from pathlib import Path

import pytest

from hotwire_client import Client, Destination

FILES = ("ca", "certificate", "key", "token_file")


@pytest.mark.parametrize("file", FILES)
def test_any_of_the_files_makes_it_tls(file: str) -> None:
    """So that a token never travels in plain text; on a Unix socket nothing is encrypted."""
    assert Destination("host:1", **{file: Path("/x")}).is_tls
    assert not Destination("unix:/a", **{file: Path("/x")}).is_tls
    assert Destination("tls://host:1").is_tls
    assert not Destination("host:1").is_tls


def test_the_environment_fills_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files by their variables; an empty one is none."""
    monkeypatch.setenv("HOTWIRE_SERVER", "tls://host:1")
    monkeypatch.setenv("HOTWIRE_CA", "/ca")
    monkeypatch.setenv("HOTWIRE_TOKEN_FILE", "")
    monkeypatch.delenv("HOTWIRE_CERT", raising=False)
    monkeypatch.delenv("HOTWIRE_KEY", raising=False)
    assert Destination.from_environment() == Destination("tls://host:1", ca=Path("/ca"))
    assert Destination.from_environment("unix:/a").server == "unix:/a"


@pytest.mark.parametrize("content", ["", " \n", "two\nlines", "t\u00f6ken"])
def test_what_is_no_token_is_refused_at_once(tmp_path: Path, content: str) -> None:
    """And not by the daemon later."""
    token = tmp_path / "token"
    token.write_text(content)
    with pytest.raises(ValueError, match="no token"):
        Client(Destination("tls://localhost:1", token_file=token))


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_missing_is_named(tmp_path: Path, file: str) -> None:
    """As the system says it."""
    files = {file: tmp_path / "gone"}
    if file in {"certificate", "key"}:
        other = tmp_path / "other"
        other.touch()
        files = {"certificate": other, "key": other} | files
    with pytest.raises(FileNotFoundError, match="gone"):
        Client(Destination("tls://localhost:1", **files))
