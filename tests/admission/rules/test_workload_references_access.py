"""Access to the networks and the data that a workload refers to."""

from __future__ import annotations

from typing import Any

from datum_compute.admission.queries import AccessQuery, Answers, Write
from datum_compute.admission.rules.workload_references import (
    check_reference_access,
    query_reference_access,
)
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import on_networks, with_template

OWN, SHARED = {"name": "own"}, {"name": "shared", "namespace": "infra"}


def use(name: str, namespace: str = "default") -> AccessQuery:
    return AccessQuery("use", "networking.datumapis.com", "networks", namespace, name)


def write(new: JsonObject, old: JsonObject | None = None) -> Write:
    return Write(WORKLOAD, "default", new, old)


def found(checked: Write, *rights: AccessQuery) -> list[Cause]:
    allowed = {right: right in rights for right in query_reference_access(checked)}
    return list(check_reference_access(checked, Answers(allowed=allowed)))


def test_a_network_needs_the_verb_use_in_its_namespace() -> None:
    assert found(write(on_networks(OWN)), use("own")) == []
    checked = write(on_networks(SHARED))
    assert list(query_reference_access(checked)) == [use("shared", "infra")]
    assert found(checked, use("shared", "infra")) == []
    (cause,) = found(checked, use("own"), use("shared"))
    assert cause.field == "spec.template.spec.networkInterfaces[0].network"
    assert cause.reason == "FieldValueForbidden"
    assert 'use network "shared" in the namespace "infra"' in cause.message
    assert 'verb "use" on networks.networking.datumapis.com' in cause.message


def test_the_default_network_needs_the_verb_use() -> None:
    (cause,) = found(write(with_template()))
    assert cause.field == "spec.template.spec.networkInterfaces"
    assert found(write(with_template()), use("default")) == []


def test_a_network_that_was_attached_before_needs_no_access() -> None:
    named = {**OWN, "namespace": "default"}
    assert found(write(on_networks(named), on_networks(OWN))) == []
    assert len(found(write(on_networks(SHARED), on_networks(OWN)))) == 1


def test_a_change_outside_of_the_spec_needs_no_access() -> None:
    old = on_networks(OWN)
    labelled = {**old, "metadata": {"name": "web", "labels": {"a": "b"}}}
    assert list(query_reference_access(write(labelled, old))) == []


def with_container(container: JsonObject, **more: Any) -> JsonObject:
    workload = with_template(**more)
    sandbox = workload["spec"]["template"]["spec"]["runtime"]["sandbox"]
    sandbox["containers"] = [{"name": "app", "image": "web:1", **container}]
    return workload


def get(resource: str, name: str) -> AccessQuery:
    return AccessQuery("get", "", resource, "default", name)


SECRET_REF = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "pw"}}}
OPTIONAL = {"configMapRef": {"name": "flags", "optional": True}}
FILES = {"name": "files", "secret": {"secretName": "cert"}}


def test_data_needs_read_access_even_if_it_is_optional() -> None:
    checked = write(with_container({"env": [SECRET_REF], "envFrom": [OPTIONAL]}, volumes=[FILES]))
    rights = (get("secrets", "db"), get("configmaps", "flags"), get("secrets", "cert"))
    assert [right for right in query_reference_access(checked) if right.verb == "get"] == [*rights]
    assert found(checked, use("default"), *rights) == []
    causes = found(checked, use("default"))
    container = "spec.template.spec.runtime.sandbox.containers[0]"
    assert [cause.field for cause in causes] == [
        f"{container}.env[0].valueFrom.secretKeyRef",
        f"{container}.envFrom[0].configMapRef",
        "spec.template.spec.volumes[0].secret",
    ]
    assert 'may not get Secret "db" in the namespace "default"' in causes[0].message


def test_a_change_of_the_template_needs_read_access_to_all_its_data() -> None:
    """Otherwise a user could run code that discloses the data."""
    before = with_container({"env": [SECRET_REF]}, volumes=[FILES])
    rights = (get("secrets", "db"), get("secrets", "cert"))
    changes = (
        with_container({"env": [SECRET_REF], "image": "spy:1"}, volumes=[FILES]),
        with_container({"env": [SECRET_REF], "command": ["printenv"]}, volumes=[FILES]),
        with_container(
            {"env": [SECRET_REF]}, volumes=[FILES], networkInterfaces=[{"network": OWN}]
        ),
    )
    for changed in changes:
        causes = found(write(changed, before), use("own"))
        assert [cause.reason for cause in causes] == ["FieldValueForbidden"] * 2
        assert 'the template uses Secret "db", which you may not get' in causes[0].message
        assert 'verb "get" on secrets' in causes[0].message
        assert found(write(changed, before), use("own"), *rights) == []


def test_removed_data_needs_no_access() -> None:
    before = with_container({"env": [SECRET_REF], "envFrom": [OPTIONAL]})
    checked = write(with_container({"envFrom": [OPTIONAL], "image": "web:2"}), before)
    assert list(query_reference_access(checked)) == [get("configmaps", "flags")]


def test_scale_pause_placements_and_restarts_need_no_read_access() -> None:
    before = with_container({"env": [SECRET_REF]})
    spec = before["spec"]
    marked = {"metadata": {"annotations": {RESTARTED_AT: "2026-01-01T00:00:00Z"}}}
    harmless: tuple[JsonObject, ...] = (
        {"placements": [{"name": "main", "cityCodes": ["DFW"]}]},
        {"paused": True},
        {"restarts": [{"cityCode": "DFW", "at": "2026-01-01T00:00:00Z"}]},
        {"template": {**spec["template"], **marked}},
    )
    for change in harmless:
        assert found(write({**before, "spec": {**spec, **change}}, before)) == []


def test_a_default_that_an_earlier_release_did_not_write_is_no_change() -> None:
    before = with_container({"env": [SECRET_REF]})
    defaulted = with_container({"env": [SECRET_REF], "command": [], "args": []}, volumes=[])
    assert found(write(defaulted, before)) == []


def test_a_restart_annotation_does_not_hide_other_changes() -> None:
    before = with_container({"env": [SECRET_REF]})
    after = with_container({"env": [SECRET_REF], "image": "spy:1"})
    after["spec"]["template"]["metadata"] = {"annotations": {RESTARTED_AT: "now"}}
    assert len(found(write(after, before))) == 1
    labelled = with_container({"env": [SECRET_REF]})
    labelled["spec"]["template"]["metadata"] = {"labels": {"app": "other"}}
    assert len(found(write(labelled, before))) == 1
