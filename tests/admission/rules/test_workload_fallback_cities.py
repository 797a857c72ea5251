"""Fallback cities and city floors of a placement."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import admit
from datum_compute.admission.queries import Answers, Write
from datum_compute.admission.rules.workload_references import LOCATIONS, check_cities_known
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject

FLOOR = {"cityCode": "DFW", "readyReplicas": 2}


def a_workload(**placement: Any) -> JsonObject:
    container = {"name": "app", "image": "web:1"}
    placed = {"name": "main", "cityCodes": ["dfw"], "scaleSettings": {"minReplicas": 2}}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
            "placements": [{**placed, **placement}],
        },
    }


def test_all_cities_of_a_placement_become_upper_case() -> None:
    floors = [{"cityCode": "dfw", "readyReplicas": 1}]
    sent = a_workload(fallbackCityCodes=["iad ", "Syd"], cityFloors=floors)
    admitted, causes = admit(WORKLOAD, sent, None)
    (placement,) = admitted["spec"]["placements"]
    assert causes == []
    assert placement["fallbackCityCodes"] == ["IAD", "SYD"]
    assert placement["cityFloors"][0]["cityCode"] == "DFW"


@pytest.mark.parametrize(
    ("placement", "field", "reason"),
    [
        ({"fallbackCityCodes": ["IAD", "iad"]}, "fallbackCityCodes[1]", "FieldValueDuplicate"),
        ({"fallbackCityCodes": ["DFW"]}, "fallbackCityCodes[0]", "FieldValueDuplicate"),
        ({"cityFloors": [FLOOR]}, "cityFloors", "FieldValueForbidden"),
        (
            {"fallbackCityCodes": ["IAD"], "cityFloors": [{**FLOOR, "cityCode": "IAD"}]},
            "cityFloors[0].cityCode",
            "FieldValueInvalid",
        ),
        (
            {"fallbackCityCodes": ["IAD"], "cityFloors": [{**FLOOR, "readyReplicas": 3}]},
            "cityFloors[0].readyReplicas",
            "FieldValueInvalid",
        ),
        (
            {"fallbackCityCodes": ["IAD"], "cityFloors": [FLOOR, FLOOR]},
            "cityFloors[1].cityCode",
            "FieldValueDuplicate",
        ),
    ],
)
def test_invalid_fallback_cities_and_floors_are_refused(
    placement: JsonObject, field: str, reason: str
) -> None:
    found = {c.field: c.reason for c in admit(WORKLOAD, a_workload(**placement), None)[1]}
    assert found == {f"spec.placements[0].{field}": reason}


def test_a_fallback_city_must_be_one_of_the_project() -> None:
    location = {"spec": {"topology": {"topology.datum.net/city-code": "DFW"}}}
    write = Write(WORKLOAD, "default", a_workload(fallbackCityCodes=["DFX"]), None)
    (cause,) = check_cities_known(write, Answers(listed={LOCATIONS: [location]}))
    assert isinstance(cause, Cause)
    assert cause.field == "spec.placements[0].fallbackCityCodes[0]"
    assert "did you mean DFW?" in cause.message
