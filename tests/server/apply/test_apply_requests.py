"""Server-side apply requests: creation, conflicts, released fields, status, invalid input."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from datum_compute.api.http import APPLY_PATCH, Response
from datum_compute.api.labels import CHANGED_BY
from datum_compute.api.meta.codec import JsonObject, encode
from testkit.api_server.running_server import (
    WORKLOADS,
    InProcessServer,
    causes,
    namespace,
    workload,
)

WEB = f"{WORKLOADS}/web"
HEADERS = {"content-type": APPLY_PATCH}


async def apply(
    server: InProcessServer, config: Any, manager: str = "one", path: str = WEB, **query: str
) -> JsonObject:
    options = {"fieldManager": manager, **query}
    return await server.json("PATCH", path, config, headers=HEADERS, **options)


async def apply_rejected(
    server: InProcessServer, config: Any, manager: str = "one", path: str = WEB, **query: str
) -> JsonObject:
    options = {"fieldManager": manager, **query}
    return await server.status("PATCH", path, config, headers=HEADERS, **options)


def entry(obj: JsonObject, manager: str, subresource: str = "") -> JsonObject:
    (found,) = [
        e
        for e in obj["metadata"]["managedFields"]
        if e["manager"] == manager and e.get("subresource", "") == subresource
    ]
    return dict(found)


async def test_an_absent_object_is_created_with_201(server: InProcessServer) -> None:
    options = {"fieldManager": "one"}
    response = await server.ask("PATCH", WEB, workload(), headers=HEADERS, **options)
    assert response.status == 201
    found = entry(await server.json("GET", WEB), "one")
    assert found == {
        "manager": "one",
        "operation": "Apply",
        "apiVersion": "compute.datumapis.com/v1alpha",
        "time": "2023-11-14T22:13:20Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:spec": {
                "f:template": {
                    "f:spec": {
                        "f:runtime": {
                            "f:sandbox": {
                                "f:containers": {
                                    'k:{"name":"app"}': {".": {}, "f:name": {}, "f:image": {}}
                                }
                            }
                        }
                    }
                },
                "f:placements": {
                    'k:{"name":"main"}': {
                        ".": {},
                        "f:name": {},
                        "f:cityCodes": {'v:"DFW"': {}},
                        "f:scaleSettings": {"f:minReplicas": {}},
                    }
                },
            }
        },
    }


async def test_a_second_equal_apply_writes_nothing_and_keeps_the_time(
    server: InProcessServer,
) -> None:
    first = await apply(server, workload())
    server.clock.now_s += 100
    assert await apply(server, workload()) == first
    changed = await apply(server, workload(image="web:2"))
    assert entry(changed, "one")["time"] > entry(first, "one")["time"]


async def test_defaults_have_no_owner_and_can_be_applied_without_conflict(
    server: InProcessServer,
) -> None:
    await apply(server, workload())
    other = workload()
    resources = {"instanceType": "datumcloud/d1-standard-4"}
    other["spec"]["template"]["spec"]["runtime"]["resources"] = resources
    changed = await apply(server, other, "two")
    assert changed["spec"]["template"]["spec"]["runtime"]["resources"] == resources


async def test_a_conflict_names_the_field_and_the_manager(server: InProcessServer) -> None:
    await apply(server, workload())
    status = await apply_rejected(server, workload(image="web:2"), "two")
    assert (status["code"], status["reason"]) == (409, "Conflict")
    field = '.spec.template.spec.runtime.sandbox.containers[name="app"].image'
    assert status["message"] == (f'Apply failed with 1 conflict: conflict with "one": {field}')
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": field}
    ]
    forced = await apply(server, workload(image="web:2"), "two", force="true")
    assert "f:image" not in str(entry(forced, "one"))
    assert "f:image" in str(entry(forced, "two"))


async def test_a_conflict_with_an_update_names_the_manager_and_its_version(
    server: InProcessServer,
) -> None:
    await server.json("POST", WORKLOADS, workload(), headers={"user-agent": "tool/1 (x)"})
    status = await apply_rejected(server, workload(image="web:2"))
    message = 'conflict with "tool" using compute.datumapis.com/v1alpha'
    assert status["details"]["causes"][0]["message"] == message


async def test_a_shared_field_is_removed_with_its_last_owner(
    server: InProcessServer,
) -> None:
    labelled = workload(labels={"team": "a"})
    await apply(server, labelled, "one")
    await apply(server, labelled, "two")
    kept = await apply(server, workload(), "one")
    assert kept["metadata"]["labels"] == {"team": "a"}
    gone = await apply(server, workload(), "two")
    assert "labels" not in gone["metadata"]


async def test_an_item_that_is_no_longer_applied_is_removed_completely(
    server: InProcessServer,
) -> None:
    config = workload()
    extra = {"name": "more", "cityCodes": ["LHR"], "scaleSettings": {"minReplicas": 2}}
    config["spec"]["placements"].append(extra)
    await apply(server, config)
    after = await apply(server, workload())
    assert [p["name"] for p in after["spec"]["placements"]] == ["main"]


async def test_giving_up_every_field_of_the_metadata_keeps_the_metadata(
    server: InProcessServer,
) -> None:
    first = await apply(server, workload(labels={"a": "1"}, annotations={"b": "2"}))
    after = await apply(server, workload())
    assert after["metadata"]["uid"] == first["metadata"]["uid"]
    assert "labels" not in after["metadata"]
    assert after["metadata"]["annotations"].keys() == {CHANGED_BY}  # fields of the server


async def test_status_is_applied_through_its_own_endpoint(server: InProcessServer) -> None:
    await apply(server, workload())
    config: JsonObject = {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "Workload",
        "metadata": {"name": "web", "labels": {"ignored": "here"}},
        "status": {"replicas": 2},
    }
    after = await apply(server, config, "reporter", f"{WEB}/status")
    assert after["status"]["replicas"] == 2
    assert "labels" not in after["metadata"]
    found = entry(after, "reporter", "status")
    assert found["fieldsV1"] == {"f:status": {"f:replicas": {}}}
    config["status"]["replicas"] = 3
    status = await apply_rejected(server, config, "other", f"{WEB}/status")
    assert causes(status) == {".status.replicas": "FieldManagerConflict"}
    message = status["details"]["causes"][0]["message"]
    assert message == 'conflict with "reporter" with subresource "status"'


async def test_the_main_endpoint_neither_changes_nor_owns_the_status(
    server: InProcessServer,
) -> None:
    config = workload()
    config["status"] = {"replicas": 7}
    after = await apply(server, config)
    assert "status" not in after
    assert "f:status" not in entry(after, "one")["fieldsV1"]


async def test_a_status_cannot_be_applied_to_an_absent_object(server: InProcessServer) -> None:
    assert (await apply_rejected(server, workload(), path=f"{WEB}/status"))["code"] == 404


async def test_the_field_manager_is_required(server: InProcessServer) -> None:
    status = await apply_rejected(server, workload(), "")
    assert (status["code"], causes(status)) == (422, {"fieldManager": "FieldValueRequired"})
    assert "is required for apply patch" in status["message"]


@pytest.mark.parametrize("manager", ["x" * 129, "tab\there"])
async def test_a_field_manager_must_be_short_and_printable(
    server: InProcessServer, manager: str
) -> None:
    assert (await apply_rejected(server, workload(), manager))["code"] == 422


async def test_a_dry_run_stores_nothing(server: InProcessServer) -> None:
    assert (await apply(server, workload(), dryRun="All"))["metadata"]["name"] == "web"
    assert (await server.status("GET", WEB))["code"] == 404
    first = await apply(server, workload())
    await apply(server, workload(image="web:2"), dryRun="All")
    assert await server.json("GET", WEB) == first


async def test_the_result_is_validated_and_unknown_fields_are_reported(
    server: InProcessServer,
) -> None:
    wrong = workload()
    wrong["spec"]["placements"] = []
    assert (await apply_rejected(server, wrong))["code"] == 422
    unknown = workload()
    unknown["spec"]["colour"] = "blue"
    status = await apply_rejected(server, unknown, fieldValidation="Strict")
    assert (status["code"], "spec.colour" in status["message"]) == (400, True)
    options = {"fieldManager": "one"}
    response: Response = await server.ask("PATCH", WEB, unknown, headers=HEADERS, **options)
    assert "spec.colour" in response.headers["warning"]
    assert "f:colour" not in str(entry(await server.json("GET", WEB), "one"))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": None},
        {"apiVersion": None},
        {"kind": "Instance"},
        {"apiVersion": "compute.datumapis.com/v1"},
        {"metadata": {"name": "other"}},
        {"metadata": {"name": "web", "namespace": "other"}},
        {"metadata": {"name": "web", "managedFields": []}},
        {"metadata": ["web"]},
        {"metadata": {"name": {"x": 1}}},
        {"metadata": {"name": "web", "labels": "none"}},
    ],
)
async def test_a_configuration_of_another_object_is_400(
    server: InProcessServer, change: JsonObject
) -> None:
    config = {**workload(), **change}
    assert (await apply_rejected(server, config))["code"] == 400
    await apply(server, workload())
    assert (await apply_rejected(server, config))["code"] == 400


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"null", b"a: [", b"\xff\xfe", b"{" * 100])
async def test_a_body_that_is_no_object_is_400(server: InProcessServer, body: bytes) -> None:
    assert (await apply_rejected(server, body))["code"] == 400


@pytest.mark.parametrize(
    "spec", [None, 5, [], "x", {"placements": {"main": 1}}, {"placements": [1, None]}]
)
async def test_values_of_the_wrong_type_are_422(server: InProcessServer, spec: Any) -> None:
    assert (await apply_rejected(server, {**workload(), "spec": spec}))["code"] == 422
    await apply(server, workload())
    if spec is not None:
        status = await apply_rejected(server, {**workload(), "spec": spec}, force="1")
        assert status["code"] == 422


async def test_a_null_is_ignored(server: InProcessServer) -> None:
    await apply(server, workload())
    config: JsonObject = {**workload(), "spec": None}
    status = await apply_rejected(server, config, "one")
    assert status["code"] == 422, "this apply removes a required field"
    assert (await apply(server, config, "two"))["spec"]["placements"]


async def test_duplicate_items_are_422(server: InProcessServer) -> None:
    config = workload()
    config["spec"]["placements"] *= 2
    status = await apply_rejected(server, config)
    assert (status["code"], causes(status)["spec.placements[1]"]) == (422, "FieldValueDuplicate")


async def test_versions_and_uids_in_the_configuration_are_preconditions(
    server: InProcessServer,
) -> None:
    stale = workload(resourceVersion="1")
    assert (await apply_rejected(server, stale))["code"] == 409
    assert (await apply_rejected(server, workload(uid="none")))["code"] == 409
    first = await apply(server, workload())
    assert (await apply_rejected(server, stale))["code"] == 409
    version = first["metadata"]["resourceVersion"]
    await apply(server, workload(image="web:2", resourceVersion=version))


async def test_the_namespace_must_exist(server: InProcessServer) -> None:
    path = WEB.replace("/default/", "/nowhere/")
    assert (await apply_rejected(server, workload(), path=path))["code"] == 404


async def test_built_in_kinds_can_be_applied(server: InProcessServer) -> None:
    path = "/api/v1/namespaces/team"
    created = await apply(server, namespace("team", labels={"tier": "gold"}), path=path)
    assert created["status"]["phase"] == "Active"
    assert entry(created, "one")["fieldsV1"] == {"f:metadata": {"f:labels": {"f:tier": {}}}}
    after = await apply(server, namespace("team"), path=path)
    assert set(after["metadata"]["labels"]) == {"kubernetes.io/metadata.name"}


async def test_concurrent_applies_all_succeed(server: InProcessServer) -> None:
    def config(number: int) -> JsonObject:
        return workload(labels={f"w{number}": "x"})

    await asyncio.gather(*(apply(server, config(n), f"manager-{n}") for n in range(12)))
    found = await server.json("GET", WEB)
    assert set(found["metadata"]["labels"]) == {f"w{n}" for n in range(12)}
    assert len(found["metadata"]["managedFields"]) == 12


async def test_yaml_has_the_meaning_of_the_equivalent_json(server: InProcessServer) -> None:
    text = b"""
apiVersion: compute.datumapis.com/v1alpha
kind: Workload
metadata:
  name: web
  annotations: {when: "2024-01-01", "no": "off"}
spec:
  template: {spec: {runtime: {sandbox: {containers: [{name: app, image: 'web:1'}]}}}}
  placements:
  - name: main
    cityCodes: [DFW]
    scaleSettings: {minReplicas: 3}
"""
    created = await apply(server, text)
    assert created["spec"]["placements"][0]["scaleSettings"]["minReplicas"] == 3
    annotations = {k: v for k, v in created["metadata"]["annotations"].items() if k != CHANGED_BY}
    assert annotations == {"when": "2024-01-01", "no": "off"}
    assert await apply(server, text) == created


async def test_cbor_is_415(server: InProcessServer) -> None:
    headers = {"content-type": "application/apply-patch+cbor"}
    status = await server.status("PATCH", WEB, workload(), headers=headers, fieldManager="x")
    assert status["code"] == 415
    assert APPLY_PATCH in status["message"]


async def test_force_is_rejected_for_other_patches(server: InProcessServer) -> None:
    await apply(server, workload())
    headers = {"content-type": "application/merge-patch+json"}
    status = await server.status("PATCH", WEB, {}, headers=headers, force="true")
    assert (status["code"], causes(status)) == (422, {"force": "FieldValueForbidden"})


async def test_kubectl_can_migrate_from_client_side_apply(
    server: InProcessServer,
) -> None:
    remembered = "kubectl.kubernetes.io/last-applied-configuration"
    before = workload()
    text = encode({**before, "metadata": {"name": "web"}}).decode()
    sent = workload(annotations={remembered: text})
    headers = {"user-agent": "kubectl-client-side-apply/1"}
    await server.json("POST", WORKLOADS, sent, headers=headers)
    assert (await apply_rejected(server, workload(image="web:2"), "another"))["code"] == 409
    after = await apply(server, workload(image="web:2"), "kubectl")
    assert "web:2" in after["metadata"]["annotations"][remembered]
