"""A new template goes from city to city, and a bad one stops or is rolled back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testkit.processes.local_platform import eventually
from tests.e2e.processes import DEPLOYMENTS, INSTANCES, NAMESPACE, Api, Object, objects_of, workload
from tests.e2e.topologies import Topology, cell

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CITIES = {"dfw": "DFW", "ord": "ORD"}
BAD = "fail.example/web:2"


def a_workload(name: str, image: str, **rollout: str) -> Object:
    body = workload(name, "DFW", "ORD", image=image)
    (placement,) = body["spec"]["placements"]
    placement["scaleSettings"]["progressDeadlineSeconds"] = 3
    body["spec"]["rollout"] = rollout
    return body


def rollout_of(project: Api, name: str) -> Object:
    found = project.find(f"{NAMESPACE}/workloads/{name}") or {}
    status = found.get("status", {})
    if status.get("observedGeneration") != found.get("metadata", {}).get("generation"):
        return {}
    rollout: Object = status.get("rollout", {})
    return rollout


def states(project: Api, name: str) -> dict[str, str]:
    return {city["city"]: city["state"] for city in rollout_of(project, name).get("cities", ())}


def progressing(project: Api, name: str) -> Object:
    found = project.find(f"{NAMESPACE}/workloads/{name}") or {}
    conditions = found.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == "Progressing"), {})


def image_of(obj: Object) -> str:
    spec = obj["spec"].get("template", obj)["spec"]
    image: str = spec["runtime"]["sandbox"]["containers"][0]["image"]
    return image


def images(topology: Topology, name: str) -> dict[str, str]:
    return {
        CITIES[city]: image_of(deployment)
        for city in CITIES
        for deployment in objects_of(cell(topology, city), DEPLOYMENTS, name)
    }


def uids(topology: Topology, city: str, name: str) -> set[str]:
    return {i["metadata"]["uid"] for i in objects_of(cell(topology, city), INSTANCES, name)}


def start(project: Api, name: str, **rollout: str) -> None:
    project.create(f"{NAMESPACE}/workloads", a_workload(name, "x.example/web:1", **rollout))
    eventually(lambda: states(project, name) == {"DFW": "Done", "ORD": "Done"}, "both are done")


def change(project: Api, name: str, image: str, **rollout: str) -> None:
    spec = a_workload(name, image, **rollout)["spec"]
    project.patch(f"{NAMESPACE}/workloads/{name}", {"spec": spec})


def test_template_reaches_the_second_city_when_the_first_is_done(
    topology: Topology, project: Api
) -> None:
    start(project, "orderly")
    change(project, "orderly", "x.example/web:2")
    seen: list[Any] = []

    def is_done() -> bool:
        found = states(project, "orderly")
        if found and found not in seen:
            seen.append(found)
        return found == {"DFW": "Done", "ORD": "Done"} and len(seen) > 1

    eventually(is_done, "both cities are done")
    assert {"DFW": "RollingOut", "ORD": "Waiting"} in seen
    assert {"DFW": "Waiting", "ORD": "RollingOut"} not in seen
    assert images(topology, "orderly") == dict.fromkeys(("DFW", "ORD"), "x.example/web:2")


def test_bad_image_stays_in_the_canary_city(topology: Topology, project: Api) -> None:
    policy = {"cityOrder": "CanaryCity", "canaryCity": "ORD"}
    start(project, "canary", **policy)
    before = uids(topology, "dfw", "canary")
    change(project, "canary", BAD, **policy)
    eventually(
        lambda: states(project, "canary") == {"DFW": "Waiting", "ORD": "Failed"}, "ORD has failed"
    )
    condition = progressing(project, "canary")
    assert (condition["status"], condition["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert "ORD" in condition["message"]
    assert "ImageUnavailable" in condition["message"]
    assert images(topology, "canary") == {"DFW": "x.example/web:1", "ORD": BAD}
    assert uids(topology, "dfw", "canary") == before
    change(project, "canary", "x.example/web:3", **policy)
    eventually(
        lambda: states(project, "canary") == {"DFW": "Done", "ORD": "Done"}, "a good image is done"
    )


def test_deploy_with_automatic_rollback_restores_the_previous_template(
    topology: Topology, project: Api
) -> None:
    start(project, "undone")
    before = uids(topology, "ord", "undone")
    command = ("deploy", "undone", f"--image={BAD}", "--auto-rollback", "-y", "--timeout=60s")
    deployed = topology.run(*command)
    assert deployed.returncode == 20, deployed.stderr
    assert "DFW: ImageUnavailable" in deployed.stderr
    assert "revision 1 was restored" in deployed.stderr
    rollout = rollout_of(project, "undone")
    assert (rollout["failedRevision"], rollout["runningRevision"]) == (2, 1)
    eventually(
        lambda: images(topology, "undone") == dict.fromkeys(("DFW", "ORD"), "x.example/web:1"),
        "both cities have the first image",
    )
    found = project.find(f"{NAMESPACE}/workloads/undone")
    assert found is not None
    assert image_of(found) == BAD, "the spec is not changed"
    assert progressing(project, "undone")["reason"] == "RolledBack"
    assert uids(topology, "ord", "undone") == before, "ORD never had another template"
    listed = topology.run("rollout", "history", "undone", "-o", "json")
    causes = [item["cause"] for item in json.loads(listed.stdout)["items"]]
    assert causes == ["AutomaticRollback", "Change", "Change"]
    eventually(
        lambda: "Failed in DFW; revision 1 was restored" in topology.run("status", "undone").stdout,
        "the status shows the rollback",
    )
    undone = topology.run("rollout", "undo", "undone", "--timeout=60s")
    assert undone.returncode == 0, undone.stderr
    eventually(
        lambda: progressing(project, "undone").get("reason") == "RolloutComplete",
        "the workload runs its own template again",
    )


def test_rollout_continues_when_no_command_waits_for_it(topology: Topology, project: Api) -> None:
    start(project, "unattended")
    assert (
        topology.run(
            "deploy", "unattended", "--image=x.example/web:2", "-y", "--no-wait"
        ).returncode
        == 0
    )
    eventually(
        lambda: (
            images(topology, "unattended") == dict.fromkeys(("DFW", "ORD"), "x.example/web:2")
            and states(project, "unattended") == {"DFW": "Done", "ORD": "Done"}
        ),
        "both cities are done",
    )
