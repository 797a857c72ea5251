"""The Grafana dashboard of deploy/monitoring.

``ROWS`` lists the panels: title, unit, expressions. All other settings are the same for all panels.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Panel(NamedTuple):
    title: str
    unit: str
    series: tuple[tuple[str, str], ...]  # expression, legend


_FAILED_SHARE = (
    'sum(rate(runtime_reconciles_total{outcome=~"error|timeout"}[$__rate_interval]))'
    " / sum(rate(runtime_reconciles_total[$__rate_interval]))"
)
_ONLY_DATUM = "and on (instance, job) datum_build_info"
_CPU_USAGE = f"rate(process_cpu_seconds_total[$__rate_interval]) {_ONLY_DATUM}"
_QUANTILE_QUERY = "histogram_quantile({q}, sum by ({by}) (rate({metric}_bucket[$__rate_interval])))"


def _quantile_series(metric: str, *by: str) -> tuple[tuple[str, str], ...]:
    labels = ", ".join(("le", *by))
    prefix = "".join(f"{{{{{label}}}}} " for label in by)
    return tuple(
        (_QUANTILE_QUERY.format(q=q, by=labels, metric=metric), f"{prefix}p{round(q * 100)}")
        for q in (0.5, 0.99)
    )


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "At a glance",
        (
            Panel("Planes engaged", "short", (("max(runtime_planes)", "planes"),)),
            Panel(
                "Instances in caches",
                "short",
                (('max(runtime_view_objects{kind=~"instances.*"})', "instances"),),
            ),
            Panel(
                "Failed reconciles",
                "percentunit",
                ((_FAILED_SHARE, "of all reconciles"),),
            ),
            Panel("Releases", "short", (("count by (version) (datum_build_info)", "{{version}}"),)),
        ),
    ),
    (
        "Controllers",
        (
            Panel(
                "Reconciles by outcome",
                "ops",
                (
                    (
                        "sum by (outcome) (rate(runtime_reconciles_total[$__rate_interval]))",
                        "{{outcome}}",
                    ),
                ),
            ),
            Panel(
                "Reconcile time",
                "s",
                _quantile_series("runtime_reconcile_seconds", "controller")[1:],
            ),
            Panel(
                "Queue depth",
                "short",
                (("sum by (controller) (runtime_queue_depth)", "{{controller}}"),),
            ),
            Panel(
                "Age of the oldest key",
                "s",
                (("max by (controller) (runtime_queue_oldest_seconds)", "{{controller}}"),),
            ),
            Panel("Queue wait", "s", _quantile_series("runtime_queue_wait_seconds")),
            Panel(
                "Retries",
                "ops",
                (
                    (
                        "sum by (controller) (rate(runtime_retries_total[$__rate_interval]))",
                        "{{controller}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Planes",
        (
            Panel(
                "Age of the cache",
                "s",
                (("min by (plane) (runtime_view_age_seconds)", "{{plane}}"),),
            ),
            Panel(
                "Kinds that are not synced",
                "short",
                (("min by (plane) (runtime_views_not_synced)", "{{plane}}"),),
            ),
            Panel(
                "Quarantined copies on the hub",
                "short",
                (("sum by (reason) (compute_federation_quarantined_objects)", "{{reason}}"),),
            ),
            Panel(
                "Events for users",
                "ops",
                (
                    (
                        "sum by (outcome) (rate(datum_events_total[$__rate_interval]))",
                        "{{outcome}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Embedded server",
        (
            Panel(
                "Requests by code",
                "reqps",
                (
                    (
                        "sum by (code) (rate(datum_apiserver_requests_total[$__rate_interval]))",
                        "{{code}}",
                    ),
                ),
            ),
            Panel(
                "Request time p99",
                "s",
                _quantile_series("datum_apiserver_request_duration_seconds", "verb")[1:],
            ),
            Panel("Commit time", "s", _quantile_series("datum_store_commit_duration_seconds")),
            Panel(
                "Objects by plane",
                "short",
                (("sum by (plane) (datum_store_objects)", "{{plane}}"),),
            ),
            Panel(
                "Open watches, requests in flight",
                "short",
                (
                    ("sum(datum_apiserver_open_watches)", "watches"),
                    ("sum(datum_apiserver_requests_in_flight)", "requests"),
                ),
            ),
            Panel(
                "Failed commits",
                "ops",
                (("sum(rate(datum_store_commit_failures_total[$__rate_interval]))", "failed"),),
            ),
        ),
    ),
    (
        "Processes",
        (
            Panel(
                "CPU",
                "percentunit",
                ((_CPU_USAGE, "{{instance}}"),),
            ),
            Panel(
                "Memory",
                "bytes",
                (
                    (
                        "process_resident_memory_bytes and on (instance, job) datum_build_info",
                        "{{instance}}",
                    ),
                ),
            ),
        ),
    ),
)
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def build_dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(_build_heading(len(panels), title, top))
        for at, panel in enumerate(row):
            position = (at % _COLUMNS * _WIDTH, top + 1 + at // _COLUMNS * _HEIGHT)
            panels.append(_build_panel(len(panels), panel, *position))
        top += 1 + -(-len(row) // _COLUMNS) * _HEIGHT
    return {
        "title": "Datum compute",
        "uid": "datum-compute",
        "tags": ["datum-compute"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }


def _build_heading(number: int, title: str, top: int) -> dict[str, Any]:
    position = {"x": 0, "y": top, "w": _WIDTH * _COLUMNS, "h": 1}
    return {
        "id": number + 1,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": position,
    }


def _build_panel(number: int, panel: Panel, left: int, top: int) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": left, "y": top, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(panel.series)
        ],
    }


def dashboard_files() -> dict[str, str]:
    return {"dashboard.json": json.dumps(build_dashboard(), indent=1) + "\n"}
