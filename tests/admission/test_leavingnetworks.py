"""Networks that are being deleted take no new workloads."""

from __future__ import annotations

from datum_compute.admission.questions import Answers, Write
from datum_compute.admission.rules.workload_references import (
    NETWORKS,
    asks_for_networks,
    networks_stay,
)
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import on_networks, with_template

OWN, OTHER = {"name": "own"}, {"name": "other"}
LEAVING = {"namespace": "apps", "name": "own", "deletionTimestamp": "2026-01-02T03:04:05Z"}


def found(new: JsonObject, old: JsonObject | None, *networks: JsonObject) -> list[Cause]:
    listed = {NETWORKS: [{"metadata": network} for network in networks]}
    return list(networks_stay(Write(WORKLOAD, "apps", new, old), Answers(listed=listed)))


def test_a_network_that_is_being_deleted_is_not_joined() -> None:
    (cause,) = found(on_networks(OWN), None, LEAVING)
    assert cause.field == "spec.template.spec.networkInterfaces[0].network"
    assert cause.reason == "FieldValueForbidden"
    assert '"own" in the namespace "apps" is being deleted' in cause.message
    assert len(found(on_networks(OWN), on_networks(OTHER), LEAVING)) == 1


def test_others_and_those_of_the_same_name_elsewhere_are() -> None:
    stays = {"namespace": "apps", "name": "own"}
    assert found(on_networks(OWN), None, stays) == []
    assert found(on_networks(OWN), None, {**LEAVING, "namespace": "else"}) == []
    assert found(on_networks(OWN), None) == []


def test_who_is_in_it_may_be_edited_there() -> None:
    named = on_networks({**OWN, "namespace": "apps"})
    named["spec"]["paused"] = True
    assert list(asks_for_networks(Write(WORKLOAD, "apps", named, on_networks(OWN)))) == []
    assert found(named, on_networks(OWN), LEAVING) == []


def test_the_network_that_nobody_names_is_the_one_of_the_project() -> None:
    leaving = {**LEAVING, "namespace": "default", "name": "default"}
    (cause,) = found(with_template(), None, leaving)
    assert cause.field == "spec.template.spec.networkInterfaces"
    assert found(with_template(), None, {**leaving, "namespace": "apps"}) == []
