"""Names: what a caller meant who called a vector wrongly."""

import difflib
from typing import Any

import pytest

from hotwired import names


def test_the_nearest_name_is_offered() -> None:
    """A slip of the finger is told with the name that was meant, upper case or not."""
    assert names.not_found("joyy", ["joy", "zeal"]).metadata["near"] == "joy"
    assert names.not_found("Joy", ["joy"]).metadata["near"] == "joy"
    assert "near" not in names.not_found("", ["joy"]).metadata


def test_few_names_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong name costs the same with ten thousand vectors as with some: nobody waits for it."""
    compared: list[int] = []

    def matches(word: str, possibilities: Any, n: int) -> list[str]:
        compared.append(len(list(possibilities)))
        return []

    monkeypatch.setattr(difflib, "get_close_matches", matches)
    names.not_found("joy", (f"joy{i}" for i in range(10_000)))
    assert compared == [64]
