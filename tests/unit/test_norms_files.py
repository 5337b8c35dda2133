"""Tables of norms as files: ours, those of others, prompts, and what a policy takes of them."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotwirectl import policy_input
from hotwirectl.norms import foreign, prompts, table
from hotwirectl.norms.table import FirstTokens, LayerNorms, NormTable

MARK = "4x8-0123456789abcdef"
MEASURE_H_NORMS = {
    "model": "Qwen/Qwen3-4B",
    "context_tokens": 12288,
    "note": "mean block-output ||h|| over the last 1024 positions",
    "h_norms": {"0": 10.5, "1": 11.0, "2": 12.25, "3": 40.0},
}

_numbers = st.floats(1e-6, 1e9).map(lambda x: float(f"{x:.6g}"))
_norms = st.builds(
    LayerNorms,
    _numbers,
    st.none() | _numbers,
    st.none() | _numbers,
    st.none() | _numbers,
    st.none() | st.integers(1, 10**9),
)
_layers = st.dictionaries(st.integers(0, 199), _norms, min_size=1, max_size=6).map(
    lambda found: dict(sorted(found.items()))
)
_tables = st.builds(
    NormTable,
    st.text(max_size=8),
    st.sampled_from([None, "200x8-0123456789abcdef"]),
    _layers,
    st.none() | st.builds(FirstTokens, st.integers(1, 8), st.text(max_size=8), _layers),
    st.none() | st.just("bfloat16"),
    st.none() | st.just({"count": 3}),
    st.just({"tool": "t"}),
)


def written(path: Path, form: Any) -> Path:
    """Writes JSON, or text as it is."""
    path.write_text(form if isinstance(form, str) else json.dumps(form))
    return path


def form(**changes: Any) -> dict[str, Any]:
    """A small table's JSON form, with some fields changed."""
    return NormTable("m", MARK, {0: LayerNorms(2.5), 3: LayerNorms(4.0)}).form() | changes


@given(_tables)
def test_a_table_is_read_as_it_was_written(made: NormTable) -> None:
    """Through JSON text, with every field."""
    assert table.from_form(json.loads(json.dumps(made.form()))) == made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "hotwire.norms/2"}, "this command reads hotwire.norms/1"),
        ({"site": "pre"}, "site is not 'post'"),
        ({"layers": {}}, "layers is empty"),
        ({"layers": [1.0]}, "layers is no object"),
        ({"layers": {"x": {"mean": 1}}}, "'x' stands where a layer's number"),
        ({"layers": {"0": 1.0}}, "layers.0 is no object"),
        ({"layers": {"0": {"mean": 0}}}, "not a finite number > 0"),
        ({"layers": {"0": {"mean": "1"}}}, "no number for layers.0.mean"),
        ({"layers": {"0": {"mean": 1, "count": 1.5}}}, "no whole number"),
        ({"layers": {"0": {"mean": 1}, "00": {"mean": 1}}}, "a layer twice"),
        ({"layers": {"4": {"mean": 1}}}, "layer 4 is not in 0..3"),
        ({"fingerprint": "4x8"}, "not of the form"),
        ({"fingerprint": 4}, "fingerprint is of the wrong type"),
        ({"first_tokens": {}}, "no number `skipped`"),
    ],
)
def test_a_table_that_cannot_be_right_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Each is a usage error that names the field."""
    with pytest.raises(click.UsageError, match=message):
        table.read(written(tmp_path / "n.json", form(**changes)))


def test_another_tools_file_is_pointed_to_import(tmp_path: Path) -> None:
    """`norms show` does not guess what a bare map is."""
    with pytest.raises(click.UsageError, match="norms import"):
        table.read(written(tmp_path / "n.json", {"0": 1.0}))


def test_measure_h_norms_says_itself_what_entry_0_is() -> None:
    """Its note names the blocks' output; model, context and note are kept."""
    made = foreign.convert(MEASURE_H_NORMS, base=None, mark=None, model="")
    assert made.table.means() == MEASURE_H_NORMS["h_norms"]
    assert made.table.model == "Qwen/Qwen3-4B"
    assert made.table.source["context_tokens"] == 12288
    assert made.assumed[0] == "entry 0 is the output of block 0: so the file says"
    with pytest.raises(ValueError, match="each block's output, not hidden-states"):
        foreign.convert(MEASURE_H_NORMS, base="hidden-states", mark=MARK, model="")


@pytest.mark.parametrize(
    "bare", [{"20": 54.9, "21": 55.3}, {"h_norms": {"0": 1.0, "1": 2.0}}, [1.0, 2.0, 3.0, 4.0, 5.0]]
)
@pytest.mark.parametrize("mark", [None, MARK])
def test_a_bare_table_is_refused_unless_told(bare: Any, mark: str | None) -> None:
    """Even where the number of entries seems to say it."""
    with pytest.raises(foreign.BaseUnknownError, match="nothing says whether entry 0"):
        foreign.convert(bare, base=None, mark=mark, model="")


def test_hidden_states_are_one_off_and_lose_both_ends() -> None:
    """Entry 0 is the embedding; the last one is behind the final norm."""
    made = foreign.convert([1.0, 2.0, 3.0, 4.0, 5.0], base="hidden-states", mark=MARK, model="m")
    assert made.table.means() == {"0": 2.0, "1": 3.0, "2": 4.0}
    assert made.assumed == (
        "entry 0 is the embedding: as told",
        "entry 0 is left out: the embedding",
        "entry 4 is left out: taken after the final norm, not after the last block",
    )


@given(st.lists(_numbers, min_size=1, max_size=8))
def test_an_output_table_keeps_its_numbers(values: list[float]) -> None:
    """As a list or as a map, bare or wrapped."""
    for given_form in (values, {str(i): v for i, v in enumerate(values)}, {"h_norms": values}):
        made = foreign.convert(given_form, base="output", mark=None, model="m").table
        assert list(made.means().values()) == values
        assert table.from_form(made.form()).means() == made.means()


@pytest.mark.parametrize(
    ("bad", "base", "mark", "message"),
    [
        ([1.0] * 5, "output", MARK, "layer 4 is not in 0..3"),
        ([1.0] * 6, "hidden-states", MARK, "entry 5 is not in 0..4"),
        ([1.0] * 5, "hidden-states", None, "needs --model"),
        ([1.0], "hidden-states", MARK, "layers is empty"),
        ({}, "output", None, "neither a map"),
        ({"0": None}, "output", None, "no number for entry 0"),
        ({"0": -1}, "output", None, "not a finite number > 0"),
        ({"0": 1, "00": 1}, "output", None, "a layer twice"),
        ("x", "output", None, "neither a map"),
    ],
)
def test_tables_that_cannot_be_right_are_not_imported(
    bad: Any, base: str, mark: str | None, message: str
) -> None:
    """Each says why."""
    with pytest.raises(ValueError, match=message):
        foreign.convert(bad, base=base, mark=mark, model="")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("p.txt", "one\ntwo\n\n", ("one", "two")),
        ("p.txt", "\n\none\nstill one\n \t\ntwo\n", ("one\nstill one", "two")),
        ("p.txt", "one\r\ntwo\r\n\r\nthree", ("one\r\ntwo", "three")),
        ("p.jsonl", '{"text": "a\\nb", "id": 7}\n\n{"text": "c"}', ("a\nb", "c")),
    ],
)
def test_prompts_are_lines_or_blocks(
    name: str, text: str, expected: tuple[str, ...], tmp_path: Path
) -> None:
    """Blank lines part prompts where there are any; .jsonl has them in "text"."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert prompts.read(path).texts == expected


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("p.txt", b"\n \n", "has no prompt"),
        ("p.txt", b"\xff", "cannot be read as prompts"),
        ("p.jsonl", b'{"text": "a"}\n{"txt": "b"}', "line 2 is no object"),
        ("p.jsonl", b'{"text": "a"}\n{', "line 2: "),
    ],
)
def test_bad_prompts_are_refused(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    """With the line at fault."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(click.UsageError, match=message):
        prompts.read(path)


def test_a_policy_takes_a_table_with_its_fingerprint(tmp_path: Path) -> None:
    """And a bare map without one, which takes that of the table before away."""
    ours = policy_input.read_reference(written(tmp_path / "n.json", form()))
    policy, fields = policy_input.build(ours, None)
    assert dict(policy.reference_norms) == {0: 2.5, 3: 4.0}
    assert policy.reference_norms_fingerprint == MARK
    bare = policy_input.read_reference(written(tmp_path / "b.json", {"0": 1.5}))
    cleared, same_fields = policy_input.build(bare, None)
    assert fields == same_fields == ["reference_norms", "reference_norms_fingerprint"]
    assert not cleared.HasField("reference_norms_fingerprint")
