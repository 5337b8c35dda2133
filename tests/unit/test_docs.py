"""What the documents list is what the code knows."""

import json
import re
from dataclasses import fields
from pathlib import Path

from hotwire_plugin.admission import REASONS
from hotwire_plugin.placement import MAX_SETS
from hotwire_plugin.positions import SCOPES
from hotwire_plugin.program import MAX_OPS_PER_LAYER
from hotwire_plugin.shape import SITES
from hotwire_plugin.spec import MAX_ENTRIES, MAX_LAYERS_NAMED, MAX_SPEC_BYTES
from hotwire_plugin.spec_entry import _KEYS, _OWN_KEYS
from hotwire_plugin.spec_where import MAX_RANGES
from hotwirectl.norms.commands import norms
from hotwirectl.settings import global_options
from hotwired.config import Quotas, Rates
from hotwired.roles import LEAST

ROOT = Path(__file__).parents[2]
REQUESTS = (ROOT / "docs" / "requests.md").read_text()


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


def test_the_dose_table_is_the_committed_result() -> None:
    """Each row of docs/dose.md stands in bench/results/dose-cpu.json, and the heading too."""
    form = json.loads((ROOT / "bench" / "results" / "dose-cpu.json").read_text())
    text = (ROOT / "docs" / "dose.md").read_text()
    assert f"{form['device']}, {form['date']}. {form['model']}, layer {form['layer']}" in text
    for dose in dict.fromkeys(point["dose"] for point in form["points"]):
        cells = [f"{dose:g}"]
        for point in form["points"]:
            if point["dose"] == dose:
                cells += [f"{point['scale']:.2f}", f"{point['perplexity']:.1f}"]
                cells.append(f"{point['repeated']:.1%}")
        assert re.search(r"^" + r" +".join(map(re.escape, cells)) + r"$", text, re.MULTILINE), cells


def test_the_norms_commands_are_described() -> None:
    """Each with each of its flags."""
    text = (ROOT / "docs" / "hotwirectl.md").read_text()
    common = {opt for p in global_options(from_environment=False) for opt in p.opts}
    for name, command in norms.commands.items():
        assert f"`norms {name} " in text
        flags = {option for p in command.params for option in p.opts if option.startswith("-")}
        assert all(flag in text for flag in flags - common), name


def test_the_security_page_has_every_method_and_setting() -> None:
    """Each method of the table of roles, and each setting of a caller's limits."""
    text = (ROOT / "docs" / "security.md").read_text()
    for method in LEAST:
        if method.startswith("/hotwired."):
            assert f"`{method.rpartition('/')[2]}`" in text, method
    for section in (Rates, Quotas):
        for found in fields(section):
            assert found.name in text, found.name
    for reason in ("RATE_LIMITED", "QUOTA_EXCEEDED", "ROLE_TOO_LOW", "CALLER_UNKNOWN"):
        assert f"`{reason}`" in text, reason
