"""The demo's text files: pairs, prompts and words. Lines that start with # are comments."""

from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Words:
    """The two fixed lists of words whose log-probabilities make the margin."""

    positive: tuple[str, ...]
    negative: tuple[str, ...]


def pairs() -> list[tuple[str, str]]:
    """The (joyful, gloomy) sentence pairs. Raises ValueError if a line has not two parts."""
    split = [line.split("\t") for line in _lines("pairs.tsv")]
    if any(len(parts) != 2 for parts in split):
        raise ValueError("pairs.tsv: each line is a sentence, a tab, a sentence")
    return [(joyful, gloomy) for joyful, gloomy in split]


def prompts() -> list[str]:
    """The neutral openings."""
    return _lines("prompts.txt")


def words() -> Words:
    """The positive and the negative words, without their leading space."""
    lists = dict(line.split(":", 1) for line in _lines("words.txt"))
    return Words(tuple(lists["positive"].split()), tuple(lists["negative"].split()))


def _lines(name: str) -> list[str]:
    text = (DATA / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
