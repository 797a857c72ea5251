"""Discovery and OpenAPI documents of the served kinds."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.http import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from datum_compute.api.kinds import KINDS, UNSUPPORTED_KINDS, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.reviews import REVIEWS
from testkit.api_server.running_server import COMPUTE, PROJECT, WORKLOADS, InProcessServer, workload

AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

SERVED = (*KINDS, *REVIEWS, *UNSUPPORTED_KINDS)


async def test_groups_name_their_preferred_version_among_their_versions(
    server: InProcessServer,
) -> None:
    groups = (await server.json("GET", "/apis"))["groups"]
    assert [group["name"] for group in groups] == sorted({k.group for k in SERVED if k.group})
    for group in groups:
        assert group["preferredVersion"] in group["versions"]
    work = next(group for group in groups if group["name"] == "work.karmada.io")
    assert work["preferredVersion"]["version"] == "v1alpha2"


async def test_a_group_is_served_with_and_without_a_trailing_slash(
    server: InProcessServer,
) -> None:
    group = await server.json("GET", "/apis/compute.datumapis.com")
    assert (group["kind"], group["name"]) == ("APIGroup", "compute.datumapis.com")
    assert await server.json("GET", "/apis/") == await server.json("GET", "/apis")


async def test_a_trailing_slash_does_not_change_the_response(server: InProcessServer) -> None:
    for path in ("/version", "/api/v1", COMPUTE, WORKLOADS):
        assert await server.json("GET", f"{path}/") == await server.json("GET", path)


async def test_api_lists_the_core_versions(server: InProcessServer) -> None:
    assert (await server.json("GET", "/api"))["versions"] == ["v1"]


async def test_every_kind_is_listed_with_names_verbs_and_scope(server: InProcessServer) -> None:
    for kind in KINDS:
        path = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        resources = {r["name"]: r for r in (await server.json("GET", path))["resources"]}
        resource = resources[kind.plural]
        assert resource["kind"] == kind.kind
        assert resource["singularName"] == kind.kind.lower()
        assert resource["namespaced"] is kind.namespaced
        assert {"get", "list", "watch", "create", "update", "patch"} <= set(resource["verbs"])
        assert (f"{kind.plural}/status" in resources) is kind.has_status


async def test_namespaces_are_not_deleted_in_bulk_and_have_finalize(
    server: InProcessServer,
) -> None:
    resources = (await server.json("GET", "/api/v1"))["resources"]
    named = {resource["name"]: resource for resource in resources}
    assert "deletecollection" not in named["namespaces"]["verbs"]
    assert named["namespaces/finalize"]["verbs"] == ["update"]


async def test_aggregated_discovery_repeats_its_content_type(server: InProcessServer) -> None:
    response = await server.ask("GET", "/apis", headers={"accept": AGGREGATED})
    assert response.content_type == (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    document = decode(response.body)
    assert document["kind"] == "APIGroupDiscoveryList"
    found = {
        (item["metadata"]["name"], version["version"], resource["resource"]): resource
        for item in document["items"]
        for version in item["versions"]
        for resource in version["resources"]
    }
    assert set(found) == {(k.group, k.version, k.plural) for k in SERVED if k.group}
    workloads = found[("compute.datumapis.com", "v1alpha", "workloads")]
    assert workloads["scope"] == "Namespaced"
    assert [s["subresource"] for s in workloads["subresources"]] == ["status"]


async def test_plain_discovery_is_served_without_the_aggregated_media_type(
    server: InProcessServer,
) -> None:
    old = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=X,application/json"}
    assert (await server.json("GET", "/apis", headers=old))["kind"] == "APIGroupList"


@pytest.mark.parametrize("prefix", ["", "/planes/hub", PROJECT])
async def test_openapi_documents_are_found_through_the_index_of_their_plane(
    server: InProcessServer, prefix: str
) -> None:
    paths = (await server.json("GET", f"{prefix}/openapi/v3"))["paths"]
    groups = {f"apis/{k.api_version}" if k.group else f"api/{k.version}" for k in SERVED}
    assert set(paths) == groups
    for path in paths.values():
        url, _, digest = path["serverRelativeURL"].partition("?hash=")
        assert url.startswith(f"{prefix}/openapi/v3/")
        assert digest
        document = await server.json("GET", url, hash=digest)
        assert document["openapi"] == "3.0.0"


async def openapi(server: InProcessServer, kind: KindInfo[Any]) -> JsonObject:
    path = f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"
    return await server.json("GET", f"/openapi/v3/{path}")


async def test_patch_operations_list_field_validation_for_kubectl(
    server: InProcessServer,
) -> None:
    for kind in KINDS:
        document = await openapi(server, kind)
        known_as = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        patches = [
            operations["patch"]
            for operations in document["paths"].values()
            if operations.get("patch", {}).get("x-kubernetes-group-version-kind") == known_as
        ]
        assert patches
        for patch in patches:
            assert "fieldValidation" in {p["name"] for p in patch["parameters"]}
            content = set(patch["requestBody"]["content"])
            assert {MERGE_PATCH, JSON_PATCH, APPLY_PATCH} <= content
            # kubectl sends strategic merge patches to kinds whose operations list them.
            assert (STRATEGIC_PATCH in content) is kind.built_in


async def test_every_reference_of_a_document_resolves(server: InProcessServer) -> None:
    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(inner) for inner in value.values()))
        if isinstance(value, list):
            return set().union(*(references(inner) for inner in value))
        return set()

    for kind in KINDS:
        document = await openapi(server, kind)
        names = {ref.removeprefix("#/components/schemas/") for ref in references(document)}
        assert names
        assert names <= set(document["components"]["schemas"])


async def test_schemas_name_their_kind(server: InProcessServer) -> None:
    document = await openapi(server, WORKLOAD)
    schema = document["components"]["schemas"]["com.datumapis.compute.v1alpha.Workload"]
    assert schema["x-kubernetes-group-version-kind"] == [
        {"group": "compute.datumapis.com", "version": "v1alpha", "kind": "Workload"}
    ]
    assert schema["properties"]["spec"]["required"] == ["template", "placements"]


@pytest.mark.parametrize(
    "accept",
    ["", "*/*", "application/*", "application/json", "application/json; charset=utf-8",
     "application/vnd.kubernetes.protobuf, application/json", "text/html;q=0.1,*/*;q=0.05"],
)  # fmt: skip
async def test_json_is_returned_if_it_is_acceptable(server: InProcessServer, accept: str) -> None:
    response = await server.ask("GET", WORKLOADS, headers={"accept": accept})
    assert (response.status, response.content_type) == (200, "application/json")


@pytest.mark.parametrize("accept", ["application/vnd.kubernetes.protobuf", "application/yaml"])
async def test_an_unacceptable_media_type_gets_406_without_effect(
    server: InProcessServer, accept: str
) -> None:
    status = await server.status("POST", WORKLOADS, workload(), headers={"accept": accept})
    assert (status["code"], status["reason"]) == (406, "NotAcceptable")
    assert (await server.json("GET", f"{COMPUTE}/workloads"))["items"] == []


TABLE = "application/json;g=meta.k8s.io;v=v1;as=Table"


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("/api", ""),
        ("/apis", AGGREGATED),
        ("/apis/compute.datumapis.com", ""),
        ("/version", ""),
        ("/openapi/v2", ""),
        ("/openapi/v3", ""),
        ("/openapi/v3/api/v1", ""),
        (WORKLOADS, ""),
        (WORKLOADS, TABLE),
        (f"{WORKLOADS}/web", ""),
        (f"{WORKLOADS}/web", TABLE),
        (f"{WORKLOADS}/none", ""),
        ("/none", ""),
    ],
)
async def test_responses_end_with_one_newline(
    server: InProcessServer, path: str, accept: str
) -> None:
    created = await server.ask("POST", WORKLOADS, workload())
    response = await server.ask("GET", path, headers={"accept": accept})
    for body in (created.body, response.body):
        assert (body[-1:], body[-2:-1].isspace()) == (b"\n", False)
