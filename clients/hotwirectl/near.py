"""What somebody meant who mistyped a word that is one of a few."""

from collections.abc import Iterable
from typing import Any

import click


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word that is most like the one given, if one is like it at all."""
    import difflib  # only those who mistype wait for it

    return next(iter(difflib.get_close_matches(word[:63], list(known), n=1)), None)


def question(word: str, known: Iterable[str]) -> str:
    """Returns "; did you mean 'X'?" to be put behind a sentence, or nothing."""
    near = nearest(word, known)
    return f"; did you mean {near!r}?" if near else ""


class Choice(click.Choice[str]):
    """One of several words; for a mistyped one, the error names the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Returns what is wrong, all there is to choose from, and what was meant."""
        message = super().get_invalid_choice_message(value, ctx).rstrip(".")
        return message + question(str(value), self.choices)
