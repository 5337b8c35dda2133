"""The tables of metrics, the dashboard and the alerts know what the registry has, and no more."""

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from hotwired.metrics.families import ENGINE, FAMILIES, NODE, Family
from tests.support.promql import grouped, selected

ROOT = Path(__file__).parents[2]
METRICS = (ROOT / "docs" / "metrics.md").read_text()
README = (ROOT / "README.md").read_text()
ALERTS = ROOT / "docs" / "alerts.yml"
BOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "hotwired.json").read_text())
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
DASHBOARD_WIDTH = 24
# Prometheus puts these on every series that it scrapes.
TARGET_LABELS = frozenset({"job", "instance"})
VARIABLES = {"$job": "hotwired", "$vllm_instance": ".*", "$__rate_interval": "1m"}

TARGETS = [target for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [target["expr"] for target in TARGETS] + [rule["expr"] for rule in RULES]


def table(text: str) -> list[tuple[str, ...]]:
    """Returns the rows of a Markdown text's tables whose first cell is a metric of ours."""
    rows = [line for line in text.splitlines() if line.startswith("| `hotwired_")]
    return [tuple(cell.strip() for cell in row.strip("|").split(" | ")) for row in rows]


def row(family: Family) -> tuple[str, ...]:
    """Returns a metric's row as the documents have it."""
    labels = ", ".join(f"`{label}`" for label in family.labels) or "-"
    return (f"`{family.name}`", family.kind, labels, family.unit or "-", family.meaning)


def series() -> dict[str, frozenset[str]]:
    """Returns the labels of each series, those of a histogram too."""
    known = {name: frozenset() for name in re.findall(r"`(process_\w+)`", METRICS)} | {
        "up": frozenset()
    }
    for family in FAMILIES:
        labels = frozenset(family.labels)
        if family.kind == "histogram":
            known |= {f"{family.name}_{end}": labels for end in ("sum", "count")}
            known[f"{family.name}_bucket"] = labels | {"le"}
        else:
            known[family.name] = labels
    return known


def plain(expression: str) -> str:
    """Returns an expression of the dashboard as Grafana sends it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def test_the_tables_are_the_registry() -> None:
    """Each metric has one row in docs/metrics.md; README's few are the same rows."""
    assert sorted(table(METRICS)) == sorted(map(row, FAMILIES))
    between = README.partition("<!-- metrics -->")[2].partition("<!-- /metrics -->")[0]
    short = {(name, kind, labels, meaning) for name, kind, labels, _, meaning in map(row, FAMILIES)}
    shown = table(between)
    assert len(shown) >= 8
    assert set(shown) <= short


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_follow_the_conventions(family: Family) -> None:
    """One prefix, a base unit and _total at the end, no label that callers make up."""
    assert re.fullmatch(r"hotwired(_[a-z]+)+", family.name)
    assert (family.kind == "counter") == family.name.endswith("_total")
    assert not re.search(r"_(ms|us|millis|micros|kb|mb|mib|percent)(_|$)", family.name)
    if "duration" in family.name or "timestamp" in family.name:
        assert family.unit == "seconds"
    assert not {"request", "request_id", "vector", "revision", "caller"} & set(family.labels)
    assert not TARGET_LABELS & set(family.labels)
    if set(family.labels) & {"node", "engine"}:
        assert family.labels[:2] in {NODE, ENGINE}
    assert family.meaning.endswith(".")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_asks_for_what_there_is(expression: str) -> None:
    """It parses, and each metric that it selects has the labels that it is selected by."""
    known, labels = series(), set()
    found = selected(plain(expression))
    for metric, matched in found:
        assert metric in known
        assert matched <= known[metric] | TARGET_LABELS
        labels |= known[metric]
    assert found
    assert grouped(plain(expression)) <= labels


def test_legends_and_messages_name_labels_that_there_are() -> None:
    """{{node}} and its like, in the dashboard and in the alerts."""
    told = [(t["expr"], re.findall(r"{{(\w+)}}", t["legendFormat"])) for t in TARGETS]
    for rule in RULES:
        texts = " ".join(rule["annotations"].values())
        told.append((rule["expr"], re.findall(r"{{ \$labels\.(\w+) }}", texts)))
    assert any(names for _, names in told)
    for expression, names in told:
        kept = grouped(plain(expression)) or set().union(
            *(series()[metric] for metric, _ in selected(plain(expression)))
        )
        assert set(names) <= kept, expression


def test_the_dashboard_can_be_imported() -> None:
    """Ids are unique, no two panels overlap, all fit the grid and ask the chosen data source."""
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert {"uid", "title", "schemaVersion", "panels", "templating"} <= BOARD.keys()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= DASHBOARD_WIDTH
        assert min(place["y"], place["h"] - 1) >= 0
    for one, other in combinations([panel["gridPos"] for panel in BOARD["panels"]], 2):
        apart_across = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_down = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_across or apart_down
    for panel in PANELS:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_dashboards_variables_are_defined_and_used() -> None:
    """Each $name in an expression or a query is a variable's; each variable is used."""
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    text = json.dumps(BOARD["panels"]) + json.dumps(BOARD["templating"])
    used = set(re.findall(r"\$\{?([a-z]\w*)", text))
    assert used == set(variables)
    for name in set(variables) - {"datasource"}:
        query = variables[name]["query"]["query"]
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert asked is not None
        ((metric, matched),) = selected(plain(asked[1]))
        assert matched | {asked[2]} <= series()[metric] | TARGET_LABELS


def test_every_alert_says_what_and_how_bad() -> None:
    """A summary, a description and a severity; names are unique."""
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"Hotwired[A-Za-z]+", rule["alert"])
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is in Debian's `prometheus`")
def test_promtool_takes_the_alerts() -> None:
    """As Prometheus would."""
    subprocess.run(["promtool", "check", "rules", str(ALERTS)], check=True, capture_output=True)
