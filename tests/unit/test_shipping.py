"""The examples of docs/shipping: what Vector and Fluent Bit would check, and lines through them.

Neither program can be had from a package registry, so the parts of their formats that the examples
use are written down here, and the steps of each are taken in Python.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.log_schema import DOCS

SHIPPING = DOCS / "shipping"
FIELDS = json.loads((DOCS / "log.schema.json").read_text())["properties"].keys()
EVENTS = {
    line["properties"]["event"]["const"]
    for line in json.loads((DOCS / "log.schema.json").read_text())["oneOf"]
}
LEVELS = json.loads((DOCS / "log.schema.json").read_text())["properties"]["level"]["enum"]

# What each part takes, of each program's reference.
VECTOR_KINDS = {
    "sources": {"file": {"include", "exclude", "read_from", "ignore_older_secs"}},
    "transforms": {
        "remap": {"inputs", "source", "drop_on_abort", "drop_on_error", "reroute_dropped"},
        "route": {"inputs", "route"},
    },
    "sinks": {
        "console": {"inputs", "encoding", "target"},
        "file": {"inputs", "encoding", "path", "compression"},
    },
}
FLUENT_KINDS = {
    "inputs": {
        "tail": {"tag", "path", "parser", "db", "read_from_head", "rotate_wait", "mem_buf_limit"}
    },
    "filters": {"grep": {"match", "regex", "exclude"}, "rewrite_tag": {"match", "rule"}},
    "outputs": {
        "stdout": {"match", "format"},
        "file": {"match", "path", "file", "format", "mkdir"},
    },
}
VECTOR: dict[str, Any] = yaml.safe_load((SHIPPING / "vector.yaml").read_text())
FLUENT: dict[str, Any] = yaml.safe_load((SHIPPING / "fluent-bit.yaml").read_text())

OURS = {
    "timestamp": "2026-12-01T03:38:17.123456Z",
    "level": "warning",
    "event": "request unsteered",
    "logger": "hotwire_plugin.admission",
    "pid": 7,
    "message": "request 'r' runs unsteered: KILL_SWITCH: the kill switch is on (asked: '{}')",
    "request_id": "r",
    "reason": "KILL_SWITCH",
    "error": "the kill switch is on",
}
AUDIT = {**OURS, "level": "info", "event": "audit", "logger": "hotwired", "action": "delete"}
VLLM = [
    "INFO 12-01 03:38:17 [core.py:93] Initializing a V1 LLM engine",
    '{"level": "info", "message": "some other program\'s"}',
    "[1, 2, 3]",
    "",
    '{"event": "half a line',
]


def test_vectors_parts_are_known_and_wired() -> None:
    """Each has a type and options of that, and takes from parts that there are, in no circle."""
    assert VECTOR.keys() == {"data_dir", *VECTOR_KINDS}
    outputs = set(VECTOR["sources"])
    for name, part in VECTOR["transforms"].items():
        assert set(part["inputs"]) <= outputs, "in the order of the file, so there is no circle"
        outputs |= {name} | {f"{name}.{route}" for route in part.get("route", ())}
    for kind, known in VECTOR_KINDS.items():
        for part in VECTOR[kind].values():
            assert part.keys() - {"type"} <= known[part["type"]]
    taken = {
        i for kind in ("transforms", "sinks") for p in VECTOR[kind].values() for i in p["inputs"]
    }
    assert {i for p in VECTOR["sinks"].values() for i in p["inputs"]} <= outputs
    assert set(VECTOR["sources"]) <= taken
    for sink in VECTOR["sinks"].values():
        assert sink["encoding"] == {"codec": "json"}


def test_vectors_program_knows_our_fields() -> None:
    """What it reads and compares is in the schema; brackets and quotes are closed."""
    program = VECTOR["transforms"]["lines"]["source"]
    conditions = VECTOR["transforms"]["kinds"]["route"].values()
    text = "\n".join([program, *conditions])
    assert set(re.findall(r"(?:line|\s|\()\.([a-z_]+)", text)) <= FIELDS | {"service", "message"}
    for field, value in re.findall(r'\.(\w+) == "([^"]+)"', text):
        assert value in {"event": EVENTS, "level": LEVELS}[field]
    for pair in ("()", "{}"):
        assert text.count(pair[0]) == text.count(pair[1])
    assert text.count('"') % 2 == 0


def remapped(message: str) -> dict[str, Any] | None:
    """Takes a line through the steps of Vector's program; None if it is dropped."""
    try:
        line = json.loads(message)
    except ValueError:
        return None
    if not isinstance(line, dict) or "event" not in line or "logger" not in line:
        return None
    line["timestamp"] = datetime.fromisoformat(line["timestamp"])
    line["service"] = "vllm" if line["logger"].startswith("hotwire_plugin") else "hotwired"
    return line


def test_lines_through_vector() -> None:
    """Ours arrive with a time, vLLM's own do not."""
    arrived = [remapped(text) for text in [*VLLM, json.dumps(OURS), json.dumps(AUDIT)]]
    assert arrived[: len(VLLM)] == [None] * len(VLLM)
    plugin, audit = arrived[len(VLLM) :]
    assert plugin is not None
    assert audit is not None
    moment = datetime(2026, 12, 1, 3, 38, 17, 123456, tzinfo=UTC)
    assert (plugin["timestamp"], plugin["service"], audit["service"]) == (
        moment,
        "vllm",
        "hotwired",
    )


def test_fluent_bits_parts_are_known_and_wired() -> None:
    """Each has a name and options of that; parsers are defined, and every match has its tag."""
    assert FLUENT.keys() == {"service", "parsers", "pipeline"}
    assert FLUENT["pipeline"].keys() == FLUENT_KINDS.keys()
    for kind, known in FLUENT_KINDS.items():
        for part in FLUENT["pipeline"][kind]:
            assert part.keys() - {"name"} <= known[part["name"]]
    parsers = {parser["name"] for parser in FLUENT["parsers"]}
    inputs = FLUENT["pipeline"]["inputs"]
    assert {part["parser"] for part in inputs} == parsers
    assert len({part["db"] for part in inputs}) == len(inputs)
    tags = {part["tag"] for part in inputs} | {
        rule(part)[2] for part in FLUENT["pipeline"]["filters"] if "rule" in part
    }
    for part in FLUENT["pipeline"]["filters"] + FLUENT["pipeline"]["outputs"]:
        wanted = re.escape(part["match"]).replace(r"\*", ".*")
        assert any(re.fullmatch(wanted, tag) for tag in tags)


def rule(part: dict[str, Any]) -> tuple[str, str, str, str]:
    """Returns the key, pattern, new tag and "keep" of a rewrite_tag."""
    key, pattern, tag, keep = part["rule"].split(" ")
    return key.removeprefix("$"), pattern, tag, keep


def through_fluent_bit(text: str, tag: str) -> list[tuple[str, dict[str, Any]]]:
    """Takes a line through parser and filters; returns it with each tag that it ends up with."""
    parser = FLUENT["parsers"][0]
    try:
        line = json.loads(text)
        assert isinstance(line, dict)
        # Fluent Bit's %L is Python's .%f, fraction and all.
        form = parser["time_format"].replace("%L", "%f")
        datetime.strptime(line[parser["time_key"]], form)  # noqa: DTZ007
    except (ValueError, AssertionError, KeyError):
        line = {"log": text}
    found = [(tag, line)]
    for part in FLUENT["pipeline"]["filters"]:
        if part["match"] != tag:
            continue
        if part["name"] == "grep":
            key, pattern = part["regex"].split(" ", 1)
            if not re.search(pattern, str(line.get(key, ""))):
                return []
        else:
            key, pattern, new, keep = rule(part)
            assert keep == "true"
            if re.search(pattern, str(line.get(key, ""))):
                found.append((new, line))
    return found


def test_lines_through_fluent_bit() -> None:
    """The same of vLLM's output as with Vector; audits also arrive by their own tag."""
    for text in VLLM:
        assert through_fluent_bit(text, "hotwire.vllm") == []
    assert through_fluent_bit(json.dumps(OURS), "hotwire.vllm") == [("hotwire.vllm", OURS)]
    told = [tag for tag, _ in through_fluent_bit(json.dumps(AUDIT), "hotwire.daemon")]
    assert told == ["hotwire.daemon", "audit"]


def test_fluent_bit_goes_by_our_fields() -> None:
    """And its filters name none that there isn't."""
    (parser,) = FLUENT["parsers"]
    assert (parser["format"], parser["time_keep"]) == ("json", True)
    assert parser["time_key"] in FIELDS
    for part in FLUENT["pipeline"]["filters"]:
        key = rule(part)[0] if "rule" in part else part["regex"].split(" ")[0]
        assert key in FIELDS


@pytest.mark.parametrize("path", ["vector.yaml", "fluent-bit.yaml"])
def test_both_read_the_same_files(path: str) -> None:
    """Those that docs/logs.md rotates, and vLLM's."""
    text = (SHIPPING / path).read_text()
    assert "/var/log/hotwired/hotwired.log" in text
    assert "/var/log/hotwired/hotwired.log {" in (DOCS / "logs.md").read_text()
    assert "/var/log/vllm/vllm.log" in text
    assert Path(path).suffix == ".yaml"
