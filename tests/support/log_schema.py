"""docs/logs.md as a JSON Schema; `python -m tests.support.log_schema` writes it to docs/."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
COMMON = ("timestamp", "level", "event", "logger", "pid")
IN_CONTEXT = ("vector", "generation", "trace_id", "span_id")
AUDIT = ("action", "peer", "caller", "vector", "old", "new", "generation")

_TYPES: dict[str, Any] = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "number or null": ["number", "null"],
}
_SHAPES: dict[str, dict[str, Any]] = {
    "timestamp": {"pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"},
    "level": {"enum": ["debug", "info", "warning", "error", "critical"]},
    "trace_id": {"pattern": "^[0-9a-f]{32}$"},
    "span_id": {"pattern": "^[0-9a-f]{16}$"},
    "reason": {"pattern": "^([A-Z][A-Z0-9_]*)?$"},
    "code": {"pattern": "^[A-Z_]+$"},
}
_PLUGIN = {"pattern": r"^hotwire_plugin(\.|$)"}


class Event(NamedTuple):
    """One kind of line: its levels, and the fields it has and may have, besides the common ones."""

    name: str
    levels: list[str]
    required: list[str]
    optional: list[str]


def rows(heading: str) -> list[list[str]]:
    """Returns the cells of the table under a heading of docs/logs.md."""
    text = (DOCS / "logs.md").read_text()
    section = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def events(heading: str) -> list[Event]:
    """Returns the events of a table."""
    return [
        Event(_code(name), levels.split(", "), *_fields(fields))
        for name, levels, fields, _ in rows(heading)
    ]


def audits() -> dict[str, Event]:
    """Returns the audit line of each action."""
    found = {_code(action): _fields(fields) for action, fields, _ in rows("Audit")}
    return {
        action: Event("audit", ["info"], [*AUDIT, *required], optional)
        for action, (required, optional) in found.items()
    }


def schema() -> dict[str, Any]:
    """Returns the schema."""
    daemon, plugin = events("Events of the daemon"), events("Events of the plugin")
    lines = [_line(event, {} if _is_library(event) else {"const": "hotwired"}) for event in daemon]
    for action, event in audits().items():
        line = _line(event, {"const": "hotwired"})
        line["title"] = f"audit: {action}"
        line["properties"]["action"] = {"const": action}
        lines.append(line)
    for event in plugin:
        told = event._replace(required=["message", *event.required])
        lines.append(_line(told, _PLUGIN))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of the log of hotwired or of its plugin in vLLM",
        "type": "object",
        "required": list(COMMON),
        "properties": {_code(row[0]): _property(*row) for row in rows("Fields")},
        "additionalProperties": False,
        "oneOf": lines,
    }


def _property(name: str, kind: str, meaning: str) -> dict[str, Any]:
    return {"type": _TYPES[kind], "description": meaning, **_SHAPES.get(_code(name), {})}


def _line(event: Event, logger: dict[str, str]) -> dict[str, Any]:
    levels: dict[str, Any] = {"enum": event.levels}
    names = dict.fromkeys([*COMMON, *event.required, *event.optional, *IN_CONTEXT])
    return {
        "title": event.name,
        "properties": {"event": {"const": event.name}, "level": levels, "logger": logger},
        "required": event.required,
        "propertyNames": {"enum": list(names)},
    }


def _is_library(event: Event) -> bool:
    return event.name == "library message"


def _code(cell: str) -> str:
    return cell.strip("`")


def _fields(cell: str) -> tuple[list[str], list[str]]:
    names = re.findall(r"`([^`]+)`", cell)
    required = [name for name in names if not name.endswith("?")]
    return required, [name.removesuffix("?") for name in names if name.endswith("?")]


if __name__ == "__main__":
    (DOCS / "log.schema.json").write_text(json.dumps(schema(), indent=1) + "\n")
