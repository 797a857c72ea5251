"""Writes that need the verb ``control``."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.context_rules import evaluate, queries_of_write
from datum_compute.admission.queries import AccessQuery, Answers, Write
from datum_compute.admission.rules.controller_owned import (
    check_controller_access,
    query_controller_access,
)
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import with_template

ACCESS = AccessQuery("control", "compute.datumapis.com", "instances", "default")


def an_instance(*gates: str, **metadata: Any) -> JsonObject:
    controller = {"schedulingGates": [{"name": gate} for gate in gates]}
    return {"metadata": {"name": "web-0", **metadata}, "spec": {"controller": controller}}


OLD = an_instance("Quota")

NEEDS_CONTROL = [
    (OLD, None),
    (an_instance(), OLD),
    (an_instance("Quota", labels={"compute.datumapis.com/workload-uid": "1"}), OLD),
    (an_instance("Quota", annotations={"topology.datum.net/city-code": "DFW"}), OLD),
    (OLD, an_instance("Quota", labels={"meta.datumapis.com/upstream-namespace": "a"})),
]
NEEDS_NOTHING = [
    (an_instance("Quota", finalizers=[]), an_instance("Quota", finalizers=["a/b"])),
    (an_instance("Quota", ownerReferences=[]), OLD),
    (an_instance("Quota", labels={"team": "a", "example.com/x": "1"}), OLD),
    (an_instance("Quota", labels={"notdatumapis.com/x": "1"}), OLD),
    ({**OLD, "status": {"conditions": []}}, OLD),
]


@pytest.mark.parametrize(("new", "old"), NEEDS_CONTROL)
def test_specs_and_platform_labels_need_the_verb_control(
    new: JsonObject, old: JsonObject | None
) -> None:
    write = Write(INSTANCE, "default", new, old)
    assert list(query_controller_access(write)) == [ACCESS]
    (cause,) = check_controller_access(write, Answers(allowed={ACCESS: False}))
    assert (cause.field, cause.reason) == ("spec", "FieldValueForbidden")
    assert "change the Workload instead" in cause.message
    assert list(check_controller_access(write, Answers(allowed={ACCESS: True}))) == []


@pytest.mark.parametrize(("new", "old"), NEEDS_NOTHING)
def test_owners_finalizers_and_other_labels_need_no_access(
    new: JsonObject, old: JsonObject
) -> None:
    write = Write(INSTANCE, "default", new, old)
    assert list(query_controller_access(write)) == []
    assert list(check_controller_access(write, Answers())) == []


def test_deployments_need_the_verb_control_and_workloads_do_not() -> None:
    deployment = Write(DEPLOYMENT, "default", OLD, None)
    (right,) = queries_of_write(deployment)
    assert isinstance(right, AccessQuery)
    assert (right.verb, right.resource) == ("control", "workloaddeployments")
    assert evaluate(deployment, Answers(allowed={right: False})).causes
    verbs = [
        q.verb
        for q in queries_of_write(Write(WORKLOAD, "default", with_template(), None))
        if isinstance(q, AccessQuery)
    ]
    assert verbs == ["use"]
