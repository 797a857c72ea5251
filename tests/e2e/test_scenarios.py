"""What users go through, on real processes: data that is rotated, images that do not exist, one
city restarted, quota that is short, a city held back on purpose."""

from __future__ import annotations

import base64
import ipaddress
import json

import pytest

from testkit.processes.local_platform import eventually
from tests.e2e.processes import (
    COMPUTE,
    DEPLOYMENTS,
    INSTANCES,
    POLICIES,
    SPACE,
    WORKS,
    Api,
    Object,
    condition,
    named,
    workload,
)
from tests.e2e.topologies import CENTRE, Topology, cell

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CORE = "/api/v1/namespaces/default"
BOTH = ("dfw", "ord")
CANARY = "correct-horse"


def available(project: Api, name: str) -> tuple[str, str]:
    return condition(project.find(f"{SPACE}/workloads/{name}"), "Available")


def is_done(project: Api, name: str, instances: int) -> bool:
    found = project.find(f"{SPACE}/workloads/{name}") or {}
    status = found.get("status", {})
    counts = [status.get(f"{part}Replicas", 0) for part in ("ready", "updated", "desired")]
    observed = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
    return counts == [instances] * 3 and observed


def deployed(project: Api, name: str, *cities: str, image: str = "x.example/web:1") -> None:
    project.create(f"{SPACE}/workloads", workload(name, *cities, image=image))
    eventually(lambda: is_done(project, name, len(cities)), f"{name} is there")


# --- referenced data


def password(text: str) -> Object:
    data = {"password": base64.b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "data": data}


def copies(api: Api) -> list[str]:
    """The password as a plane has it, in copies of the Secret."""
    found = [s for s in api.items("/api/v1/secrets") if s["metadata"]["name"] == "db"]
    return [base64.b64decode(s["data"]["password"]).decode() for s in found]


def test_data_reaches_every_city_is_rotated_and_goes_with_its_last_user(
    topology: Topology, project: Api, hub: Api
) -> None:
    project.create(f"{CORE}/secrets", password(f"{CANARY}-1"))
    body = workload("data", "DFW", "ORD")
    (container,) = body["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    reference = {"secretKeyRef": {"name": "db", "key": "password"}}
    container["env"] = [{"name": "PASSWORD", "valueFrom": reference}]
    project.create(f"{SPACE}/workloads", body)
    eventually(lambda: is_done(project, "data", 2), "it runs in both cities")
    everywhere = [hub, *(cell(topology, name) for name in BOTH)]
    assert [copies(api) for api in everywhere] == [[f"{CANARY}-1"]] * 3

    project.patch(f"{CORE}/secrets/db", {"data": password(f"{CANARY}-2")["data"]})
    eventually(
        lambda: [copies(api) for api in everywhere] == [[f"{CANARY}-2"]] * 3,
        "the new password is in every city",
    )
    for api, path in [(api, path) for api in everywhere for path in (DEPLOYMENTS, INSTANCES)]:
        assert CANARY not in json.dumps(api.items(path)), "bytes stay in Secrets"

    project.delete(f"{SPACE}/workloads/data")
    eventually(lambda: not any(copies(api) for api in everywhere), "no copy is left")
    project.delete(f"{CORE}/secrets/db")


def test_a_pull_secret_arrives_as_it_is_and_one_reference_less_takes_only_its_own_copy(
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
    project.create(f"{SPACE}/workloads", both)
    eventually(lambda: is_done(project, "pulling", 2), "it runs in both cities")
    everywhere = [hub, *(cell(topology, name) for name in BOTH)]
    for api in everywhere:
        (copy,) = [s for s in api.items("/api/v1/secrets") if s["metadata"]["name"] == "pull"]
        assert {name: copy[name] for name in pull} == pull
        assert "mode" in api.names("/api/v1/configmaps")

    (container,) = one["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    container["env"] = []
    project.patch(f"{SPACE}/workloads/pulling", {"spec": one["spec"]})
    eventually(
        lambda: not any("mode" in api.names("/api/v1/configmaps") for api in everywhere),
        "what is not referred to any more goes",
    )
    assert all("pull" in api.names("/api/v1/secrets") for api in everywhere)
    project.delete(f"{SPACE}/workloads/pulling")
    eventually(
        lambda: not any("pull" in api.names("/api/v1/secrets") for api in everywhere),
        "and the other with the workload",
    )
    project.delete(f"{CORE}/secrets/pull")
    project.delete(f"{CORE}/configmaps/mode")


# --- rollouts


def test_a_bad_image_is_told_and_the_next_one_mends_it(topology: Topology, project: Api) -> None:
    deployed(project, "mended", "DFW", "ORD")
    bad = workload("mended", "DFW", "ORD", image="fail.example/web:2")["spec"]
    project.patch(f"{SPACE}/workloads/mended", {"spec": bad})

    def is_told() -> bool:
        found = [condition(i, "Ready")[1] for i in named(project, INSTANCES, "mended")]
        return found.count("ImageUnavailable") == 2

    eventually(is_told, "every city says what is wrong")
    good = workload("mended", "DFW", "ORD", image="x.example/web:3")["spec"]
    project.patch(f"{SPACE}/workloads/mended", {"spec": good})
    eventually(lambda: is_done(project, "mended", 2), "nothing of it stays in the way")


def test_a_restart_of_one_city_touches_no_other(topology: Topology, project: Api) -> None:
    deployed(project, "turned", "DFW", "ORD")
    before = {name: _uids(cell(topology, name), "turned") for name in BOTH}
    done = topology.run("restart", "turned", "--city", "DFW")
    assert done.returncode == 0, done.stderr
    eventually(
        lambda: _uids(cell(topology, "dfw"), "turned") not in (before["dfw"], set()),
        "another instance in DFW",
    )
    eventually(lambda: is_done(project, "turned", 2), "it serves again")
    assert _uids(cell(topology, "ord"), "turned") == before["ord"]


def _uids(api: Api, name: str) -> set[str]:
    return {i["metadata"]["uid"] for i in named(api, INSTANCES, name)}


# --- networks, quota, and a city that is held back


def test_the_network_of_the_project_reaches_the_cell_and_gives_addresses(
    topology: Topology, project: Api
) -> None:
    deployed(project, "linked", "DFW", "ORD")
    prefixes = []
    for name in BOTH:
        (deployment,) = named(cell(topology, name), DEPLOYMENTS, "linked")
        (prefix, *_) = deployment["spec"]["networkAttachment"]["prefixes"]
        network = ipaddress.ip_network(prefix["prefix"])
        (instance,) = named(cell(topology, name), INSTANCES, "linked")
        (interface,) = instance["status"]["networkInterfaces"]
        address = interface["assignments"]["networkIP"]
        assert ipaddress.ip_interface(address).ip in network
        prefixes.append(network)
    assert not prefixes[0].overlaps(prefixes[1])


def test_a_city_that_is_suspended_gets_nothing_until_it_is_resumed(
    topology: Topology, project: Api, hub: Api
) -> None:
    deployed(project, "held", "DFW")
    (policy,) = [p for p in hub.items(POLICIES) if p["metadata"]["name"] == "city-dfw"]
    path = f"/apis/policy.karmada.io/v1alpha1/namespaces/{policy['metadata']['namespace']}"
    path += "/propagationpolicies/city-dfw"
    hub.patch(path, {"spec": {"suspension": {"dispatching": True}}})
    eventually(
        lambda: [w["spec"].get("suspendDispatching") for w in named(hub, WORKS, "held")] == [True],
        "the Work is held",
    )
    newer = workload("held", "DFW", image="x.example/web:2")["spec"]
    project.patch(f"{SPACE}/workloads/held", {"spec": newer})
    eventually(lambda: _image(hub, "held") == "x.example/web:2", "the hub has the new image")
    assert _image(cell(topology, "dfw"), "held") == "x.example/web:1"
    assert not is_done(project, "held", 1), "nobody calls it done"
    hub.patch(path, {"spec": {"suspension": None}})
    eventually(lambda: is_done(project, "held", 1), "it is rolled out")
    assert _image(cell(topology, "dfw"), "held") == "x.example/web:2"


def _image(api: Api, name: str) -> str:
    (deployment,) = named(api, DEPLOYMENTS, name)
    template = deployment["spec"]["template"]["spec"]
    image: str = template["runtime"]["sandbox"]["containers"][0]["image"]
    return image


def test_a_quota_that_nobody_can_ask_for_takes_nothing_down_and_stops_no_repair(
    topology: Topology, project: Api
) -> None:
    """The centre is gone, and the cell is started anew: what was granted to a slot is enough."""
    deployed(project, "granted", "DFW")
    here = cell(topology, "dfw")
    (before,) = _uids(here, "granted")
    topology.kill(CENTRE)
    topology.kill("dfw")
    topology.start("dfw")
    (instance,) = named(here, INSTANCES, "granted")
    space, name = (instance["metadata"][part] for part in ("namespace", "name"))
    here.delete(f"{COMPUTE}/namespaces/{space}/instances/{name}")

    def is_back() -> bool:
        found = named(here, INSTANCES, "granted")
        uids = [i["metadata"]["uid"] for i in found]
        return before not in uids and [condition(i, "Ready")[0] for i in found] == ["True"]

    eventually(is_back, "another instance took its slot")
    topology.up()
    eventually(
        lambda: is_done(project, "granted", 1) and available(project, "granted")[0] == "True",
        "the project hears of it",
        topology.patience_s,
    )
