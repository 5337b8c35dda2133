"""What the documents list is what the code knows."""

import re
from pathlib import Path

from hotwire_plugin.admission import REASONS
from hotwire_plugin.placement import MAX_SETS
from hotwire_plugin.positions import SCOPES
from hotwire_plugin.program import MAX_OPS_PER_LAYER
from hotwire_plugin.shape import SITES
from hotwire_plugin.spec import MAX_ENTRIES, MAX_LAYERS_NAMED, MAX_SPEC_BYTES
from hotwire_plugin.spec_entry import _KEYS, _OWN_KEYS
from hotwire_plugin.spec_where import MAX_RANGES

REQUESTS = (Path(__file__).parents[2] / "docs" / "requests.md").read_text()


def test_every_reason_has_its_line() -> None:
    """And every line its reason."""
    section = REQUESTS.partition("## When it can't be done")[2]
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", section, re.MULTILINE)) == REASONS


def test_every_key_op_scope_and_site_is_described() -> None:
    """By its name, as code."""
    for word in (*_KEYS, *_OWN_KEYS, *SCOPES, *SITES):
        assert f"`{word}`" in REQUESTS or f'"{word}"' in REQUESTS, word


def test_limits_are_those_of_the_code() -> None:
    """As they are written."""
    assert f"up to {MAX_ENTRIES} of them" in REQUESTS
    assert f"longer than {MAX_SPEC_BYTES // 1024} KiB" in REQUESTS
    assert f"more than {MAX_LAYERS_NAMED:,} over all entries" in REQUESTS
    assert f"more than {MAX_RANGES} ranges" in REQUESTS
    assert f"up to {MAX_OPS_PER_LAYER} ops stack" in REQUESTS
    assert f"up to {MAX_SETS}\ndifferent sets" in REQUESTS
