"""How single values look in a table."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from hotwirectl import text


@given(st.text())
def test_escaped_text_does_nothing_to_a_terminal(value: str) -> None:
    """Whatever a name or a metadata value holds, it prints on one line and moves no cursor."""
    shown = text.escaped(value)
    assert shown.isprintable()
    shown.encode()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain ü 喜", "plain ü 喜"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\u202eevil", r"\u202eevil"),
        ("\x9b1m", r"\x9b1m"),
        ("\x7f", r"\x7f"),
    ],
)
def test_control_characters_become_escapes(value: str, shown: str) -> None:
    """C0, C1, DEL and the bidirectional overrides are spelt out; other scripts are not."""
    assert text.escaped(value) == shown


def test_columns_line_up() -> None:
    """Columns are as wide as their widest value, wide characters counted as two."""
    table = text.columns(("NAME", "AGE"), [("喜び", "5s"), ("a", ""), ("long-name", "3m")])
    assert table.splitlines() == [
        "NAME        AGE",
        "喜び        5s",
        "a           <none>",
        "long-name   3m",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (7199, "1h"), (86400, "1d"), (1e8, "1157d")],
)
def test_durations(seconds: float, shown: str) -> None:
    """The largest whole unit; a clock that is behind shows no negative age."""
    assert text.duration(seconds) == shown


def test_ages() -> None:
    """An age counts from now, and what never happened has none."""
    assert text.age(Timestamp(seconds=100), now=165) == "1m"
    assert text.age(Timestamp()) == "<none>"


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0B"), (1023, "1023B"), (1024, "1.0KiB"), (69120, "67.5KiB"), (1 << 60, "1048576.0TiB")],
)
def test_sizes(count: int, shown: str) -> None:
    """Binary units, one decimal."""
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [([], ""), ([3], "3"), ([0, 1, 2, 3, 7, 9, 10], "0-3,7,9-10")],
)
def test_layers(numbers: list[int], shown: str) -> None:
    """Neighbours become ranges."""
    assert text.layers(numbers) == shown
