"""Copies of sources on the hub: as many as are referred to, for those who do, and not longer."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import NAMESPACE, POLICY, SECRET
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB, project_plane
from datum_compute.api.propagationpolicy import PropagationPolicy
from datum_compute.api.secret import Secret
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.federation.referenced_objects import (
    CompanionState,
    plan_companion,
    referenced_by,
)
from datum_compute.planning.plan import Create, Delete, Patch, Plan, Wait
from testkit.builders import NOW, a_deployment

KEY = (project_plane("alpha"), Ref("default", "db"))
HOME = Namespace(metadata=ObjectMeta(name="default", uid="u1"))
SOURCE = Secret(
    metadata=ObjectMeta(name="db", namespace="default", uid="s", resource_version="7"),
    data={"a": "eA=="},
)
EMPTY = CompanionState(None, (), None, None)


def using(city: str = "DFW", *, terminating: bool = False) -> WorkloadDeployment:
    marks = (labels.REFERENCED_DATA_FINALIZER,)
    name = f"web-{city.lower()}"
    return a_deployment(city=city, name=name, finalizers=marks, terminating=terminating)


def planned(
    *deployments: WorkloadDeployment, hub: CompanionState = EMPTY, source: Secret | None = SOURCE
) -> Plan:
    return plan_companion(SECRET, KEY, HOME, source, deployments, hub)


def made(*deployments: WorkloadDeployment) -> CompanionState:
    """The hub after the plan has been carried out."""
    found = {a.kind.kind: a.object for a in planned(*deployments).actions if isinstance(a, Create)}
    secret, policy, namespace = found["Secret"], found["PropagationPolicy"], found["Namespace"]
    assert isinstance(secret, Secret)
    assert isinstance(policy, PropagationPolicy)
    assert isinstance(namespace, Namespace)
    return CompanionState(namespace, (secret,), secret, policy)


def test_a_source_that_is_referred_to_has_a_copy_and_a_policy_of_its_own() -> None:
    hub = made(using("DFW"), using("LHR"))
    assert isinstance(hub.taken, Secret)
    assert (hub.taken.data, hub.taken.type) == (SOURCE.data, SOURCE.type)
    assert hub.taken.metadata.namespace == "ns-u1"
    assert hub.taken.metadata.annotations[labels.SOURCE_VERSION] == "7"
    assert referenced_by(hub.taken) == ["default/web-dfw", "default/web-lhr"]
    assert hub.policy is not None
    (served,) = hub.policy.spec.placement.cluster_affinity.label_selector.match_expressions  # type: ignore[union-attr]
    assert served.values == ["DFW", "LHR"]
    assert planned(using("DFW"), using("LHR"), hub=hub).is_settled


@pytest.mark.parametrize("left", [(), (using(terminating=True),), (a_deployment(),)])
def test_the_copy_goes_with_the_last_that_counts(left: tuple[WorkloadDeployment, ...]) -> None:
    gone = planned(*left, hub=made(using())).actions
    assert [(a.plane, a.kind) for a in gone if isinstance(a, Delete)] == [
        (HUB, SECRET),
        (HUB, POLICY),
    ]


def test_one_reference_less_takes_its_city_away_and_leaves_the_copy() -> None:
    actions = planned(using("DFW"), hub=made(using("DFW"), using("LHR"))).actions
    assert [a.kind for a in actions if isinstance(a, Patch)] == [SECRET, POLICY]
    assert not [a for a in actions if isinstance(a, Delete)]


def test_a_change_of_the_source_is_passed_on_as_a_whole() -> None:
    changed = msgspec.structs.replace(SOURCE, data={"b": "eQ=="})
    (patch,) = planned(using(), hub=made(using()), source=changed).actions
    assert isinstance(patch, Patch)
    assert patch.patch["data"] == {"a": None, "b": "eQ=="}


def test_a_source_that_is_gone_leaves_the_copy_as_it_is() -> None:
    assert planned(using(), hub=made(using()), source=None).is_settled
    created = [a.kind for a in planned(using(), source=None).actions if isinstance(a, Create)]
    assert SECRET not in created


def test_a_source_that_is_too_large_is_not_copied() -> None:
    large = msgspec.structs.replace(SOURCE, data={"a": "eA==" * 100_000})
    actions = planned(using(), source=large).actions
    assert SECRET not in [a.kind for a in actions if isinstance(a, Create)]


def test_another_type_makes_the_copy_anew() -> None:
    other = msgspec.structs.replace(SOURCE, type="kubernetes.io/tls")
    actions = planned(using(), hub=made(using()), source=other).actions
    assert [a.kind for a in actions if isinstance(a, Delete)] == [SECRET]


def test_what_is_no_companion_is_not_touched() -> None:
    foreign = Secret(metadata=ObjectMeta(name="db", namespace="ns-u1", uid="x"))
    hub = CompanionState(None, (), foreign, None)
    (wait,) = planned(using(), hub=hub).actions
    assert isinstance(wait, Wait)
    assert planned(hub=hub).actions == ()


def test_a_copy_in_the_home_of_an_earlier_namespace_goes() -> None:
    hub = made(using())
    later = Namespace(metadata=ObjectMeta(name="default", uid="u2"))
    state = CompanionState(None, hub.companions, None, None)
    actions = plan_companion(SECRET, KEY, later, SOURCE, [using()], state).actions
    assert isinstance(actions[0], Delete)
    assert actions[0].ref == Ref("ns-u1", "db")
    assert [a.kind for a in actions if isinstance(a, Create)] == [NAMESPACE, SECRET, POLICY]


def test_nothing_is_made_in_a_hub_namespace_that_goes() -> None:
    leaving = Namespace(metadata=ObjectMeta(name="ns-u1", deletion_timestamp=NOW))
    (wait,) = planned(using(), hub=CompanionState(leaving, (), None, None)).actions
    assert isinstance(wait, Wait)


def test_what_users_write_on_a_source_is_no_version() -> None:
    metadata = msgspec.structs.replace(
        SOURCE.metadata,
        labels={labels.REFERENCED_DATA: "true"},
        annotations={labels.SOURCE_VERSION: "999999"},
    )
    forged = msgspec.structs.replace(SOURCE, metadata=metadata)
    assert planned(using(), hub=made(using()), source=forged).is_settled
