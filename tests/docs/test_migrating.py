"""What docs/migrating.md says of us, beside what the tests of standalone mode hold."""

import re
from pathlib import Path

import pytest

from hotwire_plugin import standalone
from hotwire_plugin.admission import Admission
from hotwire_plugin.program import SPEC_KEY
from hotwire_plugin.settings import settings_from
from hotwired.dose import DoseMode
from hotwired.names import RULE, is_valid
from tests.docs.pages import ROOT
from tests.support.admissions import admission, limit

TEXT = (ROOT / "docs" / "migrating.md").read_text()


def reason(judge: Admission, spec: str) -> str | None:
    """Why a request isn't steered, None if it is."""
    return judge.decide({SPEC_KEY: spec}, "r").reason


@pytest.mark.parametrize(
    "spec",
    [
        '{"id": "joy", "layer": 12, "scale": 1.5}',
        '{"id": "joy", "layer": 12}',
        '{"id": "joy", "layer": "12"}',
        '{"id": "joy", "layer": 12, "decode_only": true}',
        '[{"id": "joy", "layer": 12}, {"id": "calm", "layer": 20, "scale": -2}]',
        '{"id": "joy"}',
    ],
)
def test_requests_of_hotwire_are_taken(spec: str) -> None:
    """And `layer` may be left out besides."""
    assert reason(admission(), spec) is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ('{"id": "joy", "layer": 12, "scale": "1.5"}', "SPEC_INVALID"),
        ('{"id": "joy", "layer": 12.0}', "LAYER_INVALID"),
        ('{"id": "joy", "layer": -1}', "LAYER_INVALID"),
        ('{"id": "joy", "layer": 12, "note": "x"}', "UNKNOWN_FIELD"),
    ],
)
def test_what_passed_there_and_does_not_here(spec: str, expected: str) -> None:
    """By the reason that the page names."""
    assert reason(admission(), spec) == expected
    assert f"`{expected}`" in TEXT


def test_entries_at_one_layer_add_up_in_dose() -> None:
    """Each alone is under the limit; together they are over, and the whole request is unsteered."""
    judge = admission(dose=limit(DoseMode.REJECT, per_layer=0.5))
    one = '{"id": "joy", "layer": 12, "scale": 2}'
    other = '{"id": "joy", "layer": 13, "scale": 0.1}'
    assert reason(judge, one) is None
    assert reason(judge, f"[{one}, {one}]") == "DOSE_EXCEEDED"
    assert judge.decide({SPEC_KEY: f"[{other}, {one}, {one}]"}, "r").program is None


@pytest.mark.parametrize("spec", ["[]", '{"id": "joy", "layer": 12, "scale": 0}'])
def test_nothing_asked_for_is_no_steering(spec: str) -> None:
    """And no fault either."""
    decided = admission().decide({SPEC_KEY: spec}, "r")
    assert (decided.program, decided.reason) == (None, None)


def test_every_variable_of_hotwire_has_its_line() -> None:
    """Those that are read here, and those that are not."""
    variables = set(re.findall(r"^\| `(HOTWIRE_[A-Z_]+)` \|", TEXT, re.MULTILINE))
    ours = {standalone.VECTORS, standalone.H_NORMS, standalone.MAX_REL_DOSE}
    ours.add(standalone.REL_DOSE_MODE)
    assert variables == ours | {"HOTWIRE_SLOTS", "HOTWIRE_DEBUG"}
    assert settings_from({"HOTWIRE_SLOTS": "16", "HOTWIRE_DEBUG": "1"}) == settings_from({})


def test_names_of_the_daemon() -> None:
    """A name with capitals is none, one with an underscore is."""
    assert is_valid("tesla_car")
    assert not is_valid("Tesla")
    assert "[a-z0-9._-]" in RULE


def test_no_sampler_is_chosen() -> None:
    """The plugin leaves VLLM_USE_FLASHINFER_SAMPLER alone."""
    sources = Path(standalone.__file__).parent.rglob("*.py")
    assert not [path for path in sources if "FLASHINFER" in path.read_text()]
