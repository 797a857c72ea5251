"""Generates the reference pages metrics.md, events.md and settings.md.

They are derived from the metric registries, the event reasons and the settings. A module with
metrics of its own is added to ``_registry``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from datum_compute.app.metrics import UsageMetrics, process_registry
from datum_compute.app.settings.options import PROGRAMS
from datum_compute.app.settings.resolve import Setting
from datum_compute.controllers.events import EVENT_ONLY_REASONS, NORMAL_PROGRESS_REASONS
from datum_compute.controllers.federation.instances import quarantine_gauge
from datum_compute.drivers.connections.activations import PrometheusWakeMetrics
from datum_compute.runtime.event_recorder import BURST, MESSAGE_BYTES_MAX, REFILL_S, EventRecorder
from datum_compute.runtime.manager import Manager
from datum_compute.runtime.metrics import RuntimeMetrics
from datum_compute.server.flowcontrol.control import FlowControl, stopped_clock
from datum_compute.server.http.metrics import PortMetrics
from datum_compute.server.metrics import ServerMetrics
from datum_compute.server.verbs.event_encoder import EventEncoder

_METRIC_HEADINGS = ("Name", "Type", "Labels", "Meaning")

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]

_METRICS = """\
# Metrics

The format is the text format of Prometheus. The server serves metrics at `/metrics` of the platform
plane, to `platform-admin` and to users with the role `metrics-reader`. `compute-manager` serves
them at `--metrics-address`; requests from other machines need the token of `--metrics-token-file`.
Unknown resources and verbs are counted as `other`, so that requests cannot add labels without
limit.

"""
_EVENTS = """\
# Events

Controllers record core Events for Workloads, WorkloadDeployments and Instances in projects and
cells (`kubectl describe`, `kubectl get events`). An event is written for a change; a repetition
increases its count. Without changes, no events are written. An event is deleted an hour after its
last occurrence. A message has at most {note} bytes. An object gets at most {burst} events at once,
and then one every {refill} minutes. The component is `compute-manager`.

"""
_CONDITIONS = """\

A change of the main condition (`Available` of a Workload and a WorkloadDeployment, `Ready` of an
Instance) is also an event, with the reason and the message of the condition. The type is `Normal`
if the condition became true, and `Warning` if it became false or a problem prevents it. The
following reasons are normal progress, and are recorded only if the condition was true before:

{reasons}.
"""
_SETTINGS = """\
# Settings

The settings of the processes. The flags of `datumctl compute` are in [cli.md](cli.md). A flag
takes precedence over the environment, then the file of `--config FILE` (`DATUM_CONFIG`), then the
default. The file is YAML: one `name: value` per setting, where `a-b: value` can also be written as
`a: {b: value}`. An unknown name in the file is an error. `--no-<name>`, or the value `false`, turns
a switch off. `compute-manager --server-config FILE` reads a file of kind WorkloadOperator
([fields](../guides/kubernetes.md#a-file-of-kind-workloadoperator)), below `--config`.

`compute-server config show`, `compute-cell config show` and `compute-manager config show` print
every setting with its value and the source of the value; they accept the flags of the process.
"""


def telemetry_files(header: str, table: Table) -> dict[str, str]:
    return {
        "metrics.md": header
        + _METRICS
        + table(("Name", "Type", "Labels", "Meaning"), metric_rows()),
        "events.md": header + _events(table),
        "settings.md": header + _SETTINGS + "".join(_settings(table)),
    }


# --- metrics


def _registry() -> CollectorRegistry:
    registry = process_registry()
    server = ServerMetrics(registry)
    server.register_server(
        _NoStore(),  # type: ignore[arg-type]
        FlowControl(stopped_clock),
        EventEncoder(),
        lambda: 0,
    )
    PortMetrics(registry, lambda: 0.0)
    nothing_random = Random(1)  # noqa: S311 - nothing is drawn
    runtime = RuntimeMetrics(registry)
    Manager([], lambda _manager: None, nothing_random, metrics=runtime)
    runtime.register_gauges((quarantine_gauge(lambda _plane: None),))
    registry.register(UsageMetrics({}, lambda: 0.0))
    EventRecorder(
        lambda _plane: None,
        component="",
        unix_s=lambda: 0.0,
        elapsed_s=lambda: 0.0,
        registry=registry,
    )
    PrometheusWakeMetrics(registry)
    return registry


class _NoStore:
    def planes(self) -> list[str]:
        return []


def metric_rows() -> list[tuple[str, ...]]:
    registry = _registry()
    return sorted(
        (f"`{_shown_name(metric)}`", metric.type, _listed(labels), metric.documentation)
        for collector in list(registry._collector_to_names)
        for metric, labels in _described(collector)
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _described(collector: Collector) -> Iterator[tuple[Metric, Sequence[str]]]:
    describe = getattr(collector, "describe", collector.collect)
    for metric in describe():
        own = getattr(collector, "_labelnames", None)
        seen = tuple(metric.samples[0].labels) if metric.samples else ()
        yield metric, own or getattr(metric, "_labelnames", ()) or seen


def _shown_name(metric: Metric) -> str:
    suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
    return metric.name + suffix


# --- events


def _events(table: Table) -> str:
    head = _EVENTS.format(note=f"{MESSAGE_BYTES_MAX:,}", burst=BURST, refill=int(REFILL_S / 60))
    rows: list[tuple[str, ...]] = [
        (f"`{reason}`", *_type_and_meaning(meaning))
        for reason, meaning in EVENT_ONLY_REASONS.items()
    ]
    reasons = table(("Reason", "Type", "Meaning"), rows)
    return head + reasons + _CONDITIONS.format(reasons=_listed(sorted(NORMAL_PROGRESS_REASONS)))


def _type_and_meaning(text: str) -> tuple[str, str]:
    type_, found, meaning = text.partition(": ")
    return (type_, meaning) if found and type_ == "Warning" else ("Normal", text)


# --- settings


def _settings(table: Table) -> Iterator[str]:
    for program in PROGRAMS:
        yield f"\n## {program.name}\n\n{program.summary}\n\n"
        rows = [_setting(setting) for setting in program.settings]
        yield table(("Flag", "Environment", "Default", "Meaning"), rows)


def _setting(setting: Setting) -> tuple[str, ...]:
    default = f"`{setting.default_text}`" if setting.default_text else ""
    values = f" One of: {', '.join(setting.choices)}." if setting.choices else ""
    return (f"`--{setting.flag}`", f"`{setting.variable}`", default, f"{setting.meaning}{values}")
