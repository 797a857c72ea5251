"""Scale to zero: idle times, and the port that wakes an instance."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import admit
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import with_template

FIELD = "spec.template.spec.scaleToZero"
HTTP = {"name": "http", "port": 8080}


def with_scale_to_zero(settings: JsonObject, *ports: JsonObject) -> JsonObject:
    workload: JsonObject = with_template(scaleToZero=settings)
    runtime = workload["spec"]["template"]["spec"]["runtime"]
    runtime["sandbox"]["containers"] = [{"name": "app", "image": "web:1", "ports": list(ports)}]
    return workload


def invalid_fields(workload: JsonObject) -> list[str]:
    return [cause.field for cause in admit(WORKLOAD, workload, None)[1]]


@pytest.mark.parametrize("idle_after", ["100ms", "30s", "5m", "24h"])
def test_idle_times_between_100_ms_and_24_h_are_accepted(idle_after: str) -> None:
    assert invalid_fields(with_scale_to_zero({"idleAfter": idle_after}, HTTP)) == []


@pytest.mark.parametrize("idle_after", ["99ms", "25h", "9999999h"])
def test_other_idle_times_are_refused(idle_after: str) -> None:
    assert invalid_fields(with_scale_to_zero({"idleAfter": idle_after}, HTTP)) == [
        f"{FIELD}.idleAfter"
    ]


@pytest.mark.parametrize("ports", [(), ({**HTTP, "protocol": "UDP"},)])
def test_a_workload_without_a_tcp_port_is_refused(ports: tuple[Any, ...]) -> None:
    assert invalid_fields(with_scale_to_zero({}, *ports)) == [FIELD]
