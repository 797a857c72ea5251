"""A workload on its way through real processes: project, hub, cells, and back.

Whatever the planes are made of (topologies.py), the hub and each cell have their own store, port
and credentials. Every test leaves the shared topology as it found it.
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
    POLICIES,
    SERVERS,
    SPACE,
    WORKS,
    Api,
    condition,
    named,
    workload,
)
from tests.e2e.topologies import Topology, cell

pytestmark = pytest.mark.e2e

_HELD_BACK = ("False", "AmbiguousServingLocation")


def lacks(api: Api, path: str) -> bool:
    return api.find(path) is None


def is_available(project: Api, name: str) -> bool:
    return told(project, name)[0] == "True"


def told(project: Api, name: str) -> tuple[str, str]:
    return condition(project.find(f"{SPACE}/workloads/{name}"), "Available")


def deployed(project: Api, name: str, *cities: str, replicas: int = 1) -> None:
    project.create(f"{SPACE}/workloads", workload(name, *cities, replicas=replicas))
    eventually(lambda: is_available(project, name), f"{name} is available")


def ready_instances(project: Api, name: str) -> int:
    found = named(project, INSTANCES, name)
    return [condition(i, "Ready")[0] for i in found].count("True")


def test_a_deployment_goes_to_the_hub_with_a_policy_for_its_city(project: Api, hub: Api) -> None:
    deployed(project, "to-hub", "DFW")
    (source,) = named(project, DEPLOYMENTS, "to-hub")
    (copy,) = named(hub, DEPLOYMENTS, "to-hub")
    home = copy["metadata"]["namespace"]
    assert source["metadata"]["annotations"]["compute.datumapis.com/federation-namespace"] == home
    assert "compute.datumapis.com/federator" in source["metadata"]["finalizers"]
    assert copy["metadata"]["labels"]["topology.datum.net/city-code"] == "DFW"
    policies = [p for p in hub.items(POLICIES) if p["metadata"]["namespace"] == home]
    (policy,) = [p for p in policies if p["metadata"]["name"] == "city-dfw"]
    affinity = policy["spec"]["placement"]["clusterAffinity"]["labelSelector"]["matchLabels"]
    assert affinity == {"topology.datum.net/city-code": "DFW"}


def test_the_whole_way_to_the_cell_of_the_city_and_to_no_other(
    topology: Topology, project: Api, hub: Api
) -> None:
    deployed(project, "whole", "ORD")
    assert named(cell(topology, "dfw"), DEPLOYMENTS, "whole") == []
    (on_cell,) = named(cell(topology, "ord"), INSTANCES, "whole")
    (on_hub,) = named(hub, INSTANCES, "whole")
    eventually(lambda: ready_instances(project, "whole") == 1, "the projection is ready")
    (shown,) = named(project, INSTANCES, "whole")
    (server,) = named(cell(topology, "ord"), SERVERS, "whole")
    assert server["status"]["phase"] == "Running"
    assert len({o["metadata"]["uid"] for o in (on_cell, on_hub, shown)}) == 3
    (owner,) = on_hub["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("WorkloadDeployment", True)
    assert owner["blockOwnerDeletion"] is True
    (source,) = named(project, DEPLOYMENTS, "whole")
    (shown_owner,) = shown["metadata"]["ownerReferences"]
    assert shown_owner["uid"] == source["metadata"]["uid"]
    labels = on_hub["metadata"]["labels"]
    assert labels["meta.datumapis.com/upstream-namespace"] == "default"
    assert labels["meta.datumapis.com/upstream-cluster-name"] == "cluster-default"


def test_a_policy_lives_as_long_as_a_deployment_of_its_city(project: Api, hub: Api) -> None:
    deployed(project, "policy-one", "ORD")
    deployed(project, "policy-two", "ORD")
    project.delete(f"{SPACE}/workloads/policy-one")
    eventually(lambda: not named(hub, DEPLOYMENTS, "policy-one"), "the first has left the hub")
    assert "city-ord" in hub.names(POLICIES)
    project.delete(f"{SPACE}/workloads/policy-two")
    eventually(lambda: "city-ord" not in hub.names(POLICIES), "the policy goes with the last")


def test_deletion_removes_everything_on_every_plane(
    topology: Topology, project: Api, hub: Api
) -> None:
    deployed(project, "cascade", "DFW", "ORD")
    project.delete(f"{SPACE}/workloads/cascade")
    eventually(lambda: not named(project, DEPLOYMENTS, "cascade"), "the project holds nothing")
    eventually(lambda: not named(hub, WORKS, "cascade"), "the cells have confirmed")
    for api in (project, hub, cell(topology, "dfw"), cell(topology, "ord")):
        assert named(api, DEPLOYMENTS, "cascade") == []
        assert named(api, INSTANCES, "cascade") == []


def test_scaling_down_removes_the_projection(project: Api) -> None:
    deployed(project, "scaled", "DFW", replicas=3)
    eventually(lambda: ready_instances(project, "scaled") == 3, "three are shown")
    fewer = workload("scaled", "DFW", replicas=1)["spec"]
    project.patch(f"{SPACE}/workloads/scaled", {"spec": fewer})
    eventually(lambda: len(named(project, INSTANCES, "scaled")) == 1, "one is left")
    assert ready_instances(project, "scaled") == 1, "and it is one that serves"


def test_a_copy_on_the_hub_goes_with_its_deployment_and_does_not_come_back(
    project: Api, hub: Api
) -> None:
    """The federator makes the deployment anew; what hangs under the old one is gone with it."""
    deployed(project, "reclaim", "DFW")
    (copy,) = named(hub, DEPLOYMENTS, "reclaim")
    (before,) = named(hub, INSTANCES, "reclaim")
    home = copy["metadata"]["namespace"]
    hub.delete(f"{COMPUTE}/namespaces/{home}/workloaddeployments/{copy['metadata']['name']}")

    def anew() -> bool:
        found = named(hub, INSTANCES, "reclaim")
        return bool(found) and found[0]["metadata"]["uid"] != before["metadata"]["uid"]

    eventually(anew, "the instance is reported under the new deployment")
    # Karmada takes the copy on the cell away too, so that it may be made anew more than once.
    eventually(
        lambda: is_available(project, "reclaim") and len(named(hub, INSTANCES, "reclaim")) == 1,
        "it is available again, and there once",
    )


def test_a_namespace_of_the_project_can_always_be_removed(
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
    eventually(lambda: bool(named(hub, DEPLOYMENTS, "wedge")), "it has reached the hub")
    home = named(hub, DEPLOYMENTS, "wedge")[0]["metadata"]["namespace"]
    project.delete(f"{spaces}/gone")
    eventually(lambda: project.find(f"{spaces}/gone") is None, "the namespace has gone", 60)
    eventually(lambda: not named(hub, DEPLOYMENTS, "wedge"), "the hub holds nothing of it")
    eventually(lambda: not named(cell(topology, "dfw"), INSTANCES, "wedge"), "nor does the cell")
    for api in (hub, cell(topology, "dfw")):
        eventually(partial(lacks, api, f"{spaces}/{home}"), "its homes go with it", 60)
    assert project.find(f"{spaces}/default") is not None, "the others stay"


def copies(topology: Topology, context: str, names: list[str]) -> list[str]:
    api = topology.api(context, manager=True)
    kinds = ("configmaps", "secrets")
    return sorted(n for kind in kinds for n in api.names(f"/api/v1/{kind}") if n in names)


def has_no_copies(topology: Topology, context: str, names: list[str]) -> bool:
    return not copies(topology, context, names)


def test_data_goes_where_its_workload_goes_and_leaves_with_it(
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
    project.create(f"{SPACE}/workloads", taking)
    eventually(
        lambda: (
            condition(project.find(f"{SPACE}/workloads/taking"), "Available")[1] == "SourceNotFound"
        ),
        "it says what it waits for",
    )
    conf = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken-conf"}}
    project.create(f"{core}/configmaps", {**conf, "data": {"mode": "quiet"}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "taken-db"}}
    project.create(f"{core}/secrets", {**secret, "stringData": {"password": "open sesame"}})
    try:
        eventually(lambda: is_available(project, "taking"), "it runs with its data")
        assert copies(topology, "hub", names) == copies(topology, "cell/dfw", names) == names
        assert copies(topology, "cell/ord", names) == []
        project.delete(f"{SPACE}/workloads/taking")
        for context in ("hub", "cell/dfw"):
            eventually(partial(has_no_copies, topology, context, names), f"none on {context}")
        assert copies(topology, "project/default", names) == names
    finally:
        project.delete(f"{core}/configmaps/taken-conf")
        project.delete(f"{core}/secrets/taken-db")


def test_a_drained_cell_keeps_what_it_has_and_gets_nothing_new(
    topology: Topology, project: Api, hub: Api
) -> None:
    deployed(project, "before", "ORD")
    try:
        drained = topology.run("cell", "drain", "ord")
        assert drained.returncode == 0, drained.stderr
        project.create(f"{SPACE}/workloads", workload("after", "ORD"))
        eventually(
            lambda: (
                condition(project.find(f"{SPACE}/workloads/after"), "Available")
                == ("False", "CellDrained")
            ),
            "the new one says why it waits",
        )
        assert is_available(project, "before")
        assert "CellDrained" in topology.run("cell", "list").stdout
    finally:
        topology.run("cell", "undrain", "ord")
    eventually(lambda: is_available(project, "after"), "it is placed when the cell is open again")


def test_a_second_cell_of_a_city_is_reported_and_nothing_is_doubled(
    topology: Topology, project: Api, hub: Api
) -> None:
    deployed(project, "alone", "DFW")
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
            "the cell is not alone",
        )
        project.create(f"{SPACE}/workloads", workload("second", "DFW"))
        # Our propagator holds back what is new; Karmada takes one of those that answer.
        said = (
            ("True", "AvailablePlacementFound") if topology.propagator == "karmada" else _HELD_BACK
        )
        eventually(
            lambda: told(project, "second") == said,
            "the new one is where one cell has it, or says why it waits",
        )
        assert is_available(project, "alone")
        works = [*named(hub, WORKS, "alone"), *named(hub, WORKS, "second")]
        assert "karmada-es-twin" not in [w["metadata"]["namespace"] for w in works]
    finally:
        admin.delete(f"{CLUSTERS}/twin")
    eventually(lambda: is_available(project, "second"), "it is placed when one cell is left")
