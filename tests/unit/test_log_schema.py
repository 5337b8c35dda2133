"""Every line that the code can write is in docs/logs.md and in the schema, and nothing else is."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from tests.support.log_schema import AUDIT, COMMON, DOCS, Event, audits, events, rows, schema

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((DOCS / "log.schema.json").read_text())
METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
# Written by log_lines, for what the libraries say.
FOREIGN = "library message"


class Call(NamedTuple):
    """A call that writes a line: where, what, and the fields that are plain to see."""

    where: str
    event: str
    level: str
    fields: frozenset[str]
    has_more: bool


def daemon_calls() -> Iterator[Call]:
    """Yields the daemon's: get().info("event", field=...)."""
    for path, node in calls("hotwired"):
        owner = node.func.value
        if isinstance(owner, ast.Call) and ast.unparse(owner.func) in {"get", "log.get"}:
            yield call(path, node.func.attr, node)


def plugin_calls() -> Iterator[Call]:
    """Yields the plugin's: logger.info("sentence", ..., extra=named("event", field=...))."""
    for path, node in calls("hotwire_plugin"):
        if ast.unparse(node.func.value) == "logger":
            extra = next((k.value for k in node.keywords if k.arg == "extra"), None)
            yield call(path, node.func.attr, named_call(path, extra))


def named_call(path: Path, extra: ast.expr | None) -> ast.Call:
    """Returns the call of `named` behind an `extra`, which may have a name or a helper."""
    assert extra is not None, f"{path}: a line without an event"
    if isinstance(extra, ast.Dict):
        return ast.Call(ast.Name("named"), list(extra.values), [])
    if isinstance(extra, ast.Call) and ast.unparse(extra.func) == "named":
        return extra
    wanted = ast.unparse(extra.func) if isinstance(extra, ast.Call) else ast.unparse(extra)
    for node in ast.walk(ast.parse(path.read_text())):
        found = None
        if isinstance(node, ast.Assign):
            found = assigned(node).get(wanted)
        elif isinstance(node, ast.FunctionDef) and node.name == wanted:
            found = next(n.value for n in node.body if isinstance(n, ast.Return))
        if isinstance(found, ast.Call) and ast.unparse(found.func) == "named":
            return found
    raise AssertionError(f"{path}: {wanted} is no call of named()")


def assigned(node: ast.Assign) -> dict[str, ast.expr]:
    """Returns what an assignment gives to each name."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=True)
        return {ast.unparse(name): each for name, each in pairs}
    return {ast.unparse(target): value}


def calls(package: str) -> Iterator[tuple[Path, Any]]:
    """Yields each call of a method of METHODS in a package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in METHODS
            ):
                yield path, node


def call(path: Path, method: str, node: ast.Call) -> Call:
    """Returns what a call says."""
    event = node.args[0]
    assert isinstance(event, ast.Constant), f"{path}: an event is a literal"
    names = frozenset(keyword.arg for keyword in node.keywords if keyword.arg)
    has_more = any(keyword.arg is None for keyword in node.keywords)
    if method == "exception":
        method, names = "error", names | {"exception"}
    return Call(path.name, event.value, method, names - {"exc_info"}, has_more)


DAEMON = list(daemon_calls())
PLUGIN = list(plugin_calls())
DAEMON_EVENTS = {event.name: event for event in events("Events of the daemon")}
PLUGIN_EVENTS = {event.name: event for event in events("Events of the plugin")}


def test_the_schema_is_made_from_the_tables() -> None:
    """If not, run `python -m tests.support.log_schema`."""
    assert schema() == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_event_has_its_row() -> None:
    """And every row its event."""
    assert {c.event for c in DAEMON} | {FOREIGN} == DAEMON_EVENTS.keys() | {"audit"}
    assert {c.event for c in PLUGIN} == PLUGIN_EVENTS.keys()


@pytest.mark.parametrize(
    ("found", "known"),
    [(c, DAEMON_EVENTS[c.event]) for c in DAEMON if c.event in DAEMON_EVENTS]
    + [(c, PLUGIN_EVENTS[c.event]) for c in PLUGIN if c.event in PLUGIN_EVENTS],
    ids=lambda value: f"{value.where}-{value.event}" if isinstance(value, Call) else "",
)
def test_each_call_has_the_fields_of_its_row(found: Call, known: Event) -> None:
    """All that are required, none that isn't told of, at a level that is."""
    assert found.level in known.levels
    assert found.fields <= {*known.required, *known.optional}
    if not found.has_more:
        missing = set(known.required) - found.fields
        assert missing <= {"exception"}  # given as exc_info


def test_every_field_has_its_row() -> None:
    """And every row is some event's."""
    fields = {name.strip("`") for name, _, _ in rows("Fields")}
    known = [*DAEMON_EVENTS.values(), *PLUGIN_EVENTS.values(), *audits().values()]
    used = {name for event in known for name in (*event.required, *event.optional)}
    assert used | {*COMMON, "message", "trace_id", "span_id"} == fields
    assert set(AUDIT) <= fields


@pytest.mark.parametrize(
    "line",
    [
        {"event": "rpc"},
        {"event": "unheard of"},
        {"event": "stopped", "colour": "red"},
        {"event": "stopped", "node": "i1/worker-0-0-0"},
        {"event": "stopped", "level": "error"},
        {"event": "stopped", "timestamp": "yesterday"},
        {"event": "listening", "path": "/x", "message": "listening on /x"},
    ],
)
def test_the_schema_refuses(line: dict[str, object]) -> None:
    """Missing and foreign fields, other levels, another's logger."""
    whole = {
        "timestamp": "2026-12-01T03:38:17.123456Z",
        "level": "info",
        "logger": "hotwired",
        "pid": 1,
    }
    jsonschema.validate({**whole, "event": "stopped"}, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**whole, **line}, SCHEMA)
