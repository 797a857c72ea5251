"""What only controllers may write."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.context_rules import evaluate, questions_of
from datum_compute.admission.questions import AccessQuery, Answers, Write
from datum_compute.admission.rules.controller_owned import asks_who_controls, controllers_write
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import with_template

RIGHT = AccessQuery("control", "compute.datumapis.com", "instances", "default")


def an_instance(*gates: str, **metadata: Any) -> JsonObject:
    controller = {"schedulingGates": [{"name": gate} for gate in gates]}
    return {"metadata": {"name": "web-0", **metadata}, "spec": {"controller": controller}}


OLD = an_instance("Quota")

CONTROLLERS_WORK = [
    (OLD, None),
    (an_instance(), OLD),
    (an_instance("Quota", labels={"compute.datumapis.com/workload-uid": "1"}), OLD),
    (an_instance("Quota", annotations={"topology.datum.net/city-code": "DFW"}), OLD),
    (OLD, an_instance("Quota", labels={"meta.datumapis.com/upstream-namespace": "a"})),
]
ANYBODYS = [
    (an_instance("Quota", finalizers=[]), an_instance("Quota", finalizers=["a/b"])),
    (an_instance("Quota", ownerReferences=[]), OLD),
    (an_instance("Quota", labels={"team": "a", "example.com/x": "1"}), OLD),
    (an_instance("Quota", labels={"notdatumapis.com/x": "1"}), OLD),
    ({**OLD, "status": {"conditions": []}}, OLD),
]


@pytest.mark.parametrize(("new", "old"), CONTROLLERS_WORK)
def test_gates_templates_and_our_marks_take_the_right_to_control(
    new: JsonObject, old: JsonObject | None
) -> None:
    write = Write(INSTANCE, "default", new, old)
    assert list(asks_who_controls(write)) == [RIGHT]
    (cause,) = controllers_write(write, Answers(allowed={RIGHT: False}))
    assert (cause.field, cause.reason) == ("spec", "FieldValueForbidden")
    assert "change the Workload instead" in cause.message
    assert list(controllers_write(write, Answers(allowed={RIGHT: True}))) == []


@pytest.mark.parametrize(("new", "old"), ANYBODYS)
def test_owners_finalizers_and_foreign_marks_take_no_right(
    new: JsonObject, old: JsonObject
) -> None:
    write = Write(INSTANCE, "default", new, old)
    assert list(asks_who_controls(write)) == []
    assert list(controllers_write(write, Answers())) == []


def test_deployments_are_guarded_and_workloads_are_their_users_own() -> None:
    deployment = Write(DEPLOYMENT, "default", OLD, None)
    (right,) = questions_of(deployment)
    assert isinstance(right, AccessQuery)
    assert (right.verb, right.resource) == ("control", "workloaddeployments")
    assert evaluate(deployment, Answers(allowed={right: False})).causes
    verbs = [
        q.verb
        for q in questions_of(Write(WORKLOAD, "default", with_template(), None))
        if isinstance(q, AccessQuery)
    ]
    assert verbs == ["use"]
