"""A hub with two joined cells, a project with deployments for both, and the tokens of the cells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.membership import CELLS_GROUP, KEY_HASH, cell_user_of
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PlaneName, path_prefix, work_name
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.planes.role_objects import ensure_roles
from datum_compute.server.access.authentication import User
from testkit.api_server.running_server import (
    PROJECT,
    TOKEN,
    InProcessServer,
    namespace,
    running_server,
)

HUB = "/planes/hub"
HUB_NAMESPACE = "ns-u1"  # of the namespace default of the project
COMPUTE = f"{HUB}/apis/compute.datumapis.com/v1alpha"
CLUSTERS = f"{HUB}/apis/cluster.karmada.io/v1alpha1/clusters"
LEASES = f"{HUB}/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases"
INSTANCES = f"{COMPUTE}/namespaces/{HUB_NAMESPACE}/instances"
DEPLOYMENTS = f"{COMPUTE}/namespaces/{HUB_NAMESPACE}/workloaddeployments"
CLAIMS = f"{PROJECT}/apis/quota.miloapis.com/v1alpha1/namespaces/default/resourceclaims"
CITY, CELL = "topology.datum.net/city-code", "compute.datumapis.com/cell"
SOURCE = "compute.datumapis.com/source-cluster"
CELLS = {"dfw": "DFW", "iad": "IAD"}


def cell_user(cell: str, key: str = "") -> User:
    extra = ((KEY_HASH, (key or f"key-of-{cell}",)),)
    return User(cell_user_of(cell), (CELLS_GROUP,), frozenset({"*"}), extra=extra)


def token_of(cell: str) -> str:
    return f"token-of-{cell}"


USERS = {
    **{token_of(cell): cell_user(cell) for cell in (*CELLS, "lhr")},
    "token-of-thief": cell_user("dfw", "another-key"),
}


@asynccontextmanager
async def hub_with_two_cells(
    more_users: dict[str, User] | None = None, **more: Any
) -> AsyncIterator[InProcessServer]:
    """Deployment ``a`` is bound to dfw and ``b`` to iad; each has one instance with a claim."""
    async with running_server(users={**USERS, **(more_users or {})}, **more) as server:
        for plane in ("hub", "project/demo"):
            await _ensure_roles(server, PlaneName(plane))
        identity = {
            "meta.datumapis.com/upstream-namespace": "default",
            "meta.datumapis.com/upstream-cluster-name": "cluster-demo",
        }
        spaces = f"{HUB}/api/v1/namespaces"
        await server.json("POST", spaces, namespace(HUB_NAMESPACE, labels=identity))
        await server.json("POST", spaces, namespace("karmada-cluster"))
        for (cell, city), name in zip(CELLS.items(), ("a", "b"), strict=True):
            await server.json("POST", CLUSTERS, cluster(cell, city))
            await server.json("POST", spaces, namespace(f"karmada-es-{cell}"))
            await server.json("POST", DEPLOYMENTS, deployment(name, city))
            await bind(server, cell, name)
            await server.json("POST", INSTANCES, instance(f"{name}-0", cell))
            await server.json("POST", CLAIMS, claim(f"{name}-0", cell))
        yield server


async def _ensure_roles(server: InProcessServer, plane: PlaneName) -> None:
    transport = InProcessTransport(server.api.dispatch)
    client = Client(transport, prefix=path_prefix(plane), token=TOKEN, agent="test")
    await ensure_roles(client, plane)


async def bind(server: InProcessServer, cell: str, name: str) -> None:
    manifest = deployment(name, CELLS[cell])
    work = {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": work_name(DEPLOYMENT, Ref(HUB_NAMESPACE, name))},
        "spec": {"workload": {"manifests": [manifest]}},
    }
    path = f"{HUB}/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cell}/works"
    await server.json("POST", path, work)


def cluster(cell: str, city: str) -> JsonObject:
    metadata = {
        "name": cell,
        "labels": {CITY: city},
        "annotations": {KEY_HASH: f"key-of-{cell}"},
    }
    return {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": metadata}


def _template() -> JsonObject:
    container = {"name": "app", "image": "web:1"}
    return {"runtime": {"sandbox": {"containers": [container]}}}


def deployment(name: str, city: str) -> JsonObject:
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "WorkloadDeployment",
        "metadata": {"name": name, "namespace": HUB_NAMESPACE, "labels": {CITY: city}},
        "spec": {
            "workloadRef": {"name": "web", "uid": "u"},
            "placementName": "main",
            "cityCode": city,
            "template": {"spec": _template()},
            "scaleSettings": {"minReplicas": 1},
        },
    }


def instance(name: str, cell: str) -> JsonObject:
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "Instance",
        "metadata": {"name": name, "namespace": HUB_NAMESPACE, "labels": {CELL: cell}},
        "spec": _template(),
    }


def claim(instance_name: str, cell: str, **labels: str) -> JsonObject:
    project = {"apiGroup": "resourcemanager.miloapis.com", "kind": "Project", "name": "demo"}
    metadata = {
        "name": f"instance-{instance_name}",
        "namespace": "default",
        "labels": {
            SOURCE: cell,
            "compute.datumapis.com/instance-namespace": HUB_NAMESPACE,
            "compute.datumapis.com/workload-deployment-name": instance_name.rpartition("-")[0],
            **labels,
        },
    }
    return {
        "apiVersion": "quota.miloapis.com/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {
            "consumerRef": project,
            "resourceRef": project,
            "requests": [{"resourceType": "compute.datumapis.com/instances", "amount": 1}],
        },
    }


def lease(name: str) -> JsonObject:
    metadata = {"name": name, "namespace": "karmada-cluster"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
