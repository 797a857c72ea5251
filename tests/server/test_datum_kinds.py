"""Kinds of networking, quota, services and projects on a server."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.running_server import (
    COMPUTE,
    PROJECT,
    WORKLOADS,
    InProcessServer,
    causes,
    workload,
)

NETWORKING = "/apis/networking.datumapis.com/v1alpha"
NETWORKS = f"{NETWORKING}/namespaces/default/networks"
CLAIMS = "/apis/quota.miloapis.com/v1alpha1/namespaces/default/resourceclaims"
TYPES = f"{COMPUTE}/instancetypes"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def network(name: str = "default", **spec: Any) -> JsonObject:
    return {
        "apiVersion": "networking.datumapis.com/v1alpha",
        "kind": "Network",
        "metadata": {"name": name},
        "spec": {"ipam": {"mode": "Auto"}, **spec},
    }


def claim(name: str = "instance-web", amount: int = 1) -> JsonObject:
    project = {"apiGroup": "resourcemanager.miloapis.com", "kind": "Project", "name": "demo"}
    request = {"resourceType": "compute.datumapis.com/instances", "amount": amount}
    return {
        "apiVersion": "quota.miloapis.com/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"consumerRef": project, "resourceRef": project, "requests": [request]},
    }


def instance_type(cpu: Any, memory: Any = "2Gi") -> JsonObject:
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "InstanceType",
        "metadata": {"name": "small"},
        "spec": {"resources": {"cpu": cpu, "memory": memory}},
    }


async def test_a_new_network_has_defaults_and_an_unknown_condition(
    server: InProcessServer,
) -> None:
    created = await server.json("POST", NETWORKS, network())
    assert created["spec"] == {"ipam": {"mode": "Auto"}, "ipFamilies": ["IPv6"], "mtu": 1460}
    (ready,) = created["status"]["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "Unknown", "Pending")
    assert ready["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    assert await server.json("GET", f"{NETWORKS}/default") == created


async def test_a_status_that_is_sent_with_a_new_object_is_ignored(server: InProcessServer) -> None:
    created = await server.json("POST", CLAIMS, {**claim(), "status": {"conditions": []}})
    (granted,) = created["status"]["conditions"]
    assert (granted["status"], granted["reason"]) == ("False", "PendingEvaluation")


async def test_a_status_write_replaces_the_initial_status(server: InProcessServer) -> None:
    await server.json("POST", NETWORKS, network())
    ready = {"type": "Ready", "status": "True", "reason": "Ready"}
    path = f"{NETWORKS}/default"
    await server.merge(f"{path}/status", {"status": {"conditions": [ready]}})
    updated = await server.merge(path, {"spec": {"mtu": 1500}})
    (found,) = updated["status"]["conditions"]
    assert (found["status"], updated["spec"]["mtu"]) == ("True", 1500)


async def test_the_amount_of_a_claim_cannot_increase(server: InProcessServer) -> None:
    await server.json("POST", CLAIMS, claim())
    bigger = {"spec": claim(amount=2)["spec"]}
    status = await server.patch_refused(f"{CLAIMS}/instance-web", bigger)
    assert (status["code"], causes(status)) == (422, {"spec": "FieldValueInvalid"})
    assert "delete the claim and create another" in status["message"]
    await server.merge(f"{CLAIMS}/instance-web", {"metadata": {"labels": {"a": "b"}}})


async def test_a_claim_needs_resources_without_duplicates(
    server: InProcessServer,
) -> None:
    twice = claim()
    twice["spec"]["requests"] *= 2
    status = await server.status("POST", CLAIMS, twice)
    assert causes(status) == {"spec.requests[1]": "FieldValueDuplicate"}
    status = await server.status("POST", CLAIMS, claim(amount=0))
    assert causes(status) == {"spec.requests[0].amount": "FieldValueInvalid"}


@pytest.mark.parametrize("cpu", [1, "1", "500m", "1.5"])
async def test_quantities_have_the_syntax_of_kubernetes(server: InProcessServer, cpu: Any) -> None:
    created = await server.json("POST", TYPES, instance_type(cpu))
    assert created["spec"]["resources"]["cpu"] == cpu
    assert created["spec"]["lifecycle"] == {"phase": "Active"}


@pytest.mark.parametrize("cpu", [0, -1, 0.5, "0", "0m", "one", "1Gi", "1" * 21, True, None])
async def test_invalid_quantities_are_rejected(server: InProcessServer, cpu: Any) -> None:
    status = await server.status("POST", TYPES, instance_type(cpu))
    assert status["code"] == 422
    assert set(causes(status)) == {"spec.resources.cpu"}


@pytest.mark.parametrize(
    "wrong", [{"mtu": 1299}, {"mtu": 8857}, {"ipFamilies": []}, {"ipFamilies": ["IPv4", "IPv4"]},
              {"ipFamilies": ["IPX"]}, {"ipam": {"mode": "Manual"}}, {"ipam": {}}],
)  # fmt: skip
async def test_an_invalid_network_is_rejected(server: InProcessServer, wrong: JsonObject) -> None:
    status = await server.status("POST", NETWORKS, network(**wrong))
    assert status["code"] == 422
    assert all(field.startswith("spec.") for field in causes(status))


async def test_the_city_of_a_location_is_a_column(server: InProcessServer) -> None:
    location = {
        "apiVersion": "networking.datumapis.com/v1alpha",
        "kind": "Location",
        "metadata": {"name": "dfw"},
        "spec": {
            "locationClassName": "datum-managed",
            "topology": {"topology.datum.net/city-code": "DFW"},
        },
    }
    await server.json("POST", f"{NETWORKING}/locations", location)
    table = await server.json("GET", f"{NETWORKING}/locations", headers=TABLE)
    headings = [column["name"] for column in table["columnDefinitions"]]
    cells = dict(zip(headings, table["rows"][0]["cells"], strict=True))
    assert (cells["City"], cells["Class"], cells["Ready"]) == ("DFW", "datum-managed", None)


async def test_objects_are_selected_by_selectable_fields(server: InProcessServer) -> None:
    for name, amount in (("a", 1), ("b", 2)):
        other = claim(name, amount)
        other["spec"]["resourceRef"] = {"kind": "Instance", "name": name}
        await server.json("POST", CLAIMS, other)

    async def names(selector: str) -> list[str]:
        found = await server.json("GET", CLAIMS, fieldSelector=selector)
        return [item["metadata"]["name"] for item in found["items"]]

    assert await names("spec.resourceRef.name=a") == ["a"]
    assert await names("spec.resourceRef.name!=a") == ["b"]
    assert await names("spec.resourceRef.name=c") == []
    assert await names("spec.consumerRef.name=demo,metadata.name=b") == ["b"]
    status = await server.status("GET", CLAIMS, fieldSelector="spec.requests=x")
    assert status["code"] == 400


async def test_a_field_of_another_kind_is_rejected(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload())
    status = await server.status("GET", WORKLOADS, fieldSelector="spec.cityCode=DFW")
    assert (status["code"], status["reason"]) == (400, "BadRequest")


async def test_a_project_is_an_object_whose_path_is_the_prefix_of_its_plane(
    server: InProcessServer,
) -> None:
    projects = "/apis/resourcemanager.miloapis.com/v1alpha1/projects"
    project = {
        "apiVersion": "resourcemanager.miloapis.com/v1alpha1",
        "kind": "Project",
        "metadata": {"name": "demo"},
        "spec": {"ownerRef": {"kind": "Organization", "name": "acme"}},
    }
    organization = {
        "apiVersion": "resourcemanager.miloapis.com/v1alpha1",
        "kind": "Organization",
        "metadata": {"name": "acme"},
    }
    await server.json("POST", projects.replace("projects", "organizations"), organization)
    await server.json("POST", projects, project)
    assert (await server.json("GET", f"{projects}/demo"))["kind"] == "Project"
    ready = {"type": "Ready", "status": "True", "reason": "Ready"}
    await server.merge(f"{projects}/demo/status", {"status": {"conditions": [ready]}})
    inside = await server.json("GET", f"{PROJECT}{projects}")
    assert (inside["kind"], inside["items"]) == ("ProjectList", [])
    await server.json("DELETE", f"{projects}/demo")
    assert (await server.json("GET", f"{PROJECT}/api/v1/namespaces/default"))["kind"] == "Namespace"


async def test_discovery_contains_categories(server: InProcessServer) -> None:
    for kind in KINDS:
        path = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        resources = {r["name"]: r for r in (await server.json("GET", path))["resources"]}
        assert tuple(resources[kind.plural].get("categories", ())) == kind.categories
