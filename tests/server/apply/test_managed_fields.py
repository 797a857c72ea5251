"""managedFields after create, update and patch requests."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.http import APPLY_PATCH, JSON_PATCH, MERGE_PATCH
from datum_compute.api.meta.codec import JsonObject, decode
from testkit.api_server.definitions import WIDGETS, define, definition, version, widget
from testkit.api_server.running_server import WORKLOADS, InProcessServer, causes, workload

WEB = f"{WORKLOADS}/web"


def owners(obj: JsonObject) -> dict[str, Any]:
    """Fields by manager; those of subresources under manager/subresource."""
    return {
        "/".join(filter(None, (e["manager"], e.get("subresource")))): e["fieldsV1"]
        for e in obj["metadata"].get("managedFields", [])
    }


async def create_web(server: InProcessServer, **metadata: Any) -> JsonObject:
    headers = {"user-agent": "maker/1.0 (linux)"}
    return await server.json("POST", WORKLOADS, workload(**metadata), headers=headers)


async def merge(
    server: InProcessServer, agent: str, patch: JsonObject, path: str = WEB
) -> JsonObject:
    headers = {"content-type": MERGE_PATCH, "user-agent": agent}
    return await server.json("PATCH", path, patch, headers=headers)


async def test_a_create_owns_the_sent_fields_and_no_defaults(server: InProcessServer) -> None:
    obj = await create_web(server, labels={"a": "1"}, finalizers=["example.com/x"])
    fields = owners(obj)["maker"]
    assert fields["f:metadata"] == {
        "f:labels": {".": {}, "f:a": {}},
        "f:finalizers": {".": {}, 'v:"example.com/x"': {}},
    }
    runtime = fields["f:spec"]["f:template"]["f:spec"]["f:runtime"]
    assert "f:resources" not in runtime
    assert "resources" in obj["spec"]["template"]["spec"]["runtime"]


async def test_the_field_manager_parameter_overrides_the_user_agent(
    server: InProcessServer,
) -> None:
    headers = {"user-agent": "maker/1.0"}
    sent = workload()
    obj = await server.json("POST", WORKLOADS, sent, headers=headers, fieldManager="me")
    assert list(owners(obj)) == ["me"]


@pytest.mark.parametrize(
    ("agent", "name"), [("a" * 200, "a" * 128), ("", "unknown"), ("\x07bell/1", "bell")]
)
async def test_a_user_agent_is_truncated_and_sanitized(
    server: InProcessServer, agent: str, name: str
) -> None:
    obj = await server.json("POST", WORKLOADS, workload(), headers={"user-agent": agent})
    assert list(owners(obj)) == [name]


async def test_a_patch_owns_the_fields_that_it_changes(server: InProcessServer) -> None:
    await create_web(server, labels={"a": "1", "b": "1"})
    obj = await merge(server, "changer/2", {"metadata": {"labels": {"a": "2"}}})
    assert owners(obj)["changer"] == {"f:metadata": {"f:labels": {"f:a": {}}}}
    assert owners(obj)["maker"]["f:metadata"] == {"f:labels": {".": {}, "f:b": {}}}
    obj = await merge(server, "changer/2", {"metadata": {"labels": {"a": None}}})
    assert "changer" not in owners(obj)


async def test_a_status_write_is_an_entry_of_its_own(server: InProcessServer) -> None:
    await create_web(server)
    obj = await merge(server, "maker/1", {"status": {"replicas": 1}}, f"{WEB}/status")
    assert owners(obj)["maker/status"] == {"f:status": {".": {}, "f:replicas": {}}}
    assert "f:status" not in owners(obj)["maker"]


async def test_a_write_that_changes_nothing_changes_no_entry(server: InProcessServer) -> None:
    obj = await create_web(server, labels={"a": "1"})
    server.clock.now_s += 60
    assert await merge(server, "other/1", {"metadata": {"labels": {"a": "1"}}}) == obj
    assert await server.json("PUT", WEB, obj, headers={"user-agent": "other/1"}) == obj


async def test_the_time_of_an_entry_changes_only_with_its_fields(server: InProcessServer) -> None:
    obj = await create_web(server, labels={"a": "1"})
    server.clock.now_s += 60
    changed = await merge(server, "other/1", {"metadata": {"labels": {"b": "1"}}})
    first, second = changed["metadata"]["managedFields"]
    assert first == obj["metadata"]["managedFields"][0]
    assert second["time"] > first["time"]


async def test_an_update_without_managed_fields_keeps_them(server: InProcessServer) -> None:
    obj = await create_web(server)
    del obj["metadata"]["managedFields"]
    after = await server.json("PUT", WEB, obj, headers={"user-agent": "other/1"})
    assert list(owners(after)) == ["maker"]


@pytest.mark.parametrize("sent", [[], [{}]])
async def test_removed_owners_are_recorded_again_with_the_first_apply(
    server: InProcessServer, sent: list[Any]
) -> None:
    await create_web(server)
    obj = await merge(server, "x/1", {"metadata": {"managedFields": sent}})
    assert "managedFields" not in obj["metadata"]
    obj = await merge(server, "x/1", {"metadata": {"labels": {"a": "1"}}})
    assert "managedFields" not in obj["metadata"]
    headers = {"content-type": "application/apply-patch+yaml"}
    obj = await server.json("PATCH", WEB, workload(), headers=headers, fieldManager="one")
    assert list(owners(obj)) == ["one", "before-first-apply"]


async def test_a_client_can_replace_the_owners(server: InProcessServer) -> None:
    obj = await create_web(server)
    entry = {**obj["metadata"]["managedFields"][0], "manager": "kubectl", "operation": "Apply"}
    version = obj["metadata"]["resourceVersion"]
    operations = [
        {"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]
    after = await server.operations(WEB, *operations)
    assert after["metadata"]["managedFields"] == [entry]
    headers = {"content-type": JSON_PATCH}
    status = await server.status("PATCH", WEB, operations, headers=headers)
    assert status["code"] == 409  # the version is a precondition


async def test_paths_in_owners_are_normalized(server: InProcessServer) -> None:
    obj = await create_web(server)
    entry = obj["metadata"]["managedFields"][0]
    fields: JsonObject = {"f:spec": {"f:placements": {'k:{ "name" : "main" }': {".": {}}}}}
    claim = [{**entry, "fieldsV1": fields}]
    after = await merge(server, "x/1", {"metadata": {"managedFields": claim}})
    assert after["metadata"]["managedFields"][0]["fieldsV1"] == {
        "f:spec": {"f:placements": {'k:{"name":"main"}': {".": {}}}}
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("operation", "Steal"),
        ("fieldsType", "FieldsV2"),
        ("apiVersion", ""),
        ("manager", "x" * 129),
        ("manager", 5),
        ("time", "yesterday"),
        ("time", "2024-01-01"),
        ("fieldsV1", []),
        ("fieldsV1", {"spec": {}}),
        ("fieldsV1", {"f:spec": 1}),
        ("fieldsV1", {"k:{": {}}),
        ("fieldsV1", {"k:[]": {}}),
        ("fieldsV1", {"i:x": {}}),
        ("fieldsV1", {".": {}}),
    ],
)
async def test_invalid_owners_are_422(server: InProcessServer, field: str, value: Any) -> None:
    obj = await create_web(server)
    claim = [{**obj["metadata"]["managedFields"][0], field: value}]
    status = await server.patch_refused(WEB, {"metadata": {"managedFields": claim}})
    assert status["code"] == 422
    assert list(causes(status)) == [f"metadata.managedFields[0].{field}"]


@pytest.mark.parametrize("claim", [{}, "x", 5, [1], [None]])
async def test_owners_of_the_wrong_type_are_422(server: InProcessServer, claim: Any) -> None:
    await create_web(server)
    status = await server.patch_refused(WEB, {"metadata": {"managedFields": claim}})
    assert status["code"] == 422


async def test_the_status_endpoint_cannot_rewrite_owners(server: InProcessServer) -> None:
    obj = await create_web(server)
    patch = {"metadata": {"managedFields": [{}]}, "status": {"replicas": 1}}
    after = await merge(server, "maker/1", patch, f"{WEB}/status")
    assert owners(after)["maker"] == owners(obj)["maker"]


async def test_a_delete_with_finalizers_keeps_the_owners(server: InProcessServer) -> None:
    obj = await create_web(server, finalizers=["example.com/x"])
    after = await server.json("DELETE", WEB)
    assert after["metadata"]["managedFields"] == obj["metadata"]["managedFields"]


async def test_a_deeply_nested_object_keeps_its_owners(server: InProcessServer) -> None:
    manifest: JsonObject = {"apiVersion": "v1", "kind": "Thing"}
    for _ in range(52):
        manifest = {"inner": manifest}
    works = "/planes/hub/apis/work.karmada.io/v1alpha1/namespaces/default/works"
    work = {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": "deep"},
        "spec": {"workload": {"manifests": [manifest]}},
    }
    obj = await server.json("POST", works, work)
    assert await server.json("PUT", f"{works}/deep", obj) == obj


async def test_lists_and_watches_show_the_owners_as_they_are_stored(
    server: InProcessServer,
) -> None:
    obj = await create_web(server)
    listed = decode((await server.ask("GET", WORKLOADS)).body)
    assert listed["items"][0] == obj


SCHEMALESS: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize("has_status", [True, False])
async def test_objects_without_a_schema_have_no_owner_of_their_type(
    server: InProcessServer, has_status: bool
) -> None:
    subresources: JsonObject = {"subresources": {"status": {}}} if has_status else {}
    await define(server, definition(version(schema=SCHEMALESS, **subresources)))
    sent = widget(spec={"a": 1}, status={"b": 2})
    made = await server.json("POST", WIDGETS, sent, headers={"user-agent": "maker/1"})
    owned_status: JsonObject = {} if has_status else {"f:status": {".": {}, "f:b": {}}}
    assert owners(made)["maker"] == {"f:spec": {".": {}, "f:a": {}}, **owned_status}
    patch = {"spec": {"a": 2}, "status": {"b": 3}}
    changed = await merge(server, "changer/1", patch, f"{WIDGETS}/w")
    owned_status = {} if has_status else {"f:status": {"f:b": {}}}
    assert owners(changed)["changer"] == {"f:spec": {"f:a": {}}, **owned_status}
    headers = {"content-type": APPLY_PATCH}
    config = widget(spec={"c": 1})
    applied = await server.json(
        "PATCH", f"{WIDGETS}/w", config, headers=headers, fieldManager="one"
    )
    assert owners(applied)["one"] == {"f:spec": {"f:c": {}}}


async def test_the_status_endpoint_owns_the_status_without_a_schema(
    server: InProcessServer,
) -> None:
    await define(server, definition(version(schema=SCHEMALESS, subresources={"status": {}})))
    await server.json("POST", WIDGETS, widget(), headers={"user-agent": "maker/1"})
    patch = {"apiVersion": "example.com/v1", "kind": "Widget", "status": {"b": 3}}
    changed = await merge(server, "maker/1", patch, f"{WIDGETS}/w/status")
    assert owners(changed)["maker/status"] == {"f:status": {".": {}, "f:b": {}}}


async def test_metadata_without_owned_fields_is_not_owned(server: InProcessServer) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    sent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}}
    made = await server.json("POST", maps, sent, headers={"user-agent": "maker/1"})
    assert owners(made) == {"maker": {"f:data": {".": {}, "f:a": {}}}}


async def test_the_first_write_of_a_map_or_list_owns_the_map_too(server: InProcessServer) -> None:
    await create_web(server)
    metadata = {"labels": {"a": "1"}, "finalizers": ["example.com/x"]}
    obj = await merge(server, "one/1", {"metadata": metadata})
    assert owners(obj)["one"] == {
        "f:metadata": {
            "f:labels": {".": {}, "f:a": {}},
            "f:finalizers": {".": {}, 'v:"example.com/x"': {}},
        }
    }
    obj = await merge(server, "two/1", {"metadata": {"labels": {"b": "1"}}})
    assert owners(obj)["two"] == {"f:metadata": {"f:labels": {"f:b": {}}}}
