"""Who may attach a network, and have data read for a workload."""

from __future__ import annotations

from typing import Any

from datum_compute.admission.questions import AccessQuery, Answers, Write
from datum_compute.admission.rules.workload_references import (
    asks_for_access,
    references_are_allowed,
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


def found(asked: Write, *rights: AccessQuery) -> list[Cause]:
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


def get(resource: str, name: str) -> AccessQuery:
    return AccessQuery("get", "", resource, "default", name)


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


def test_whoever_changes_what_runs_must_be_able_to_read_all_that_it_is_given() -> None:
    """Else the data could be handed to code of anybody's choice."""
    before = reading({"env": [SECRET_REF]}, volumes=[FILES])
    rights = (get("secrets", "db"), get("secrets", "cert"))
    changes = (
        reading({"env": [SECRET_REF], "image": "spy:1"}, volumes=[FILES]),
        reading({"env": [SECRET_REF], "command": ["printenv"]}, volumes=[FILES]),
        reading({"env": [SECRET_REF]}, volumes=[FILES], networkInterfaces=[{"network": OWN}]),
    )
    for changed in changes:
        causes = found(write(changed, before), use("own"))
        assert [cause.reason for cause in causes] == ["FieldValueForbidden"] * 2
        assert 'the template takes Secret "db", which you may not get' in causes[0].message
        assert 'verb "get" on secrets' in causes[0].message
        assert found(write(changed, before), use("own"), *rights) == []


def test_data_that_is_no_longer_taken_asks_for_nothing() -> None:
    before = reading({"env": [SECRET_REF], "envFrom": [OPTIONAL]})
    asked = write(reading({"envFrom": [OPTIONAL], "image": "web:2"}), before)
    assert list(asks_for_access(asked)) == [get("configmaps", "flags")]


def test_scale_pause_placements_and_restarts_run_nothing_else() -> None:
    before = reading({"env": [SECRET_REF]})
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


def test_a_field_that_came_with_a_release_and_has_its_default_is_no_change() -> None:
    before = reading({"env": [SECRET_REF]})
    defaulted = reading({"env": [SECRET_REF], "command": [], "args": []}, volumes=[])
    assert found(write(defaulted, before)) == []


def test_a_mark_of_a_restart_hides_no_other_change() -> None:
    before = reading({"env": [SECRET_REF]})
    after = reading({"env": [SECRET_REF], "image": "spy:1"})
    after["spec"]["template"]["metadata"] = {"annotations": {RESTARTED_AT: "now"}}
    assert len(found(write(after, before))) == 1
    labelled = reading({"env": [SECRET_REF]})
    labelled["spec"]["template"]["metadata"] = {"labels": {"app": "other"}}
    assert len(found(write(labelled, before))) == 1
