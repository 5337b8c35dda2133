"""The daemon's log: one schema, safe to show, and safe to rotate."""

import contextlib
import io
import json
import logging
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import structlog

from hotwire_plugin.log import bare, named, set_up_logging
from hotwired import log
from hotwired.log_file import LogFile
from tests.support.log_schema import DOCS

SCHEMA = json.loads((DOCS / "log.schema.json").read_text())
EVIL = "joy\nforged \x1b[31mred\x1b[0m\r\x9b2J \u202e\ud800"


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Puts back what a test configures: it is the process's."""
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    yield
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


def lines(path: Path) -> list[dict[str, object]]:
    """Returns a file's lines, each of which keeps to the schema."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for line in found:
        jsonschema.validate(line, SCHEMA)
    return found


def test_what_libraries_say_keeps_to_the_schema(tmp_path: Path) -> None:
    """In the same place as the daemon's own lines, with its traceback."""
    log.configure("info", tmp_path / "log")
    log.get().info("stopping")
    logging.getLogger("grpc._cython").info("too little to be told")
    try:
        int(EVIL)
    except ValueError:
        logging.getLogger("grpc._cython").exception("it %s", EVIL)
    first, second = lines(tmp_path / "log")
    assert (first["event"], first["logger"], first["pid"]) == ("stopping", "hotwired", os.getpid())
    assert (second["logger"], second["level"]) == ("grpc._cython", "error")
    assert second["message"] == f"it {EVIL}"
    assert "Traceback" in str(second["exception"])


def test_nothing_breaks_a_line(tmp_path: Path) -> None:
    """In JSON what isn't printable ASCII is escaped, so it is read back as it was."""
    log.configure("debug", tmp_path / "log")
    log.get().info("node found", node=EVIL)
    raw = (tmp_path / "log").read_bytes()
    assert raw.count(b"\n") == 1
    assert raw.rstrip(b"\n").decode("ascii").isprintable()
    assert lines(tmp_path / "log")[0]["node"] == EVIL


SAY = f"""
import logging; from hotwired import log; log.configure("info"); evil = {EVIL!a}
log.get().info("node found", node=evil, path=evil)
logging.getLogger("lib").warning(evil)
try: raise ValueError(evil)
except ValueError: log.get().exception("internal error", method="x")
"""


def on_a_terminal(code: str) -> list[str]:
    """Returns the lines that a program shows on a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path)), "NO_COLOR": "1"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, stdout=theirs, check=True, env=environment, timeout=20)
    os.close(theirs)
    raw = b""
    # A terminal that nobody writes to any more ends with an error.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            raw += part
    os.close(ours)
    return raw.decode().split("\r\n")


def test_nothing_moves_a_terminals_cursor() -> None:
    """On a terminal the same is escaped, in a library's words and tracebacks as well."""
    shown = on_a_terminal(SAY)
    assert ("node found" in shown[0], shown[0].count("forged")) == (True, 2)
    assert ("library message" in shown[1], shown[1].count("forged")) == (True, 1)
    assert any(line.startswith("ValueError: joy") for line in shown)
    for bad in ("\x1b[31m", "\x9b", "\u202e", "\r", "\ud800"):
        assert not [line for line in shown if bad in line]


def test_a_renamed_file_is_left_and_none_is_lost(tmp_path: Path) -> None:
    """The next line is in a new file, as is the one after it was removed; mode 0600."""
    path = tmp_path / "log"
    log.configure("info", path)
    log.get().info("node found", node="one")
    path.rename(tmp_path / "log.1")
    log.get().info("node found", node="two")
    path.unlink()
    log.get().info("node found", node="three")
    assert [line["node"] for line in lines(tmp_path / "log.1")] == ["one"]
    assert [line["node"] for line in lines(path)] == ["three"]
    assert path.stat().st_mode & 0o777 == 0o600
    os.truncate(path, 0)
    log.get().info("node found", node="four")
    assert [line["node"] for line in lines(path)] == ["four"]


def test_rotated_again_and_again_while_many_write(tmp_path: Path) -> None:
    """Every line is whole, and in exactly one of the files."""
    path = tmp_path / "log"
    subject = LogFile(path)
    done = threading.Event()

    def rotate() -> None:
        number = 0
        while not done.is_set():
            number += 1
            try:
                path.rename(tmp_path / f"log.{number}")
            except FileNotFoundError:
                continue
            if number % 3 == 0:
                subject.reopen()

    def write(who: int) -> None:
        for number in range(300):
            subject.write(json.dumps({"who": who, "number": number, "pad": "x" * 300}) + "\n")

    rotating = threading.Thread(target=rotate)
    writing = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in (rotating, *writing):
        thread.start()
    for thread in writing:
        thread.join()
    done.set()
    rotating.join()
    found = [json.loads(t) for f in tmp_path.glob("log*") for t in f.read_text().splitlines()]
    told = sorted((line["who"], line["number"]) for line in found)
    assert told == [(who, number) for who in range(4) for number in range(300)]
    assert len(list(tmp_path.glob("log.*"))) > 1


def test_a_directory_that_is_gone_costs_nothing_but_lines(tmp_path: Path) -> None:
    """Until it is back: then they are there again."""
    folder = tmp_path / "logs"
    folder.mkdir()
    subject = LogFile(folder / "log")
    subject.write("one\n")
    folder.rename(tmp_path / "elsewhere")
    subject.write("two\n")
    assert (tmp_path / "elsewhere" / "log").read_text() == "one\ntwo\n"
    folder.mkdir()
    subject.write("three\n")
    assert (folder / "log").read_text() == "three\n"
    with pytest.raises(OSError, match="No such file"):
        LogFile(tmp_path / "nowhere" / "log")


def test_a_full_disk_fails_nobody() -> None:
    """What can't be written is lost."""
    subject = LogFile(Path("/dev/full"))
    subject.write("x\n")


@pytest.fixture
def plugin_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The plugin's standard error, in a process whose logging nobody has set up."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logger = logging.getLogger("hotwire_plugin")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(logger, "propagate", logger.propagate)
    set_up_logging()
    yield stream
    logging.getLogger("hotwire_plugin").manager._clear_cache()  # type: ignore[attr-defined]


def test_the_plugins_lines_are_of_the_same_schema(plugin_lines: io.StringIO) -> None:
    """The event and its fields are keys; the sentence is the message."""
    logger = logging.getLogger("hotwire_plugin.fill")
    fields = {"request_id": bare(EVIL), "reason": "SLOTS_EXHAUSTED", "error": EVIL}
    logger.error("request %s runs unsteered", "r", extra=named("request unsteered", **fields))
    logger.info("listening on %s", "/x", extra=named("listening", path="/x"))
    raw = plugin_lines.getvalue()
    first, second = map(json.loads, raw.splitlines())
    for line in (first, second):
        jsonschema.validate(line, SCHEMA)
    assert (first["event"], first["message"]) == ("request unsteered", "request r runs unsteered")
    assert first["error"] == EVIL
    assert (second["logger"], second["path"]) == ("hotwire_plugin.fill", "/x")
    assert raw.replace("\n", "").isprintable()


def test_ids_are_bare() -> None:
    """So that what a client sent is found again, and nothing but printable ASCII is kept."""
    assert bare("cmpl-8f2c") == "cmpl-8f2c"
    assert bare("a\n\x1b[0m") == r"a\n\x1b[0m"
    assert len(bare("x" * 9999)) == 128
