"""Copies that lead to nobody: set apart after a while, told once, tried again, never deleted."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.instance import Instance
from datum_compute.api.meta import ObjectMeta
from datum_compute.api.namespace import Namespace
from datum_compute.planning.federation.instances import (
    BAD_IDENTITY,
    FOREIGN_IDENTITY,
    GRACE_S,
    NO_DEPLOYMENT,
    NO_IDENTITY,
    NO_ORDINAL,
    deployment_problem,
    identity_problem,
    is_quarantined,
    plan_quarantine,
    plan_readmission,
    quarantine_reason,
)
from datum_compute.planning.plan import Patch
from testkit.builders import NOW, an_instance

PROBLEM = deployment_problem("shop", "default", "web-dfw")


def a_copy(**identity: str) -> Instance:
    told = {
        labels.UPSTREAM_CLUSTER: identity.get("project", "cluster-shop"),
        labels.UPSTREAM_NAMESPACE: identity.get("namespace", "default"),
    }
    return with_metadata(an_instance(0), labels={k: v for k, v in told.items() if v})


def with_metadata(instance: Instance, **fields: object) -> Instance:
    metadata = msgspec.structs.replace(instance.metadata, **fields)
    return msgspec.structs.replace(instance, metadata=metadata)


def after(instance: Instance, patch: object) -> Instance:
    assert isinstance(patch, Patch)
    changes = patch.patch["metadata"]["annotations"]
    merged = {**instance.metadata.annotations, **changes}
    return with_metadata(instance, annotations={k: v for k, v in merged.items() if v is not None})


@dataclass(frozen=True)
class Case:
    copy: Instance
    reason: str | None


@pytest.mark.parametrize(
    "case",
    [
        Case(a_copy(), None),
        Case(a_copy(project="cluster-org_shop"), None),
        Case(a_copy(project=""), NO_IDENTITY),
        Case(a_copy(namespace=""), NO_IDENTITY),
        Case(a_copy(project="shop"), BAD_IDENTITY),
        Case(a_copy(project="cluster-"), BAD_IDENTITY),
    ],
)
def test_what_is_wrong_with_the_identity_of_a_copy(case: Case) -> None:
    problem = identity_problem(case.copy, None)
    assert (problem[0] if problem else None) == case.reason


@pytest.mark.parametrize(
    ("project", "namespace", "reason"),
    [
        ("cluster-shop", "default", None),
        ("cluster-org_shop", "default", None),  # the same in other words
        ("cluster-bank", "default", FOREIGN_IDENTITY),
        ("cluster-shop", "team", FOREIGN_IDENTITY),
        ("", "", FOREIGN_IDENTITY),  # nobody's home
    ],
)
def test_a_copy_cannot_say_that_it_is_of_another_than_its_namespace(
    project: str, namespace: str, reason: str | None
) -> None:
    told = {labels.UPSTREAM_CLUSTER: project, labels.UPSTREAM_NAMESPACE: namespace}
    home = Namespace(metadata=ObjectMeta(name="ns-uid", labels=told))
    problem = identity_problem(a_copy(), home)
    assert (problem[0] if problem else None) == reason


def named(name: str, deployment: str = "") -> Instance:
    copy = a_copy()
    own = {labels.DEPLOYMENT_NAME: deployment} if deployment else {}
    return with_metadata(copy, name=name, labels={**copy.metadata.labels, **own})


@pytest.mark.parametrize(
    ("name", "deployment"),
    [
        ("web-dfw-0", "web-dfw"),
        ("web-dfw-10", "web-dfw"),
        ("web-dfw-7", ""),
        ("web-dfw-999999999", "web-dfw"),  # beyond any replica count: scaling down takes a moment
        ("web-2-3", "web-2"),
    ],
)
def test_a_copy_with_an_ordinal_of_its_deployment_has_no_problem(
    name: str, deployment: str
) -> None:
    assert identity_problem(named(name, deployment), None) is None


@pytest.mark.parametrize(
    ("name", "deployment"),
    [
        ("web-dfw-abc", "web-dfw"),
        ("web-dfw-abc", ""),
        ("web-dfw-01", "web-dfw"),
        ("web-dfw-01", ""),
        ("web-dfw--1", "web-dfw"),
        ("web-dfw-+1", "web-dfw"),
        ("web-dfw-1.0", "web-dfw"),
        ("web-dfw-\u0661", "web-dfw"),  # a decimal digit, but not an ASCII one
        ("web-dfw-99999999999", "web-dfw"),
        ("web-dfw-99999999999", ""),
        ("web-dfw", "web-dfw"),
        ("web-dfw-", "web-dfw"),
        ("web-dfw-0-0", "web-dfw"),
        ("shop-dfw-0", "web-dfw"),
        ("web-0", "web-dfw"),
        ("0", ""),
        ("-0", ""),
    ],
)
def test_a_copy_without_an_ordinal_of_its_deployment_is_a_problem(
    name: str, deployment: str
) -> None:
    problem = identity_problem(named(name, deployment), None)
    assert problem is not None
    assert problem[0] == NO_ORDINAL
    assert name in problem[1]


def test_those_who_can_put_it_right_have_a_while() -> None:
    plan = plan_quarantine(a_copy(), PROBLEM, 10.0, NOW)
    assert plan.is_settled
    assert plan.requeue_after_s == GRACE_S - 10.0


def test_it_is_marked_once_and_then_left_alone() -> None:
    copy = a_copy()
    (mark,) = plan_quarantine(copy, PROBLEM, GRACE_S, NOW).actions
    marked = after(copy, mark)
    assert is_quarantined(marked)
    assert quarantine_reason(marked) == NO_DEPLOYMENT
    assert marked.metadata.annotations[labels.QUARANTINED_AT] == NOW
    assert plan_quarantine(marked, PROBLEM, GRACE_S * 2, "2030-01-01T00:00:00Z").is_settled


def test_another_identity_is_another_chance() -> None:
    (mark,) = plan_quarantine(a_copy(project="junk"), PROBLEM, GRACE_S, NOW).actions
    marked = after(a_copy(project="junk"), mark)
    mended = with_metadata(marked, labels=a_copy().metadata.labels)
    assert not is_quarantined(mended)
    (cleared,) = plan_readmission(mended).actions
    assert not after(mended, cleared).metadata.annotations
    assert plan_readmission(a_copy()).is_settled
