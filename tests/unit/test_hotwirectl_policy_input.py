"""What `policy set` takes from flags and files."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from hotwire_client import DoseMode
from hotwirectl import policy_input


def written(path: Path, form: Any) -> Path:
    """Writes JSON, or text as it is."""
    path.write_text(form if isinstance(form, str) else json.dumps(form))
    return path


def test_flags_alone_name_their_fields() -> None:
    """A flag sets its field, "none" names it without a value, and nothing else is named."""
    policy, fields = policy_input.build(
        {"max_relative_dose": "none", "dose_mode": "DOSE_MODE_WARN", "strict": False}, None
    )
    assert fields == ["dose_mode", "max_relative_dose", "strict"]
    assert not policy.HasField("max_relative_dose")
    assert policy.dose_mode == DoseMode.DOSE_MODE_WARN


def test_limits_by_name() -> None:
    """NAME=LIMIT, any number of times; a name may hold an equals sign, and is given once."""
    parse = policy_input.parse_limits
    assert parse(["joy=0.5", "a=b=1"]) == {"joy": 0.5, "a=b": 1.0}
    assert parse([]) is None
    assert parse(["none"]) == "none"
    for bad in (["joy"], ["=1"], ["joy=none"], ["joy=-1"], ["joy=1", "joy=2"], ["none", "joy=1"]):
        with pytest.raises(ValueError, match=r"LIMIT|number"):
            parse(bad)


def test_a_file_names_its_fields_in_either_spelling(tmp_path: Path) -> None:
    """snake_case and camelCase are one field; null clears; flags go before the file."""
    file = written(
        tmp_path / "p.json",
        {"maxRelativeDose": 0.5, "max_total_relative_dose": None, "reference_norms": {"3": 1.5}},
    )
    policy, fields = policy_input.build({"max_relative_dose": 0.25}, file)
    assert fields == ["max_relative_dose", "max_total_relative_dose", "reference_norms"]
    assert policy.max_relative_dose == 0.25
    assert not policy.HasField("max_total_relative_dose")
    assert dict(policy.reference_norms) == {3: 1.5}


def test_the_etag_of_a_file_is_sent_but_not_set(tmp_path: Path) -> None:
    """What `policy show -o json` prints can be edited and sent back."""
    file = written(
        tmp_path / "p.json",
        {
            "policy": {"strict": True, "etag": "e7", "update_time": "2026-01-02T03:04:05Z"},
            "generation": "7",
        },
    )
    policy, fields = policy_input.build({}, file)
    assert (fields, policy.etag, policy.strict) == (["strict"], "e7", True)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({}, "nothing to set"),
        ({"etag": "e7"}, "nothing to set"),
        ([], "does not hold a JSON object"),
        ({"max_dose": 1}, "names 'max_dose'; the policy has kill_switch,"),
        ({"strict": "maybe"}, "this is no policy"),
        ({"max_relative_dose": "x"}, "this is no policy"),
        ({"reference_norms": {"x": 1}}, "this is no policy"),
        ('{"strict": true, "strict": false}', "a name stands twice"),
        ('{"max_relative_dose": NaN}', "NaN is no JSON"),
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("\x00", "cannot be read as JSON"),
    ],
)
def test_files_that_are_no_policy_are_refused(form: Any, message: str, tmp_path: Path) -> None:
    """Each is a usage error that says what is wrong; none is sent."""
    with pytest.raises(click.UsageError, match=message):
        policy_input.build({}, written(tmp_path / "p.json", form))


@pytest.mark.parametrize("form", [{"0": 1.5, "2": 3}, [1.5, 2, 3]])
def test_reference_norms_are_an_object_or_a_list(form: Any, tmp_path: Path) -> None:
    """An object is by layer; in a list the place is the layer."""
    norms = policy_input.read_norms(written(tmp_path / "n.json", form))
    assert norms == ({"0": 1.5, "2": 3.0} if isinstance(form, dict) else
                     {"0": 1.5, "1": 2.0, "2": 3.0})  # fmt: skip


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("7", "neither an object nor a list"),
        ({"all": 1}, "'all' where a layer's number"),
        ({"-1": 1}, "'-1' where a layer's number"),
        ({"²": 1}, "where a layer's number"),
        ({"0": "1"}, "no number for layer 0"),
        ([True], "no number for layer 0"),
        ([None], "no number for layer 0"),
        ("[Infinity]", "Infinity is no JSON"),
    ],
)
def test_bad_reference_norms_are_refused(form: Any, message: str, tmp_path: Path) -> None:
    """Each is a usage error that names the layer."""
    with pytest.raises(click.UsageError, match=message):
        policy_input.read_norms(written(tmp_path / "n.json", form))


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "x", "", "None"])
def test_limits_are_finite_and_not_below_zero(text: str) -> None:
    """A limit that limits nothing, or everything, by accident is refused."""
    with pytest.raises(ValueError):  # noqa: PT011 - the text is float's own for some
        policy_input.parse_limit(text)
    assert policy_input.parse_limit("0") == 0
    assert policy_input.parse_limit("none") == "none"
