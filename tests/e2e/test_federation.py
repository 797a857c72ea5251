"""Federation through real processes: from the project to hub and cells, and back.

On every topology (topologies.py) the hub and each cell have their own store, port and credentials.
Each test removes what it creates.
"""

from __future__ import annotations

from functools import partial

import pytest

from testkit.processes.local_platform import eventually
from tests.e2e.processes import (
    CLUSTERS,
    COMPUTE,
    DEPLOYMENTS,
    INSTANCES,
    NAMESPACE,
    POLICIES,
    SERVERS,
    WORKS,
    Api,
    condition,
    objects_of,
    workload,
)
from tests.e2e.topologies import Topology, cell

pytestmark = pytest.mark.e2e

_NOT_PLACED = ("False", "AmbiguousServingLocation")


def is_missing(api: Api, path: str) -> bool:
    return api.find(path) is None


def is_available(project: Api, name: str) -> bool:
    return available_condition(project, name)[0] == "True"


def available_condition(project: Api, name: str) -> tuple[str, str]:
    return condition(project.find(f"{NAMESPACE}/workloads/{name}"), "Available")


def deploy(project: Api, name: str, *cities: str, replicas: int = 1) -> None:
    project.create(f"{NAMESPACE}/workloads", workload(name, *cities, replicas=replicas))
    eventually(lambda: is_available(project, name), f"{name} is available")


def ready_instances(project: Api, name: str) -> int:
    found = objects_of(project, INSTANCES, name)
    return [condition(i, "Ready")[0] for i in found].count("True")


def test_a_deployment_goes_to_the_hub_with_a_policy_for_its_city(project: Api, hub: Api) -> None:
    deploy(project, "to-hub", "DFW")
    (source,) = objects_of(project, DEPLOYMENTS, "to-hub")
    (copy,) = objects_of(hub, DEPLOYMENTS, "to-hub")
    hub_namespace = copy["metadata"]["namespace"]
    assert (
        source["metadata"]["annotations"]["compute.datumapis.com/federation-namespace"]
        == hub_namespace
    )
    assert "compute.datumapis.com/federator" in source["metadata"]["finalizers"]
    assert copy["metadata"]["labels"]["topology.datum.net/city-code"] == "DFW"
    policies = [p for p in hub.items(POLICIES) if p["metadata"]["namespace"] == hub_namespace]
    (policy,) = [p for p in policies if p["metadata"]["name"] == "city-dfw"]
    affinity = policy["spec"]["placement"]["clusterAffinity"]["labelSelector"]["matchLabels"]
    assert affinity == {"topology.datum.net/city-code": "DFW"}


def test_instances_run_only_on_the_cell_of_the_city_and_are_projected_back(
    topology: Topology, project: Api, hub: Api
) -> None:
    deploy(project, "whole", "ORD")
    assert objects_of(cell(topology, "dfw"), DEPLOYMENTS, "whole") == []
    (on_cell,) = objects_of(cell(topology, "ord"), INSTANCES, "whole")
    (on_hub,) = objects_of(hub, INSTANCES, "whole")
    eventually(lambda: ready_instances(project, "whole") == 1, "the projection is ready")
    (shown,) = objects_of(project, INSTANCES, "whole")
    (server,) = objects_of(cell(topology, "ord"), SERVERS, "whole")
    assert server["status"]["phase"] == "Running"
    assert len({o["metadata"]["uid"] for o in (on_cell, on_hub, shown)}) == 3
    (owner,) = on_hub["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("WorkloadDeployment", True)
    assert owner["blockOwnerDeletion"] is True
    (source,) = objects_of(project, DEPLOYMENTS, "whole")
    (shown_owner,) = shown["metadata"]["ownerReferences"]
    assert shown_owner["uid"] == source["metadata"]["uid"]
    labels = on_hub["metadata"]["labels"]
    assert labels["meta.datumapis.com/upstream-namespace"] == "default"
    assert labels["meta.datumapis.com/upstream-cluster-name"] == "cluster-default"


def test_a_policy_exists_while_a_deployment_of_its_city_does(project: Api, hub: Api) -> None:
    deploy(project, "policy-one", "ORD")
    deploy(project, "policy-two", "ORD")
    project.delete(f"{NAMESPACE}/workloads/policy-one")
    eventually(lambda: not objects_of(hub, DEPLOYMENTS, "policy-one"), "the first has left the hub")
    assert "city-ord" in hub.names(POLICIES)
    project.delete(f"{NAMESPACE}/workloads/policy-two")
    eventually(
        lambda: "city-ord" not in hub.names(POLICIES),
        "the policy is deleted with the last deployment",
    )


def test_deletion_removes_everything_on_every_plane(
    topology: Topology, project: Api, hub: Api
) -> None:
    deploy(project, "cascade", "DFW", "ORD")
    project.delete(f"{NAMESPACE}/workloads/cascade")
    eventually(
        lambda: not objects_of(project, DEPLOYMENTS, "cascade"), "the project has no deployments"
    )
    eventually(
        lambda: not objects_of(hub, WORKS, "cascade"), "the cells have confirmed the deletion"
    )
    for api in (project, hub, cell(topology, "dfw"), cell(topology, "ord")):
        assert objects_of(api, DEPLOYMENTS, "cascade") == []
        assert objects_of(api, INSTANCES, "cascade") == []


def test_scaling_down_removes_the_projection(project: Api) -> None:
    deploy(project, "scaled", "DFW", replicas=3)
    eventually(lambda: ready_instances(project, "scaled") == 3, "three projections are ready")
    fewer = workload("scaled", "DFW", replicas=1)["spec"]
    project.patch(f"{NAMESPACE}/workloads/scaled", {"spec": fewer})
    eventually(lambda: len(objects_of(project, INSTANCES, "scaled")) == 1, "one is left")
    assert ready_instances(project, "scaled") == 1, "the remaining one is ready"


def test_a_deleted_hub_deployment_is_recreated_with_new_instances(project: Api, hub: Api) -> None:
    """The federator recreates the deployment; the instances of the old one are deleted."""
    deploy(project, "reclaim", "DFW")
    (copy,) = objects_of(hub, DEPLOYMENTS, "reclaim")
    (before,) = objects_of(hub, INSTANCES, "reclaim")
    hub_namespace = copy["metadata"]["namespace"]
    hub.delete(
        f"{COMPUTE}/namespaces/{hub_namespace}/workloaddeployments/{copy['metadata']['name']}"
    )

    def has_new_instance() -> bool:
        found = objects_of(hub, INSTANCES, "reclaim")
        return bool(found) and found[0]["metadata"]["uid"] != before["metadata"]["uid"]

    eventually(has_new_instance, "the instance is reported under the new deployment")
    # Karmada also deletes the copy on the cell, so it may be recreated more than once.
    eventually(
        lambda: (
            is_available(project, "reclaim") and len(objects_of(hub, INSTANCES, "reclaim")) == 1
        ),
        "it is available with one instance",
    )


def test_deleting_a_project_namespace_removes_its_objects_from_all_planes(
    topology: Topology, project: Api, hub: Api
) -> None:
    spaces = "/api/v1/namespaces"
    project.create(spaces, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}})
    network = {
        "apiVersion": "networking.datumapis.com/v1alpha",
        "kind": "Network",
        "metadata": {"name": "default"},
        "spec": {"ipam": {"mode": "Auto"}, "ipFamilies": ["IPv4"]},
    }
    networks = "/apis/networking.datumapis.com/v1alpha/namespaces/gone/networks"
    project.create(networks, network)
    project.create(f"{COMPUTE}/namespaces/gone/workloads", workload("wedge", "DFW"))
    eventually(lambda: bool(objects_of(hub, DEPLOYMENTS, "wedge")), "it is on the hub")
    hub_namespace = objects_of(hub, DEPLOYMENTS, "wedge")[0]["metadata"]["namespace"]
    project.delete(f"{spaces}/gone")
    eventually(lambda: project.find(f"{spaces}/gone") is None, "the namespace is deleted", 60)
    eventually(lambda: not objects_of(hub, DEPLOYMENTS, "wedge"), "the hub copy is deleted")
    eventually(
        lambda: not objects_of(cell(topology, "dfw"), INSTANCES, "wedge"),
        "its instances are deleted",
    )
    for api in (hub, cell(topology, "dfw")):
        eventually(
            partial(is_missing, api, f"{spaces}/{hub_namespace}"),
            "its hub and cell namespaces are deleted",
            60,
        )
    assert project.find(f"{spaces}/default") is not None, "other namespaces stay"


def copies(topology: Topology, context: str, names: list[str]) -> list[str]:
    api = topology.api(context, manager=True)
    kinds = ("configmaps", "secrets")
    return sorted(n for kind in kinds for n in api.names(f"/api/v1/{kind}") if n in names)


def has_no_copies(topology: Topology, context: str, names: list[str]) -> bool:
    return not copies(topology, context, names)


def test_referenced_data_is_copied_with_its_workload_and_deleted_with_it(
    topology: Topology, project: Api
) -> None:
    core = "/api/v1/namespaces/default"
    taking = workload("taking", "DFW")
    sandbox = taking["spec"]["template"]["spec"]["runtime"]["sandbox"]
    sandbox["containers"][0]["env"] = [
        {
            "name": "PASSWORD",
            "valueFrom": {"secretKeyRef": {"name": "taken-db", "key": "password"}},
        },
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "taken-conf", "key": "mode"}}},
    ]
    names = ["taken-conf", "taken-db"]
    project.create(f"{NAMESPACE}/workloads", taking)
    eventually(
        lambda: (
            condition(project.find(f"{NAMESPACE}/workloads/taking"), "Available")[1]
            == "SourceNotFound"
        ),
        "it reports the missing source",
    )
    conf = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken-conf"}}
    project.create(f"{core}/configmaps", {**conf, "data": {"mode": "quiet"}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "taken-db"}}
    project.create(f"{core}/secrets", {**secret, "stringData": {"password": "open sesame"}})
    try:
        eventually(lambda: is_available(project, "taking"), "it is available")
        assert copies(topology, "hub", names) == copies(topology, "cell/dfw", names) == names
        assert copies(topology, "cell/ord", names) == []
        project.delete(f"{NAMESPACE}/workloads/taking")
        for context in ("hub", "cell/dfw"):
            eventually(partial(has_no_copies, topology, context, names), f"none on {context}")
        assert copies(topology, "project/default", names) == names
    finally:
        project.delete(f"{core}/configmaps/taken-conf")
        project.delete(f"{core}/secrets/taken-db")


def test_a_drained_cell_keeps_its_workloads_and_gets_no_new_ones(
    topology: Topology, project: Api, hub: Api
) -> None:
    deploy(project, "before", "ORD")
    try:
        drained = topology.run("cell", "drain", "ord")
        assert drained.returncode == 0, drained.stderr
        project.create(f"{NAMESPACE}/workloads", workload("after", "ORD"))
        eventually(
            lambda: (
                condition(project.find(f"{NAMESPACE}/workloads/after"), "Available")
                == ("False", "CellDrained")
            ),
            "the new workload reports CellDrained",
        )
        assert is_available(project, "before")
        assert "CellDrained" in topology.run("cell", "list").stdout
    finally:
        topology.run("cell", "undrain", "ord")
    eventually(lambda: is_available(project, "after"), "it is placed after undrain")


def test_a_second_cell_of_a_city_is_reported_and_duplicates_no_workload(
    topology: Topology, project: Api, hub: Api
) -> None:
    deploy(project, "alone", "DFW")
    admin = topology.api("hub")
    twin = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "twin", "labels": {"topology.datum.net/city-code": "DFW"}},
        "spec": {"syncMode": "Push"},
    }
    admin.create(CLUSTERS, twin)
    try:
        eventually(
            lambda: "AmbiguousServingLocation" in topology.run("cell", "list").stdout,
            "the ambiguity is reported",
        )
        project.create(f"{NAMESPACE}/workloads", workload("second", "DFW"))
        # Our propagator does not place new deployments; Karmada selects a reachable cell.
        expected = (
            ("True", "AvailablePlacementFound") if topology.propagator == "karmada" else _NOT_PLACED
        )
        eventually(
            lambda: available_condition(project, "second") == expected,
            "the new workload has the expected condition",
        )
        assert is_available(project, "alone")
        works = [*objects_of(hub, WORKS, "alone"), *objects_of(hub, WORKS, "second")]
        assert "karmada-es-twin" not in [w["metadata"]["namespace"] for w in works]
    finally:
        admin.delete(f"{CLUSTERS}/twin")
    eventually(lambda: is_available(project, "second"), "it is placed after the twin is deleted")
