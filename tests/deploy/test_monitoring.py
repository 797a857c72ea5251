"""Alerts and the dashboard use metrics that exist, and every alert has a runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hack.dashboard import dashboard_files
from tests.deploy.overlays import DEPLOY
from tests.deploy.promql import BadExpression, parse_expression

DOCS = DEPLOY.parent / "docs"
ALERTS = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
NAMES = [rule["alert"] for rule in RULES]
# Labels that Prometheus adds to every series.
_OF_PROMETHEUS = {"instance", "job"}
_OF_INFO = {"datum_build_info": {"version"}}
_SECTIONS = ("## What it means", "## How to check", "## How to fix")


def documented_metrics() -> dict[str, tuple[str, set[str]]]:
    """Return type and labels of every metric in the reference, which is generated from the code."""
    text = (DOCS / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", text, re.MULTILINE)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def expressions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    board = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_expression_is_valid_and_uses_documented_metrics(where: str, expression: str) -> None:
    parsed, known = parse_expression(expression), documented_metrics()
    labels = set(_OF_PROMETHEUS)
    for metric, matched in parsed.metrics.items():
        family = metric
        if metric not in known:
            family, _, suffix = metric.rpartition("_")
            assert suffix in ("bucket", "count", "sum"), f"{where}: unknown metric {metric}"
        kind, own = known[family]
        assert (kind == "histogram") == (family != metric), f"{where}: {metric} is a {kind}"
        own = own | _OF_INFO.get(family, set()) | ({"le"} if kind == "histogram" else set())
        assert matched <= own | _OF_PROMETHEUS, f"{where}: {metric} has no {matched - own}"
        labels |= own
    assert parsed.metrics, f"{where} uses no metric"
    assert parsed.grouped <= labels, f"{where}: no label {parsed.grouped - labels}"


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_every_alert_has_a_severity_and_a_runbook(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    assert rule["annotations"]["summary"].endswith((".", ")."))
    assert rule["annotations"]["runbook"] == f"docs/runbooks/{rule['alert']}.md"
    used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert used <= parse_expression(rule["expr"]).grouped | _OF_PROMETHEUS


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_runbook(name: str) -> None:
    page = (DOCS / "runbooks" / f"{name}.md").read_text()
    assert page.startswith(f"# {name}\n")
    for section in _SECTIONS:
        assert f"\n{section}\n" in page


def test_there_is_no_runbook_without_an_alert() -> None:
    pages = {page.stem for page in (DOCS / "runbooks").glob("*.md")} - {"README"}
    assert pages == set(NAMES)
    assert len(NAMES) == len(set(NAMES))
    index = (DOCS / "runbooks" / "README.md").read_text()
    assert all(f"({name}.md)" in index for name in NAMES)


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(dashboard_files()["dashboard.json"])["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


@pytest.mark.parametrize(
    "expression",
    [
        "sum(rate(a_total[5m])",
        "sum(rate(a_total))",
        "a_total[5m]",
        "nonsense(a_total)",
        "a_total{code=5}",
        "sum by code (a_total)",
        "a_total }",
        'a_total{code="5}',
    ],
)
def test_the_expression_parser_rejects_invalid_expressions(expression: str) -> None:
    with pytest.raises(BadExpression):
        parse_expression(expression)
