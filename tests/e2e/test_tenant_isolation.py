"""Isolation of projects and cells, with the credentials that they have.

The project ``default`` attacks ``bank``, which has a workload with a Secret on the cell dfw, and
another workload on ord. Then the cell dfw attacks objects of others.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from testkit.processes.local_platform import eventually
from tests.e2e.processes import (
    CLUSTERS,
    COMPUTE,
    DEPLOYMENTS,
    INSTANCES,
    NAMESPACE,
    WORKS,
    Api,
    Object,
    Processes,
    condition,
    objects_of,
    workload,
)

pytestmark = pytest.mark.e2e

PROJECTS = "/apis/resourcemanager.miloapis.com/v1alpha1/projects"
BANK = f"{PROJECTS}/bank/control-plane"
CLAIMS = "/apis/quota.miloapis.com/v1alpha1"
CANARY = "bank-canary"
IDENTITY = "meta.datumapis.com/upstream-cluster-name"
CELL = "compute.datumapis.com/cell"


@pytest.fixture(scope="module")
def topology(embedded_topology: Processes) -> Processes:
    return embedded_topology


@pytest.fixture(scope="module")
def bank(topology: Processes) -> Iterator[Api]:
    platform = topology.api("platform")
    owner = {"ownerRef": {"kind": "Organization", "name": "default"}}
    platform.create(PROJECTS, _object("resourcemanager.miloapis.com/v1alpha1", "Project", owner))
    eventually(lambda: "project/bank" in topology.kubeconfig.read_text(), "it has a context")
    api = topology.api("project/bank")
    entitlement = _object(
        "services.miloapis.com/v1alpha1", "ServiceEntitlement", {"serviceRef": {"name": "compute"}}
    )
    entitlement["metadata"]["name"] = "compute"
    services = "/apis/services.miloapis.com/v1alpha1/serviceentitlements"
    api.create(services, entitlement)
    eventually(
        lambda: condition(api.find(f"{services}/compute"), "Ready")[0] == "True", "it has access"
    )
    data = {"password": base64.b64encode(CANARY.encode()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "data": data}
    api.create("/api/v1/namespaces/default/secrets", secret)
    vault = workload("vault", "DFW")
    (container,) = vault["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    reference = {"secretKeyRef": {"name": "db", "key": "password"}}
    container["env"] = [{"name": "PASSWORD", "valueFrom": reference}]
    for body in (vault, workload("north", "ORD")):
        api.create(f"{NAMESPACE}/workloads", body)
    eventually(lambda: _count_ready(api) == 2, "both of its workloads are ready")
    yield api
    platform.delete(f"{PROJECTS}/bank")
    eventually(lambda: platform.find(f"{PROJECTS}/bank") is None, "the project is deleted", 60)


def _object(version: str, kind: str, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "bank"}, "spec": spec}


def _count_ready(api: Api) -> int:
    return [condition(i, "Ready")[0] for i in api.items(INSTANCES)].count("True")


def _state(api: Api) -> Any:
    """Return the objects of a project that an attack could change."""
    paths = (DEPLOYMENTS, INSTANCES, f"{COMPUTE}/workloads", "/api/v1/secrets")
    return [
        sorted((o["metadata"]["uid"], json.dumps(o.get("spec"))) for o in api.items(path))
        for path in paths
    ]


def test_a_project_cannot_read_or_change_another(
    topology: Processes, project: Api, bank: Api, hub: Api
) -> None:
    before = _state(bank)
    (vault,) = objects_of(bank, INSTANCES, "vault")
    (copy,) = objects_of(hub, INSTANCES, "vault")
    name, hub_namespace = vault["metadata"]["name"], copy["metadata"]["namespace"]
    root = Api(project.server.partition("/apis/")[0], project.token, project.tls)
    own, theirs = f"{PROJECTS}/default/control-plane", f"{NAMESPACE}/instances/{name}"
    tried = {
        (method, path): root.status_code(method, path, body)
        for method, path, body in (
            ("GET", f"{BANK}/api/v1/namespaces/default/secrets/db", None),
            ("GET", f"{BANK}/api/v1/events", None),
            ("GET", f"{BANK}/apis", None),
            ("GET", f"{BANK}{theirs}/log", None),
            ("POST", f"{BANK}{theirs}/exec?command=id", {}),
            ("DELETE", f"{BANK}{NAMESPACE}/workloads/vault", None),
            ("PATCH", f"{BANK}{NAMESPACE}/workloads/vault", {"metadata": {"labels": {"a": "b"}}}),
            ("DELETE", f"{PROJECTS}/bank", None),
            ("GET", f"/planes/hub/api/v1/namespaces/{hub_namespace}/secrets/db", None),
            ("GET", f"/planes/hub{WORKS}", None),
            ("GET", f"/planes/cells/dfw/api/v1/namespaces/{hub_namespace}/secrets/db", None),
            ("GET", "/backup", None),
            ("GET", "/metrics", None),
            ("POST", "/planes/hub/apis/compute.datumapis.com/v1alpha/celljoins", {}),
            # The own plane does not contain the objects of the other project.
            ("GET", f"{own}{theirs}/log", None),
            ("GET", f"{own}/../bank/control-plane/api/v1/secrets", None),
            ("PATCH", f"{own}{CLAIMS}/namespaces/milo-system/resourcegrants/x", {"spec": {}}),
        )
    }
    assert {k: v for k, v in tried.items() if v not in (403, 404)} == {}
    cell_port = topology.cell_api("dfw")
    assert (
        Api(cell_port.server, project.token, cell_port.tls).status_code("GET", "/api/v1/secrets")
        == 401
    )
    assert _state(bank) == before


def test_forged_labels_and_annotations_of_a_project_are_ignored(
    topology: Processes, project: Api, bank: Api, hub: Api
) -> None:
    """A project may write identity labels on its objects; the hub does not use them."""
    before = _state(bank)
    (copy,) = objects_of(hub, INSTANCES, "vault")
    forged = {IDENTITY: "cluster-bank", CELL: "ord"}
    marked = workload("forged", "DFW")
    marked["spec"]["template"]["metadata"] = {"labels": forged}
    assert project.status_code("POST", f"{NAMESPACE}/workloads", marked) == 422
    hub_namespace = {"compute.datumapis.com/federation-namespace": copy["metadata"]["namespace"]}
    marked = workload("forged", "DFW")
    marked["metadata"] |= {"labels": forged, "annotations": hub_namespace}
    project.create(f"{NAMESPACE}/workloads", marked)
    project.patch("/api/v1/namespaces/default", {"metadata": {"labels": forged}})
    try:
        eventually(lambda: bool(objects_of(hub, INSTANCES, "forged")), "it runs")
        (seen,) = objects_of(hub, INSTANCES, "forged")
        assert seen["metadata"]["labels"][IDENTITY] == "cluster-default"
        assert seen["metadata"]["labels"][CELL] == "dfw"
        assert seen["metadata"]["namespace"] != copy["metadata"]["namespace"]
        assert _state(bank) == before
    finally:
        project.patch("/api/v1/namespaces/default", {"metadata": {"labels": dict.fromkeys(forged)}})


def test_a_cell_cannot_reach_objects_of_another_cell_or_secrets(
    topology: Processes, bank: Api, hub: Api
) -> None:
    before, dfw = _state(bank), topology.as_cell("dfw")
    (north,) = objects_of(hub, INSTANCES, "north")
    (vault,) = objects_of(hub, INSTANCES, "vault")
    on_hub, hub_namespace = f"/planes/hub{COMPUTE}", vault["metadata"]["namespace"]
    space, name = f"{on_hub}/namespaces/{hub_namespace}", north["metadata"]["name"]
    claim = f"{BANK}{CLAIMS}/namespaces/default/resourceclaims/instance-{name}"
    taken = {"metadata": {"labels": {CELL: "dfw"}}}
    stolen = {"metadata": {"labels": {IDENTITY: "cluster-default"}}}
    tried = {
        (method, path): dfw.status_code(method, path, body)
        for method, path, body in (
            ("GET", f"/planes/hub/api/v1/namespaces/{hub_namespace}/secrets/db", None),
            ("GET", f"/planes/hub{WORKS}", None),
            ("GET", "/planes/hub/api/v1/namespaces", None),
            ("GET", f"{on_hub}/instances", None),
            ("GET", f"{on_hub}/instances?labelSelector={CELL}=ord", None),
            ("GET", f"{space}/instances/{name}", None),
            ("DELETE", f"{space}/instances/{name}", None),
            ("DELETE", f"{space}/instances", None),
            ("PATCH", f"{space}/instances/{name}", taken),
            ("PATCH", f"{space}/instances/{vault['metadata']['name']}", stolen),
            ("PATCH", f"/planes/hub{CLUSTERS}/ord/status", {"status": {"conditions": []}}),
            ("PATCH", f"/planes/hub{CLUSTERS}/dfw", {"metadata": {"labels": {"a": "b"}}}),
            ("GET", f"{BANK}/api/v1/namespaces/default/secrets/db", None),
            ("GET", f"{BANK}{NAMESPACE}/workloads", None),
            ("GET", claim, None),
            ("DELETE", claim, None),
            ("GET", "/planes/cells/ord/api/v1/secrets", None),
            ("GET", "/backup", None),
        )
    }
    assert {k: v for k, v in tried.items() if v != 403} == {}
    assert dfw.status_code("GET", f"/planes/hub{CLUSTERS}/dfw") == 200, (
        "a cell can read its own Cluster"
    )
    assert _state(bank) == before
