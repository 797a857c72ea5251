"""What sleeps can be woken, and after a time that makes sense."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import admit
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import with_template

FIELD = "spec.template.spec.scaleToZero"
HTTP = {"name": "http", "port": 8080}


def sleeping(wish: JsonObject, *ports: JsonObject) -> JsonObject:
    made: JsonObject = with_template(scaleToZero=wish)
    runtime = made["spec"]["template"]["spec"]["runtime"]
    runtime["sandbox"]["containers"] = [{"name": "app", "image": "web:1", "ports": list(ports)}]
    return made


def complaints(workload: JsonObject) -> list[str]:
    return [cause.field for cause in admit(WORKLOAD, workload, None)[1]]


@pytest.mark.parametrize("idle_after", ["100ms", "30s", "5m", "24h"])
def test_times_that_make_sense_are_accepted(idle_after: str) -> None:
    assert complaints(sleeping({"idleAfter": idle_after}, HTTP)) == []


@pytest.mark.parametrize("idle_after", ["99ms", "25h", "9999999h"])
def test_times_that_make_none_are_refused(idle_after: str) -> None:
    assert complaints(sleeping({"idleAfter": idle_after}, HTTP)) == [f"{FIELD}.idleAfter"]


@pytest.mark.parametrize("ports", [(), ({**HTTP, "protocol": "UDP"},)])
def test_what_nothing_could_wake_is_refused(ports: tuple[Any, ...]) -> None:
    assert complaints(sleeping({}, *ports)) == [FIELD]
