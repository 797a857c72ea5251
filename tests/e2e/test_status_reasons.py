"""The reason of an instance is shown unchanged by its workload, kubectl and the command line."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import SERVER
from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import eventually
from tests.e2e.processes import (
    DEPLOYMENTS,
    INSTANCES,
    NAMESPACE,
    SERVERS,
    Api,
    Object,
    condition,
    objects_of,
    workload,
)
from tests.e2e.topologies import Topology, cell

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

HOLD = "example.com/hold"


def message(obj: Object, type_: str) -> str:
    found: list[Any] = obj.get("status", {}).get("conditions", [])
    return str(next((c["message"] for c in found if c["type"] == type_), ""))


def one(api: Api, path: str, name: str) -> Object:
    (found,) = objects_of(api, path, name)
    return found


def path_in(namespace: str, obj: Object, plural: str) -> str:
    return f"{namespace}/{plural}/{obj['metadata']['name']}"


@pytest.mark.parametrize(
    ("name", "image", "reason", "text"),
    [
        ("ended", "exit.example/web:1", "Stopped", "Failed (stopped)"),
        ("crowded", "stuck.example/web:1", "Provisioning", "Pending (no room in DFW)"),
    ],
)
def test_the_reason_of_an_instance_is_carried_up_unchanged(
    topology: Topology,
    project: Api,
    needs_kubectl: None,
    name: str,
    image: str,
    reason: str,
    text: str,
) -> None:
    path = f"{NAMESPACE}/workloads"
    project.create(path, workload(name, "DFW", image=image))
    eventually(
        lambda: condition(project.find(f"{path}/{name}"), "Available") == ("False", reason),
        f"the workload reports {reason}",
    )
    instance = one(project, INSTANCES, name)
    deployment = one(project, DEPLOYMENTS, name)
    assert condition(instance, "Ready") == condition(deployment, "Available") == ("False", reason)
    found = project.find(f"{path}/{name}") or {}
    expected = message(instance, "Ready")
    assert expected == message(deployment, "Available") == message(found, "Available")
    kubectl = Kubectl(topology.kubeconfig, "project/default")
    printed = kubectl("get", "workload", name, "--no-headers")
    assert reason in printed.split()
    assert text in topology.run("instances").stdout
    health = text.partition("(")[2]
    assert f"Unavailable ({health}" in topology.run("workloads").stdout


def test_an_instance_is_not_programmed_yet_while_it_is_set_up(
    topology: Topology, project: Api
) -> None:
    project.create(f"{NAMESPACE}/workloads", workload("setup", "DFW", image="stuck.example/web:1"))

    def is_being_set_up() -> bool:
        found = objects_of(project, INSTANCES, "setup")
        unknown = ("Unknown", "ProgrammingInProgress")
        return [condition(i, "Programmed") for i in found] == [unknown]

    eventually(is_being_set_up, "Programmed is Unknown")
    assert condition(one(project, INSTANCES, "setup"), "Ready")[0] == "False"


def test_an_instance_reports_that_it_stops(topology: Topology, project: Api) -> None:
    path, body = f"{NAMESPACE}/workloads", workload("ending", "DFW", replicas=2)
    project.create(path, body)

    def ready_replicas() -> int:
        return int((project.find(f"{path}/ending") or {}).get("status", {}).get("readyReplicas", 0))

    eventually(lambda: ready_replicas() == 2, "both instances are ready")
    dfw = cell(topology, "dfw")
    (server,) = [s for s in objects_of(dfw, SERVERS, "ending") if _is_second(s)]
    namespace = f"/apis/{SERVER.api_version}/namespaces/{server['metadata']['namespace']}"
    server_path = path_in(namespace, server, SERVER.plural)
    own = server["metadata"]["finalizers"]
    dfw.patch(server_path, {"metadata": {"finalizers": [*own, HOLD]}})
    body["spec"]["placements"][0]["scaleSettings"]["minReplicas"] = 1
    project.patch(f"{path}/ending", {"spec": {"placements": body["spec"]["placements"]}})

    def is_stopping() -> bool:
        found = [i for i in objects_of(project, INSTANCES, "ending") if _is_second(i)]
        return [condition(i, "Available") for i in found] == [("False", "Stopping")]

    try:
        eventually(is_stopping, "Available has the reason Stopping")
    finally:
        remaining = (dfw.find(server_path) or server)["metadata"].get("finalizers", [])
        kept = [finalizer for finalizer in remaining if finalizer != HOLD]
        dfw.patch(server_path, {"metadata": {"finalizers": kept or None}})
    eventually(lambda: len(objects_of(project, INSTANCES, "ending")) == 1, "it is gone")


def _is_second(obj: Object) -> bool:
    return str(obj["metadata"]["name"]).endswith("-1")


def test_a_missing_network_is_reported_by_the_workload(topology: Topology, project: Api) -> None:
    body = workload("offline", "DFW")
    interface = {"name": "eth0", "network": {"name": "blue"}}
    body["spec"]["template"]["spec"]["networkInterfaces"] = [interface]
    project.create(f"{NAMESPACE}/workloads", body)
    eventually(
        lambda: (
            condition(project.find(f"{NAMESPACE}/workloads/offline"), "Available")
            == ("False", "NetworkNotFound")
        ),
        "the workload reports the network",
    )
    found = project.find(f"{NAMESPACE}/workloads/offline") or {}
    assert "Network default/blue does not exist" in message(found, "Available")


def test_a_scale_keeps_the_instances_that_are_up_to_date(topology: Topology, project: Api) -> None:
    path = f"{NAMESPACE}/workloads/grown"
    body = workload("grown", "DFW", replicas=2)
    project.create(f"{NAMESPACE}/workloads", body)

    def counts() -> tuple[int, int]:
        status = (project.find(path) or {}).get("status", {})
        return status.get("updatedReplicas", 0), status.get("desiredReplicas", 0)

    eventually(lambda: counts() == (2, 2), "two instances are up to date")
    body["spec"]["placements"][0]["scaleSettings"]["minReplicas"] = 3
    project.patch(path, {"spec": {"placements": body["spec"]["placements"]}})
    seen: list[tuple[int, int]] = []

    def is_scaled() -> bool:
        seen.append(counts())
        return seen[-1] == (3, 3)

    eventually(is_scaled, "three instances are up to date")
    assert min(updated for updated, _ in seen) == 2
    assert "3/3" in topology.run("workloads").stdout


def test_a_recreated_instance_has_its_own_age_in_the_project(
    topology: Topology, project: Api
) -> None:
    path = f"{NAMESPACE}/workloads/renewed"
    project.create(f"{NAMESPACE}/workloads", workload("renewed", "DFW"))
    eventually(lambda: condition(project.find(path), "Available")[0] == "True", "it is ready")
    before, dfw = one(project, INSTANCES, "renewed"), cell(topology, "dfw")
    on_cell = one(dfw, INSTANCES, "renewed")
    topology.pause("center")
    try:
        namespace = NAMESPACE.replace("/default", f"/{on_cell['metadata']['namespace']}")
        dfw.delete(path_in(namespace, on_cell, "instances"))

        def uids_on_cell() -> set[str]:
            return {i["metadata"]["uid"] for i in objects_of(dfw, INSTANCES, "renewed")}

        first = on_cell["metadata"]["uid"]
        eventually(lambda: uids_on_cell() not in (set(), {first}), "it is replaced on the cell")
        (second,) = uids_on_cell()
    finally:
        topology.resume("center")

    def copy_of() -> str:
        found = objects_of(project, INSTANCES, "renewed")
        return "".join(i["metadata"]["annotations"].get(labels.COPY_OF, "") for i in found)

    eventually(lambda: copy_of() == f"dfw/{second}", "the project shows the new instance")
    after = one(project, INSTANCES, "renewed")["metadata"]
    assert after["uid"] != before["metadata"]["uid"]
    assert after["creationTimestamp"] >= before["metadata"]["creationTimestamp"]
