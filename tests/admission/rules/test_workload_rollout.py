"""The policy for rollouts of a workload: its canary city."""

from __future__ import annotations

import pytest

from datum_compute.admission.chain import admit
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject


def a_workload(rollout: JsonObject) -> JsonObject:
    container = {"name": "app", "image": "web:1"}
    placement = {"name": "main", "cityCodes": ["dfw", "lhr"], "scaleSettings": {"minReplicas": 1}}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
            "placements": [placement],
            "rollout": rollout,
        },
    }


def test_canary_city_becomes_upper_case() -> None:
    sent = a_workload({"cityOrder": "CanaryCity", "canaryCity": "lhr"})
    admitted, causes = admit(WORKLOAD, sent, None)
    assert causes == []
    assert admitted["spec"]["rollout"]["canaryCity"] == "LHR"


@pytest.mark.parametrize(
    ("rollout", "field", "reason"),
    [
        (
            {"cityOrder": "CanaryCity", "canaryCity": "SYD"},
            "spec.rollout.canaryCity",
            "FieldValueInvalid",
        ),
        (
            {"cityOrder": "Parallel", "canaryCity": "DFW"},
            "spec.rollout.canaryCity",
            "FieldValueForbidden",
        ),
        (
            {"canaryCity": "DFW"},
            "spec.rollout.canaryCity",
            "FieldValueForbidden",
        ),
    ],
)
def test_canary_city_is_refused_when_it_is_unknown_or_has_no_effect(
    rollout: JsonObject, field: str, reason: str
) -> None:
    found = {c.field: c.reason for c in admit(WORKLOAD, a_workload(rollout), None)[1]}
    assert found == {field: reason}
