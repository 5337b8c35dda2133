"""How repetitive a text is."""


def repeated(text: str) -> float:
    """The share of a text's three-word runs that have come before in it; 0 if it has none."""
    words = text.split()
    runs = list(zip(words, words[1:], words[2:], strict=False))
    return 1 - len(set(runs)) / len(runs) if runs else 0.0
