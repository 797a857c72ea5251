"""Workloads cannot start to use a network that is being deleted."""

from __future__ import annotations

from datum_compute.admission.queries import Answers, Write
from datum_compute.admission.rules.workload_references import (
    NETWORKS,
    check_networks_not_deleted,
    query_networks,
)
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import on_networks, with_template

OWN, OTHER = {"name": "own"}, {"name": "other"}
TERMINATING = {"namespace": "apps", "name": "own", "deletionTimestamp": "2026-01-02T03:04:05Z"}


def found(new: JsonObject, old: JsonObject | None, *networks: JsonObject) -> list[Cause]:
    listed = {NETWORKS: [{"metadata": network} for network in networks]}
    return list(
        check_networks_not_deleted(Write(WORKLOAD, "apps", new, old), Answers(listed=listed))
    )


def test_a_new_reference_to_a_terminating_network_is_refused() -> None:
    (cause,) = found(on_networks(OWN), None, TERMINATING)
    assert cause.field == "spec.template.spec.networkInterfaces[0].network"
    assert cause.reason == "FieldValueForbidden"
    assert '"own" in the namespace "apps" is being deleted' in cause.message
    assert len(found(on_networks(OWN), on_networks(OTHER), TERMINATING)) == 1


def test_other_networks_are_accepted() -> None:
    stays = {"namespace": "apps", "name": "own"}
    assert found(on_networks(OWN), None, stays) == []
    assert found(on_networks(OWN), None, {**TERMINATING, "namespace": "else"}) == []
    assert found(on_networks(OWN), None) == []


def test_a_workload_that_uses_a_terminating_network_can_be_changed() -> None:
    named = on_networks({**OWN, "namespace": "apps"})
    named["spec"]["paused"] = True
    assert list(query_networks(Write(WORKLOAD, "apps", named, on_networks(OWN)))) == []
    assert found(named, on_networks(OWN), TERMINATING) == []


def test_a_workload_without_a_network_uses_the_default_network() -> None:
    default_network = {**TERMINATING, "namespace": "default", "name": "default"}
    (cause,) = found(with_template(), None, default_network)
    assert cause.field == "spec.template.spec.networkInterfaces"
    assert found(with_template(), None, {**default_network, "namespace": "apps"}) == []
