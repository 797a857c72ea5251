"""Who may attach a network."""

from __future__ import annotations

from datum_compute.admission.access import asks_for_access, references_are_allowed
from datum_compute.admission.questions import Answers, May, Write
from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import WORKLOAD
from tests.admission.writes import on_networks, with_template

OWN, SHARED = {"name": "own"}, {"name": "shared", "namespace": "infra"}


def use(name: str, namespace: str = "default") -> May:
    return May("use", "networking.datumapis.com", "networks", namespace, name)


def write(new: JsonObject, old: JsonObject | None = None) -> Write:
    return Write(WORKLOAD, "default", new, old)


def found(asked: Write, *rights: May) -> list[Cause]:
    allowed = {right: right in rights for right in asks_for_access(asked)}
    return list(references_are_allowed(asked, Answers(allowed=allowed)))


def test_a_network_takes_the_right_to_use_it_in_its_own_namespace() -> None:
    asked = write(on_networks(OWN, SHARED))
    assert list(asks_for_access(asked)) == [use("own"), use("shared", "infra")]
    assert found(asked, use("own"), use("shared", "infra")) == []
    (cause,) = found(asked, use("own"), use("shared"))
    assert cause.field == "spec.template.spec.networkInterfaces[1].network"
    assert cause.reason == "FieldValueForbidden"
    assert 'use network "shared" in the namespace "infra"' in cause.message
    assert 'verb "use" on networks.networking.datumapis.com' in cause.message


def test_the_network_that_nobody_names_takes_the_same_right() -> None:
    (cause,) = found(write(with_template()))
    assert cause.field == "spec.template.spec.networkInterfaces"
    assert found(write(with_template()), use("default")) == []


def test_what_was_attached_before_may_stay() -> None:
    named = {**OWN, "namespace": "default"}
    assert found(write(on_networks(named), on_networks(OWN))) == []
    assert len(found(write(on_networks(SHARED), on_networks(OWN)))) == 1


def test_a_change_beside_the_spec_asks_for_nothing() -> None:
    old = on_networks(OWN)
    labelled = {**old, "metadata": {"name": "web", "labels": {"a": "b"}}}
    assert list(asks_for_access(write(labelled, old))) == []
