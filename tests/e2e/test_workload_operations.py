"""Operations on a workload in two cities: data, images, restarts and suspension."""

from __future__ import annotations

import base64
import ipaddress
import json

import pytest

from testkit.processes.local_platform import eventually
from tests.e2e.processes import (
    CENTER,
    COMPUTE,
    DEPLOYMENTS,
    INSTANCES,
    NAMESPACE,
    POLICIES,
    WORKS,
    Api,
    Object,
    condition,
    objects_of,
    workload,
)
from tests.e2e.topologies import Topology, cell

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CORE = "/api/v1/namespaces/default"
BOTH = ("dfw", "ord")
CANARY = "correct-horse"


def available(project: Api, name: str) -> tuple[str, str]:
    return condition(project.find(f"{NAMESPACE}/workloads/{name}"), "Available")


def is_rolled_out(project: Api, name: str, instances: int) -> bool:
    found = project.find(f"{NAMESPACE}/workloads/{name}") or {}
    status = found.get("status", {})
    counts = [status.get(f"{part}Replicas", 0) for part in ("ready", "updated", "desired")]
    observed = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
    return counts == [instances] * 3 and observed


def deploy(project: Api, name: str, *cities: str, image: str = "x.example/web:1") -> None:
    project.create(f"{NAMESPACE}/workloads", workload(name, *cities, image=image))
    eventually(lambda: is_rolled_out(project, name, len(cities)), f"{name} is rolled out")


# --- referenced data


def password(text: str) -> Object:
    data = {"password": base64.b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "data": data}


def copies(api: Api) -> list[str]:
    """Return the password in each copy of the Secret on a plane."""
    found = [s for s in api.items("/api/v1/secrets") if s["metadata"]["name"] == "db"]
    return [base64.b64decode(s["data"]["password"]).decode() for s in found]


def test_a_rotated_secret_reaches_every_city_and_is_deleted_with_its_workload(
    topology: Topology, project: Api, hub: Api
) -> None:
    project.create(f"{CORE}/secrets", password(f"{CANARY}-1"))
    body = workload("data", "DFW", "ORD")
    (container,) = body["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    reference = {"secretKeyRef": {"name": "db", "key": "password"}}
    container["env"] = [{"name": "PASSWORD", "valueFrom": reference}]
    project.create(f"{NAMESPACE}/workloads", body)
    eventually(lambda: is_rolled_out(project, "data", 2), "it runs in both cities")
    everywhere = [hub, *(cell(topology, name) for name in BOTH)]
    assert [copies(api) for api in everywhere] == [[f"{CANARY}-1"]] * 3

    project.patch(f"{CORE}/secrets/db", {"data": password(f"{CANARY}-2")["data"]})
    eventually(
        lambda: [copies(api) for api in everywhere] == [[f"{CANARY}-2"]] * 3,
        "the new password is in every city",
    )
    for api, path in [(api, path) for api in everywhere for path in (DEPLOYMENTS, INSTANCES)]:
        assert CANARY not in json.dumps(api.items(path)), "the value is only in Secrets"

    project.delete(f"{NAMESPACE}/workloads/data")
    eventually(lambda: not any(copies(api) for api in everywhere), "no copy is left")
    project.delete(f"{CORE}/secrets/db")


def test_removing_a_reference_deletes_only_its_copy_and_keeps_the_pull_secret(
    topology: Topology, project: Api, hub: Api
) -> None:
    login = base64.b64encode(b'{"auths": {"x.example": {"auth": "dTpw"}}}').decode()
    pull = {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": login}}
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"}}
    project.create(f"{CORE}/secrets", {**head, **pull})
    mode = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mode"}}
    project.create(f"{CORE}/configmaps", {**mode, "data": {"mode": "quiet"}})
    both, one = workload("pulling", "DFW", "ORD"), workload("pulling", "DFW", "ORD")
    for body in (both, one):
        body["spec"]["template"]["spec"]["runtime"]["sandbox"]["imagePullSecrets"] = [
            {"name": "pull"}
        ]
    (container,) = both["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    reference = {"configMapKeyRef": {"name": "mode", "key": "mode"}}
    container["env"] = [{"name": "MODE", "valueFrom": reference}]
    project.create(f"{NAMESPACE}/workloads", both)
    eventually(lambda: is_rolled_out(project, "pulling", 2), "it runs in both cities")
    everywhere = [hub, *(cell(topology, name) for name in BOTH)]
    for api in everywhere:
        (copy,) = [s for s in api.items("/api/v1/secrets") if s["metadata"]["name"] == "pull"]
        assert {name: copy[name] for name in pull} == pull
        assert "mode" in api.names("/api/v1/configmaps")

    (container,) = one["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    container["env"] = []
    project.patch(f"{NAMESPACE}/workloads/pulling", {"spec": one["spec"]})
    eventually(
        lambda: not any("mode" in api.names("/api/v1/configmaps") for api in everywhere),
        "the unreferenced copy is deleted",
    )
    assert all("pull" in api.names("/api/v1/secrets") for api in everywhere)
    project.delete(f"{NAMESPACE}/workloads/pulling")
    eventually(
        lambda: not any("pull" in api.names("/api/v1/secrets") for api in everywhere),
        "the pull secret is deleted with the workload",
    )
    project.delete(f"{CORE}/secrets/pull")
    project.delete(f"{CORE}/configmaps/mode")


# --- rollouts


def test_a_bad_image_is_reported_and_a_good_one_fixes_the_workload(
    topology: Topology, project: Api
) -> None:
    deploy(project, "mended", "DFW", "ORD")
    bad = workload("mended", "DFW", "ORD", image="fail.example/web:2")["spec"]
    bad["rollout"] = {"cityOrder": "Parallel"}
    project.patch(f"{NAMESPACE}/workloads/mended", {"spec": bad})

    def is_reported() -> bool:
        found = [condition(i, "Ready")[1] for i in objects_of(project, INSTANCES, "mended")]
        return found.count("ImageUnavailable") == 2

    eventually(is_reported, "every city reports the image")
    good = workload("mended", "DFW", "ORD", image="x.example/web:3")["spec"]
    project.patch(f"{NAMESPACE}/workloads/mended", {"spec": good})
    eventually(lambda: is_rolled_out(project, "mended", 2), "the good image is rolled out")


def test_a_restart_of_one_city_changes_no_other(topology: Topology, project: Api) -> None:
    deploy(project, "turned", "DFW", "ORD")
    before = {name: _uids(cell(topology, name), "turned") for name in BOTH}
    done = topology.run("restart", "turned", "--city", "DFW")
    assert done.returncode == 0, done.stderr
    eventually(
        lambda: _uids(cell(topology, "dfw"), "turned") not in (before["dfw"], set()),
        "another instance in DFW",
    )
    eventually(lambda: is_rolled_out(project, "turned", 2), "it is rolled out")
    assert _uids(cell(topology, "ord"), "turned") == before["ord"]


def _uids(api: Api, name: str) -> set[str]:
    return {i["metadata"]["uid"] for i in objects_of(api, INSTANCES, name)}


# --- networks, quota, and a suspended city


def _history(topology: Topology, name: str) -> list[Object]:
    done = topology.run("rollout", "history", name, "-o", "json")
    assert done.returncode == 0, done.stderr
    revisions: list[Object] = json.loads(done.stdout)["items"]
    return revisions


def test_an_undo_after_restarts_restores_the_template_before_the_last_change(
    topology: Topology, project: Api
) -> None:
    name, digest = "undone", "sha256:" + "a" * 64
    first, second = f"x.example/web:1@{digest}", "x.example/web:2"
    deploy(project, name, "DFW", "ORD", image=first)

    def run(*arguments: str) -> None:
        done = topology.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"

    run("deploy", name, f"--image={second}", "-y")
    run("restart", name, "--city=ORD")
    run("restart", name)
    before = {city: _uids(cell(topology, city), name) for city in BOTH}
    run("rollout", "undo", name)
    assert [_image(cell(topology, city), name) for city in BOTH] == [first, first]
    assert all(before[city].isdisjoint(_uids(cell(topology, city), name)) for city in BOTH)
    run("deploy", name, f"--image={second}", "-y")

    newest, undone, restarted, restarted_city, changed, created = _history(topology, name)
    assert created["changes"] == ["created"]
    assert created["images"][0]["digest"] == digest
    assert changed["changes"][0].startswith("image app: 1@sha256:aaaaaaaaaaaa -> 2")
    assert restarted_city["changes"] == ["restarted ORD"]
    assert restarted["changes"] == ["restarted"]
    assert (undone["restores"], undone["template"]) == (created["revision"], created["template"])
    assert (newest["restores"], newest["changes"]) == (
        None,
        ["image app: 1@sha256:aaaaaaaaaaaa -> 2"],
    )


def test_instances_get_addresses_from_the_network_of_the_project(
    topology: Topology, project: Api
) -> None:
    deploy(project, "linked", "DFW", "ORD")
    prefixes = []
    for name in BOTH:
        (deployment,) = objects_of(cell(topology, name), DEPLOYMENTS, "linked")
        (prefix, *_) = deployment["spec"]["networkAttachment"]["prefixes"]
        network = ipaddress.ip_network(prefix["prefix"])
        (instance,) = objects_of(cell(topology, name), INSTANCES, "linked")
        (interface,) = instance["status"]["networkInterfaces"]
        address = interface["assignments"]["networkIP"]
        assert ipaddress.ip_interface(address).ip in network
        prefixes.append(network)
    assert not prefixes[0].overlaps(prefixes[1])


def test_a_suspended_city_is_updated_after_it_is_resumed(
    topology: Topology, project: Api, hub: Api
) -> None:
    deploy(project, "held", "DFW")
    (policy,) = [p for p in hub.items(POLICIES) if p["metadata"]["name"] == "city-dfw"]
    path = f"/apis/policy.karmada.io/v1alpha1/namespaces/{policy['metadata']['namespace']}"
    path += "/propagationpolicies/city-dfw"
    hub.patch(path, {"spec": {"suspension": {"dispatching": True}}})
    eventually(
        lambda: (
            [w["spec"].get("suspendDispatching") for w in objects_of(hub, WORKS, "held")] == [True]
        ),
        "the Work is suspended",
    )
    newer = workload("held", "DFW", image="x.example/web:2")["spec"]
    project.patch(f"{NAMESPACE}/workloads/held", {"spec": newer})
    eventually(lambda: _image(hub, "held") == "x.example/web:2", "the hub has the new image")
    assert _image(cell(topology, "dfw"), "held") == "x.example/web:1"
    assert not is_rolled_out(project, "held", 1), "the rollout is not complete"
    hub.patch(path, {"spec": {"suspension": None}})
    eventually(lambda: is_rolled_out(project, "held", 1), "it is rolled out")
    assert _image(cell(topology, "dfw"), "held") == "x.example/web:2"


def _image(api: Api, name: str) -> str:
    (deployment,) = objects_of(api, DEPLOYMENTS, name)
    template = deployment["spec"]["template"]["spec"]
    image: str = template["runtime"]["sandbox"]["containers"][0]["image"]
    return image


def test_a_cell_replaces_an_instance_while_quota_is_unreachable(
    topology: Topology, project: Api
) -> None:
    """The center is down and the cell restarted: the grant of the slot is still valid."""
    deploy(project, "granted", "DFW")
    dfw = cell(topology, "dfw")
    (before,) = _uids(dfw, "granted")
    topology.kill(CENTER)
    topology.kill("dfw")
    topology.start("dfw")
    (instance,) = objects_of(dfw, INSTANCES, "granted")
    space, name = (instance["metadata"][part] for part in ("namespace", "name"))
    dfw.delete(f"{COMPUTE}/namespaces/{space}/instances/{name}")

    def is_back() -> bool:
        found = objects_of(dfw, INSTANCES, "granted")
        uids = [i["metadata"]["uid"] for i in found]
        return before not in uids and [condition(i, "Ready")[0] for i in found] == ["True"]

    eventually(is_back, "a new instance has the slot")
    topology.up()
    eventually(
        lambda: is_rolled_out(project, "granted", 1) and available(project, "granted")[0] == "True",
        "the project shows the new instance",
        topology.timeout_s,
    )
