"""Limits on the rules of a role and the subjects of a binding."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import find_errors
from datum_compute.admission.rules.rbac import RULES_MAX, SUBJECTS_MAX
from datum_compute.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PlaneName
from datum_compute.api.schema.report import ERRORS_MAX
from datum_compute.planes.roles import rules_by_role

RBAC = "rbac.authorization.k8s.io"
RULE: JsonObject = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}
SUBJECT: JsonObject = {"kind": "User", "name": "ann", "apiGroup": RBAC}


def role(count: int, rule: JsonObject = RULE) -> JsonObject:
    return {"metadata": {"name": "r"}, "rules": [rule] * count}


def binding(count: int) -> JsonObject:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"}
    return {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [SUBJECT] * count}


@pytest.mark.parametrize("kind", [ROLE, CLUSTER_ROLE])
def test_a_role_has_a_limited_number_of_rules(kind: KindInfo[Any]) -> None:
    assert find_errors(kind, role(RULES_MAX), None) == []
    (cause,) = find_errors(kind, role(RULES_MAX + 1), None)
    assert (cause.field, cause.reason) == ("rules", "FieldValueTooMany")
    assert cause.message == "Too many: 501: must have at most 500 items; split the role"


@pytest.mark.parametrize("kind", [ROLE_BINDING, CLUSTER_ROLE_BINDING])
def test_a_binding_has_a_limited_number_of_subjects(kind: KindInfo[Any]) -> None:
    assert find_errors(kind, binding(SUBJECTS_MAX), None) == []
    (cause,) = find_errors(kind, binding(SUBJECTS_MAX + 1), None)
    assert (cause.field, cause.reason) == ("subjects", "FieldValueTooMany")
    assert "must have at most 1000 items; use a group or several bindings" in cause.message


def test_an_object_above_the_limit_can_shrink_but_not_grow() -> None:
    assert find_errors(ROLE, role(1400), role(1500)) == []
    assert find_errors(ROLE_BINDING, binding(1500), binding(1500)) == []
    assert [cause.field for cause in find_errors(ROLE, role(1501), role(1500))] == ["rules"]


def test_the_roles_of_the_platform_have_fewer_rules() -> None:
    for plane in ("platform", "hub", "project/demo", "cell/dfw"):
        assert max(map(len, rules_by_role(PlaneName(plane)).values())) <= RULES_MAX // 10


def test_the_number_of_errors_is_limited() -> None:
    causes = find_errors(ROLE, role(RULES_MAX, {"verbs": []}), None)
    assert len(causes) == ERRORS_MAX + 1
    assert "fix these first" in causes[-1].message
