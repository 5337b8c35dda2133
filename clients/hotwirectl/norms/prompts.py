"""Reads the prompts to measure on."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import click

from hotwirectl.json_file import FormError, parse_json


@dataclass(frozen=True, slots=True)
class Prompts:
    """The texts of a file, and the sha256 of its bytes in hexadecimal."""

    texts: tuple[str, ...]
    sha256: str


def read(path: Path) -> Prompts:
    """Returns the prompts of a file, empty ones left out.

    A .jsonl file has an object with "text" on each line. In any other, blank lines part the
    prompts; without blank lines, each line is one.

    Raises:
        click.UsageError: It cannot be read, or has no prompt.
    """
    try:
        data = path.read_bytes()
        text = data.decode("utf-8")
        found = _from_json_lines(text) if path.suffix.lower() == ".jsonl" else _from_text(text)
    except (OSError, ValueError, RecursionError) as error:
        raise click.UsageError(f"{path} cannot be read as prompts: {error}") from error
    if not found:
        raise click.UsageError(f"{path} has no prompt")
    return Prompts(tuple(found), hashlib.sha256(data).hexdigest())


def _from_text(text: str) -> list[str]:
    blocks = [block.strip() for block in re.split(r"\n[ \t\r]*\n", text) if block.strip()]
    if len(blocks) > 1:
        return blocks
    return [line.strip() for line in text.splitlines() if line.strip()]


def _from_json_lines(text: str) -> list[str]:
    numbered = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    found = [_text_of(line, number) for number, line in numbered]
    return [each for each in found if each.strip()]


def _text_of(line: str, number: int) -> str:
    try:
        form = parse_json(line)
    except ValueError as error:
        raise FormError(f"line {number}: {error}") from error
    if not isinstance(form, dict) or not isinstance(form.get("text"), str):
        raise FormError(f'line {number} is no object with a string "text"')
    return str(form["text"])
