"""Permissions of the credential of a cell on the hub and in projects."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.http import MERGE_PATCH
from datum_compute.api.labels import DEPLOYMENT_NAME
from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.running_server import PROJECT, InProcessServer
from tests.server.cell_world import (
    CELL,
    CITY,
    CLAIMS,
    CLUSTERS,
    COMPUTE,
    DEPLOYMENTS,
    HUB,
    HUB_NAMESPACE,
    INSTANCES,
    LEASES,
    SOURCE,
    claim,
    hub_with_two_cells,
    instance,
    lease,
    token_of,
)

LABEL: JsonObject = {"metadata": {"annotations": {"seen": "yes"}}}
ALL_INSTANCES, ALL_DEPLOYMENTS = f"{COMPUTE}/instances", f"{COMPUTE}/workloaddeployments"
ALL_CLAIMS = f"{PROJECT}/apis/quota.miloapis.com/v1alpha1/resourceclaims"
WORKS = f"{HUB}/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-dfw/works"
SECRETS = f"{HUB}/api/v1/namespaces/karmada-cluster/secrets"

# As the cell dfw: method, path, what is sent, the label selector, and the answer.
TABLE: list[tuple[str, str, Any, str, int]] = [
    # Its own Cluster, and no other.
    ("GET", f"{CLUSTERS}/dfw", None, "", 200),
    ("GET", f"{CLUSTERS}/iad", None, "", 403),
    ("GET", CLUSTERS, None, "", 403),
    ("PATCH", f"{CLUSTERS}/dfw/status", {"status": {"kubernetesVersion": "v1"}}, "", 200),
    ("PATCH", f"{CLUSTERS}/iad/status", {"status": {"kubernetesVersion": "v1"}}, "", 403),
    ("PATCH", f"{CLUSTERS}/dfw", {"metadata": {"labels": {CITY: "LHR"}}}, "", 403),
    ("DELETE", f"{CLUSTERS}/dfw", None, "", 403),
    # Its own Lease.
    ("POST", LEASES, lease("iad"), "", 403),
    ("POST", LEASES, lease("dfw"), "", 201),
    ("PATCH", f"{LEASES}/dfw", {"spec": {"holderIdentity": "dfw"}}, "", 200),
    ("PATCH", f"{LEASES}/iad", {"spec": {"holderIdentity": "dfw"}}, "", 403),
    ("POST", LEASES.replace("karmada-cluster", "default"), lease("dfw"), "", 403),
    # Deployments that are bound to it; it never writes one.
    ("GET", f"{DEPLOYMENTS}/a", None, "", 200),
    ("GET", f"{DEPLOYMENTS}/b", None, "", 403),
    ("GET", f"{DEPLOYMENTS}/none", None, "", 404),
    ("GET", ALL_DEPLOYMENTS, None, f"{CITY}=DFW", 200),
    ("GET", ALL_DEPLOYMENTS, None, f"{CITY}=IAD", 403),
    ("GET", ALL_DEPLOYMENTS, None, f"{CITY} in (DFW,IAD)", 403),
    ("GET", ALL_DEPLOYMENTS, None, f"{CITY}!=DFW", 403),
    ("GET", ALL_DEPLOYMENTS, None, "", 403),
    ("GET", DEPLOYMENTS, None, "", 403),
    ("PATCH", f"{DEPLOYMENTS}/a", LABEL, "", 403),
    ("PATCH", f"{DEPLOYMENTS}/a/status", {"status": {}}, "", 403),
    # Instances that it wrote, or that belong to what is bound to it.
    ("GET", f"{INSTANCES}/a-0", None, "", 200),
    ("GET", f"{INSTANCES}/b-0", None, "", 403),
    ("GET", ALL_INSTANCES, None, f"{CELL}=dfw", 200),
    ("GET", ALL_INSTANCES, None, f"{CELL}=dfw,{CITY}=DFW", 200),
    ("GET", ALL_INSTANCES, None, f"{CELL}=iad", 403),
    ("GET", ALL_INSTANCES, None, "", 403),
    ("PATCH", f"{INSTANCES}/a-0", LABEL, "", 200),
    ("PATCH", f"{INSTANCES}/b-0", LABEL, "", 403),
    ("PATCH", f"{INSTANCES}/a-0/status", {"status": {"conditions": []}}, "", 200),
    ("PATCH", f"{INSTANCES}/b-0/status", {"status": {"conditions": []}}, "", 403),
    ("PATCH", f"{INSTANCES}/a-0", {"metadata": {"labels": {CELL: "iad"}}}, "", 403),
    ("POST", INSTANCES, instance("a-1", "dfw"), "", 201),
    ("POST", INSTANCES, instance("a-2", "iad"), "", 403),
    ("POST", INSTANCES, instance("b-1", "dfw"), "", 403),
    ("DELETE", f"{INSTANCES}/b-0", None, "", 403),
    ("DELETE", f"{INSTANCES}/a-1", None, "", 200),
    ("DELETE", INSTANCES, None, f"{CELL}=dfw", 403),
    # The quota claims of its instances.
    ("GET", ALL_CLAIMS, None, f"{SOURCE}=dfw", 200),
    ("GET", ALL_CLAIMS, None, "", 403),
    ("GET", f"{CLAIMS}/instance-a-0", None, "", 200),
    ("GET", f"{CLAIMS}/instance-b-0", None, "", 403),
    ("DELETE", f"{CLAIMS}/instance-b-0", None, "", 403),
    ("PATCH", f"{CLAIMS}/instance-a-0", {"metadata": {"labels": {SOURCE: "iad"}}}, "", 403),
    ("POST", CLAIMS, claim("a-1", "dfw"), "", 201),
    ("POST", CLAIMS, claim("a-2", "iad"), "", 403),
    ("POST", CLAIMS, claim("b-1", "dfw"), "", 403),
    # The name of deployment a-b starts with that of deployment a, which is bound to the cell.
    ("POST", CLAIMS, claim("a-b-1", "dfw", **{DEPLOYMENT_NAME: "a"}), "", 403),
    ("DELETE", f"{CLAIMS}/instance-a-1", None, "", 200),
    # Nothing else of the hub, nor of a project, nor of the platform.
    ("GET", WORKS, None, "", 403),
    ("GET", SECRETS, None, "", 403),
    ("GET", f"{HUB}/api/v1/namespaces/{HUB_NAMESPACE}", None, "", 403),
    ("GET", f"{COMPUTE}/jointokens", None, "", 403),
    ("GET", f"{PROJECT}/api/v1/namespaces/default/secrets", None, "", 403),
    ("GET", "/api/v1/namespaces", None, "", 403),
]


async def status_code(
    server: InProcessServer,
    method: str,
    path: str,
    body: Any = None,
    *,
    labels: str = "",
    cell: str = "dfw",
) -> int:
    headers = {"content-type": MERGE_PATCH} if method == "PATCH" else {}
    query = {"labelSelector": labels} if labels else {}
    asked = await server.ask(method, path, body, token=token_of(cell), headers=headers, **query)
    return asked.status


async def test_a_cell_can_access_only_its_own_objects() -> None:
    async with hub_with_two_cells() as server:
        wrong = []
        for method, path, body, labels, expected in TABLE:
            got = await status_code(server, method, path, body, labels=labels)
            if got != expected:
                wrong.append(f"{method} {path} {labels}: {got}, not {expected}")
    assert not wrong


async def test_a_list_contains_no_object_of_another_cell() -> None:
    async with hub_with_two_cells() as server:
        for path, labels in ((ALL_INSTANCES, f"{CELL}=dfw"), (ALL_DEPLOYMENTS, f"{CITY}=DFW")):
            listed = await server.json("GET", path, token=token_of("dfw"), labelSelector=labels)
            assert [item["metadata"]["name"][0] for item in listed["items"]] == ["a"]


async def test_a_watch_of_objects_of_other_cells_is_rejected() -> None:
    async with hub_with_two_cells() as server:
        for labels, expected in ((f"{CELL}=dfw", 200), (f"{CELL}=iad", 403), ("", 403)):
            asked = await server.ask(
                "GET", ALL_INSTANCES, token=token_of("dfw"), watch="1", labelSelector=labels
            )
            assert asked.status == expected


async def test_a_cell_can_delete_its_objects_after_the_deployment_has_moved() -> None:
    async with hub_with_two_cells() as server:
        (work,) = (await server.json("GET", WORKS))["items"]
        await server.json("DELETE", f"{WORKS}/{work['metadata']['name']}")
        assert await status_code(server, "POST", INSTANCES, instance("a-1", "dfw")) == 403
        assert await status_code(server, "PATCH", f"{INSTANCES}/a-0", LABEL) == 403
        assert await status_code(server, "DELETE", f"{INSTANCES}/a-0") == 200


@pytest.mark.parametrize("cell", ["lhr", "thief"])
async def test_a_certificate_without_a_cluster_of_its_key_has_no_permissions(cell: str) -> None:
    async with hub_with_two_cells() as server:
        assert await status_code(server, "GET", f"{CLUSTERS}/dfw", cell=cell) == 403
        assert await status_code(server, "GET", f"{INSTANCES}/a-0", cell=cell) == 403
        refused = await server.status("GET", f"{CLUSTERS}/{cell}", token=token_of(cell))
        assert "has joined" in refused["message"] or "another cell" in refused["message"]


async def test_a_deleted_cell_loses_its_permissions_and_open_watches() -> None:
    async with hub_with_two_cells() as server:
        ask = {"token": token_of("dfw"), "labelSelector": f"{CELL}=dfw", "resourceVersion": "0"}
        watch = await server.watch(ALL_INSTANCES, **ask)
        assert await watch.names(1) == [("ADDED", "a-0")]
        await server.json("DELETE", f"{CLUSTERS}/dfw")
        assert await watch.rest() == []
        assert await status_code(server, "GET", f"{INSTANCES}/a-0") == 403


async def test_a_heartbeat_does_not_end_watches() -> None:
    async with hub_with_two_cells() as server:
        ask = {"token": token_of("dfw"), "labelSelector": f"{CELL}=dfw", "resourceVersion": "0"}
        watch = await server.watch(ALL_INSTANCES, **ask)
        await watch.names(1)
        beat = {"status": {"kubernetesVersion": "v2"}}
        assert await status_code(server, "PATCH", f"{CLUSTERS}/dfw/status", beat) == 200
        assert await status_code(server, "POST", INSTANCES, instance("a-1", "dfw")) == 201
        assert await watch.names(1) == [("ADDED", "a-1")]


DEPLOYMENT_NAME = "compute.datumapis.com/workload-deployment-name"
GRANT: JsonObject = {
    "conditions": [
        {
            "type": "Granted",
            "status": "True",
            "reason": "QuotaAvailable",
            "message": "set by the cell",
            "lastTransitionTime": "2023-11-14T22:13:20Z",
        }
    ]
}


async def test_a_cell_cannot_grant_itself_quota() -> None:
    async with hub_with_two_cells() as server:
        asked = {**claim("a-1", "dfw"), "status": GRANT}
        made = await server.json("POST", CLAIMS, asked, token=token_of("dfw"))
        patched = {"status": GRANT}
        await status_code(server, "PATCH", f"{CLAIMS}/instance-a-1", patched)
        assert await status_code(server, "PATCH", f"{CLAIMS}/instance-a-1/status", patched) == 403
        found = await server.json("GET", f"{CLAIMS}/instance-a-1")
    for obj in (made, found):
        conditions = obj.get("status", {}).get("conditions", [])
        assert "True" not in [c["status"] for c in conditions]


async def test_a_copy_must_belong_to_the_deployment_in_its_name() -> None:
    """Otherwise a cell could add it to a deployment in another city of the project."""
    async with hub_with_two_cells() as server:
        stray = instance("a-1", "dfw")
        stray["metadata"]["labels"][DEPLOYMENT_NAME] = "b"
        assert await status_code(server, "POST", INSTANCES, stray) == 403
        label = {"metadata": {"labels": {DEPLOYMENT_NAME: "b"}}}
        assert await status_code(server, "PATCH", f"{INSTANCES}/a-0", label) == 403


async def test_a_copy_must_belong_to_the_project_of_its_namespace() -> None:
    """Otherwise a cell could add objects of one project to another."""
    async with hub_with_two_cells() as server:
        for label in ("upstream-cluster-name", "upstream-namespace"):
            labels = {f"meta.datumapis.com/{label}": "cluster-other"}
            stray = instance("a-1", "dfw")
            stray["metadata"]["labels"] |= labels
            assert await status_code(server, "POST", INSTANCES, stray) == 403
            patch = {"metadata": {"labels": labels}}
            assert await status_code(server, "PATCH", f"{INSTANCES}/a-0", patch) == 403
        own = {"meta.datumapis.com/upstream-cluster-name": "cluster-demo"}
        assert (
            await status_code(server, "PATCH", f"{INSTANCES}/a-0", {"metadata": {"labels": own}})
            == 200
        )


async def test_a_cell_cannot_impersonate_other_users() -> None:
    async with hub_with_two_cells() as server:
        for header, value in (
            ("impersonate-user", "system:cell:iad"),
            ("impersonate-group", "system:masters"),
        ):
            headers = {header: value, "impersonate-user": "system:cell:iad"}
            asked = await server.ask(
                "GET", f"{CLUSTERS}/iad", token=token_of("dfw"), headers=headers
            )
            assert asked.status == 403
