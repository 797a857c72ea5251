"""Who may attach a network, and have data read for a workload."""

from __future__ import annotations

from typing import Any

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
    assert found(write(on_networks(OWN)), use("own")) == []
    asked = write(on_networks(SHARED))
    assert list(asks_for_access(asked)) == [use("shared", "infra")]
    assert found(asked, use("shared", "infra")) == []
    (cause,) = found(asked, use("own"), use("shared"))
    assert cause.field == "spec.template.spec.networkInterfaces[0].network"
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


def reading(container: JsonObject, **more: Any) -> JsonObject:
    made = with_template(**more)
    sandbox = made["spec"]["template"]["spec"]["runtime"]["sandbox"]
    sandbox["containers"] = [{"name": "app", "image": "web:1", **container}]
    return made


def get(resource: str, name: str) -> May:
    return May("get", "", resource, "default", name)


SECRET_REF = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "pw"}}}
OPTIONAL = {"configMapRef": {"name": "flags", "optional": True}}
FILES = {"name": "files", "secret": {"secretName": "cert"}}


def test_data_takes_the_right_to_read_it_also_where_it_is_optional() -> None:
    asked = write(reading({"env": [SECRET_REF], "envFrom": [OPTIONAL]}, volumes=[FILES]))
    rights = (get("secrets", "db"), get("configmaps", "flags"), get("secrets", "cert"))
    assert [right for right in asks_for_access(asked) if right.verb == "get"] == [*rights]
    assert found(asked, use("default"), *rights) == []
    causes = found(asked, use("default"))
    container = "spec.template.spec.runtime.sandbox.containers[0]"
    assert [cause.field for cause in causes] == [
        f"{container}.env[0].valueFrom.secretKeyRef",
        f"{container}.envFrom[0].configMapRef",
        "spec.template.spec.volumes[0].secret",
    ]
    assert 'may not get Secret "db" in the namespace "default"' in causes[0].message


def test_only_data_that_is_named_for_the_first_time_takes_the_right() -> None:
    before = reading({"env": [SECRET_REF]})
    again = {"name": "AGAIN", "valueFrom": {"secretKeyRef": {"name": "db", "key": "other"}}}
    assert found(write(reading({"env": [SECRET_REF, again]}), before)) == []
    (cause,) = found(write(reading({"env": [SECRET_REF], "envFrom": [OPTIONAL]}), before))
    assert "flags" in cause.message
