"""What docs/vector-formats.md shows is what its commands print."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotwirectl.formats import suffixes
from hotwirectl.main import cli, run
from tests.support.doc_files import serving, write_files
from tests.support.vector_files import load_here

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "vector-formats.md").read_text()
_BLOCK = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)


def shown() -> list[tuple[str, str]]:
    """Returns each command of the document with what stands under it."""
    found = []
    for block in _BLOCK.findall(TEXT):
        for part in re.split(r"^    \$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            lines = [line.removeprefix("    ") for line in output.splitlines()]
            found.append((command, "\n".join(lines).strip()))
    return found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the document's daemon."""
    with serving(tmp_path_factory.mktemp("d")) as daemon:
        yield daemon.address


def test_every_command_prints_what_is_shown(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In their order, and on the same files; `extract` is run with the model elsewhere."""
    for name in ("HOTWIRE_TIMEOUT", "HOTWIRE_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTWIRE_SERVER", address)
    monkeypatch.chdir(tmp_path)
    load_here(monkeypatch)
    write_files(tmp_path)
    commands = shown()
    assert len(commands) > 10
    for command, expected in commands:
        program, *arguments = shlex.split(command)
        assert program == "hotwirectl"
        if arguments[0] == "extract":
            continue
        # As on a terminal, where both streams are one.
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            run(arguments)
        assert printed.getvalue().rstrip() == expected, command
    assert not (tmp_path / "it-ran").exists()


def test_what_is_listed_is_what_there_is() -> None:
    """Suffixes, reasons, flags."""
    for suffix in suffixes._KNOWN:
        assert f"`{suffix}`" in TEXT
    section = TEXT.partition("## What is refused")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([A-Z_]+)` \|", section, re.MULTILINE))
    sources = "".join(
        path.read_text() for path in (ROOT / "clients" / "hotwirectl" / "formats").glob("*.py")
    )
    reasons = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', sources)) - {"OMP_NUM_THREADS"}
    assert listed == reasons | {"EXTRA_MISSING"}
    for name in ("convert", "inspect", "export", "diff", "extract"):
        common = {o for p in cli.params for o in p.opts}
        flags = {o for p in cli.commands[name].params for o in p.opts if o.startswith("-")}
        assert all(f"`{flag}" in TEXT for flag in flags - common), name
