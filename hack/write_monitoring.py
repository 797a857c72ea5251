"""Write the Grafana dashboard: ``python -m hack.write_monitoring [--check] deploy/monitoring``.

A panel is a line in ``ROWS``: its title, its unit, and what it shows. The rest is the same for all.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

from hack.generated import main


class Panel(NamedTuple):
    title: str
    unit: str
    shown: tuple[tuple[str, str], ...]  # expression, legend


_FAILED = (
    'sum(rate(runtime_reconciles_total{outcome=~"error|timeout"}[$__rate_interval]))'
    " / sum(rate(runtime_reconciles_total[$__rate_interval]))"
)
_OURS = "and on (instance, job) datum_build_info"
_PROCESSOR = f"rate(process_cpu_seconds_total[$__rate_interval]) {_OURS}"
_QUANTILE = "histogram_quantile({q}, sum by ({by}) (rate({metric}_bucket[$__rate_interval])))"


def _quantiles(metric: str, *by: str) -> tuple[tuple[str, str], ...]:
    labels = ", ".join(("le", *by))
    told = "".join(f"{{{{{label}}}}} " for label in by)
    return tuple(
        (_QUANTILE.format(q=q, by=labels, metric=metric), f"{told}p{round(q * 100)}")
        for q in (0.5, 0.99)
    )


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "At a glance",
        (
            Panel("Planes engaged", "short", (("max(runtime_planes)", "planes"),)),
            Panel(
                "Instances known to controllers",
                "short",
                (('max(runtime_view_objects{kind=~"instances.*"})', "instances"),),
            ),
            Panel(
                "Reconciles that fail",
                "percentunit",
                ((_FAILED, "of all"),),
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
            Panel("Reconcile time", "s", _quantiles("runtime_reconcile_seconds", "controller")[1:]),
            Panel(
                "Queue depth",
                "short",
                (("sum by (controller) (runtime_queue_depth)", "{{controller}}"),),
            ),
            Panel(
                "Oldest key",
                "s",
                (("max by (controller) (runtime_queue_oldest_seconds)", "{{controller}}"),),
            ),
            Panel("Wait in queues", "s", _quantiles("runtime_queue_wait_seconds")),
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
                "Age of what is known",
                "s",
                (("min by (plane) (runtime_view_age_seconds)", "{{plane}}"),),
            ),
            Panel(
                "Kinds that cannot be read",
                "short",
                (("min by (plane) (runtime_views_not_synced)", "{{plane}}"),),
            ),
            Panel(
                "Set apart on the hub",
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
                _quantiles("datum_apiserver_request_duration_seconds", "verb")[1:],
            ),
            Panel("Commit time", "s", _quantiles("datum_store_commit_duration_seconds")),
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
                "Commits refused",
                "ops",
                (("sum(rate(datum_store_commit_failures_total[$__rate_interval]))", "refused"),),
            ),
        ),
    ),
    (
        "Processes",
        (
            Panel(
                "Processor",
                "percentunit",
                ((_PROCESSOR, "{{instance}}"),),
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


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(_heading(len(panels), title, top))
        for at, panel in enumerate(row):
            place = (at % _COLUMNS * _WIDTH, top + 1 + at // _COLUMNS * _HEIGHT)
            panels.append(_panel(len(panels), panel, *place))
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


def _heading(number: int, title: str, top: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": _WIDTH * _COLUMNS, "h": 1}
    return {"id": number + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place}


def _panel(number: int, panel: Panel, left: int, top: int) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": left, "y": top, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(panel.shown)
        ],
    }


def monitoring_files() -> dict[str, str]:
    return {"dashboard.json": json.dumps(dashboard(), indent=1) + "\n"}


if __name__ == "__main__":
    sys.exit(main(monitoring_files(), "crds"))
