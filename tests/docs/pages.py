"""Reads a page: its blocks, and in each block of a terminal the commands and what they print.

What a reader types stands in a ```console fence, or is indented by four spaces, as `$ command` with
its output beneath. An HTML comment directly before a block says more to the tests, and nothing to
the reader:

    <!-- not run: why -->   before a ```sh fence: commands that no test can run
    <!-- slow: why -->      is run by the slow tests alone
    <!-- model text -->     what it prints is up to the model, and is not compared
    <!-- world: what -->    something happens first; see World

A fence with a file's name behind its language, such as ```python ask.py, is a file that the reader
saves under that name.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NOT_RUN = "not run"
SLOW = "slow"
MODEL_TEXT = "model text"
WORLD = "world"
_MARKS = (NOT_RUN, SLOW, MODEL_TEXT, WORLD)

# What a line of commands begins with, wherever it stands.
_TOOLS = (
    "cd|cosign|curl|docker|export|gh|git|go|grep|helm|hotwired|hotwirectl|kill(?= [-%$0-9])|"
    "kubectl|make|node|npm|pip|podman|python|python3|rm|source|sudo|systemctl|vllm"
)
_LOOKS_TYPED = re.compile(rf"^(\$ .*|([A-Z_]+=\S+ )*({_TOOLS})( [-./\w].*)?)$", re.MULTILINE)
_PROGRAMS = ("python", "js", "javascript", "mjs", "ts", "go", "bash", "sh", "shell", "console")


@dataclass(frozen=True)
class Command:
    """What is typed at one prompt.

    expected: the lines beneath; none says nothing about what it prints. status: what it ends with.
    interrupted: it runs until Ctrl-C.
    """

    line: int
    text: str
    expected: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        found = re.search(r"\s# exit (\d+)$", self.text)
        return int(found[1]) if found else 0

    @property
    def interrupted(self) -> bool:
        return self.text.endswith("# until Ctrl-C")


@dataclass(frozen=True)
class Block:
    """A fence, or lines that are indented; info is what stands behind the backticks.

    line: of its first line within, from 1. marks: each mark's text behind the colon, by its word.
    """

    line: int
    info: str | None
    text: str
    marks: dict[str, str]

    @property
    def file(self) -> str | None:
        """The name of the file that the reader saves it as."""
        words = (self.info or "").split()
        return words[1] if len(words) == 2 else None

    @property
    def is_terminal(self) -> bool:
        """Whether it is a block of commands that are run."""
        return self.info == "console" or (self.info is None and self.text.startswith("$ "))

    @property
    def stray(self) -> str | None:
        """A line of it that looks like a command and is run by nobody, if there is one."""
        if self.is_terminal or self.file or (self.info == "sh" and NOT_RUN in self.marks):
            return None
        if (self.info or "").split()[:1] and self.info in _PROGRAMS:
            return self.text.splitlines()[0]
        found = _LOOKS_TYPED.search(self.text)
        return found[0] if found else None

    def commands(self) -> list[Command]:
        """The commands, in order."""
        found: list[Command] = []
        lines = self.text.splitlines()
        at = 0
        while at < len(lines):
            start, typed = at, lines[at].removeprefix("$ ")
            while not _is_whole(typed) and at + 1 < len(lines):
                at += 1
                typed += "\n" + lines[at]
            end = at + 1
            while end < len(lines) and not lines[end].startswith("$ "):
                end += 1
            expected = "\n".join(lines[at + 1 : end]).strip("\n")
            found.append(Command(self.line + start, typed, tuple(expected.splitlines())))
            at = end
        return found


def _is_whole(typed: str) -> bool:
    if typed.endswith("\\"):
        return False
    checked = subprocess.run(
        ["bash", "-n"], input=typed, text=True, stderr=subprocess.DEVNULL, check=False
    )
    return checked.returncode == 0


def pages() -> list[Path]:
    """The README and all pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    marks: dict[str, str] = {}
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        end = _end_of_block(lines, at)
        if end is not None:
            found.append(_block(lines, at, end, marks))
            at, marks = end, {}
        elif mark := re.fullmatch(rf"<!-- ({'|'.join(_MARKS)})(?:: (.+))? -->", line):
            marks[mark[1]] = mark[2] or ""
        elif line.strip():
            marks = {}
        at += 1
    return found


def _end_of_block(lines: list[str], at: int) -> int | None:
    """The index of the last line of the block that begins here, None if none does."""
    if lines[at].startswith("```"):
        return next(i for i in range(at + 1, len(lines)) if lines[i].startswith("```"))
    if not lines[at].startswith("    ") or (at and lines[at - 1].strip()):
        return None
    last = at
    for i in range(at, len(lines)):
        if lines[i].startswith("    "):
            last = i
        elif lines[i].strip():
            break
    return last


def _block(lines: list[str], at: int, end: int, marks: dict[str, str]) -> Block:
    if lines[at].startswith("```"):
        return Block(at + 2, lines[at][3:].strip(), "\n".join(lines[at + 1 : end]) + "\n", marks)
    inside = [line.removeprefix("    ") for line in lines[at : end + 1]]
    return Block(at + 1, None, "\n".join(inside) + "\n", marks)
