"""Numbers and sizes over the federation: the scale subresource as kubectl and autoscalers use it,
and a size of the catalogue from its first day to its last."""

from __future__ import annotations

import base64
import copy
import json
import urllib.error
from datetime import UTC, datetime
from functools import partial

import pytest
import yaml

from datum_compute.app.certificates import issue_client_certificate
from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import eventually
from tests.e2e.processes import (
    DEPLOYMENTS,
    INSTANCES,
    SPACE,
    Api,
    Object,
    Processes,
    condition,
    named,
    workload,
)
from tests.e2e.topologies import cell

pytestmark = pytest.mark.e2e

TYPES = "/apis/compute.datumapis.com/v1alpha/instancetypes"
CLAIMS = "/apis/quota.miloapis.com/v1alpha1/resourceclaims"


@pytest.fixture(scope="module")
def topology(embedded_topology: Processes) -> Processes:
    """The catalogue is that of our own platform plane."""
    return embedded_topology


def counts(name: str, *apis: Api) -> list[int]:
    return [len(named(api, INSTANCES, name)) for api in apis]


def alone(source: Object, name: str) -> Object:
    """The same deployment under another name, and nobody's."""
    made = copy.deepcopy(source)
    made["metadata"] = {"name": name, "namespace": "default"}
    made["spec"]["workloadRef"] = {"name": "nobody", "uid": "nobody"}
    return made


@pytest.fixture
def root(needs_kubectl: None, topology: Processes) -> Kubectl:
    """Somebody who may do everything in the project: no role that is shipped scales deployments."""
    issued = issue_client_certificate(
        topology.state, "root", datetime.now(UTC), groups=("system:masters",)
    )
    config = yaml.safe_load(topology.kubeconfig.read_text())
    parts = {"client-certificate-data": issued.certificate, "client-key-data": issued.key}
    user = {name: base64.b64encode(pem).decode() for name, pem in parts.items()}
    config["users"] = [{"name": "root", "user": user}]
    for context in config["contexts"]:
        context["context"]["user"] = "root"
    file = topology.state / "root.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return Kubectl(file, "project/default").within("default")


def scale_of(root: Kubectl, name: str) -> Object:
    found: Object = json.loads(root("get", "--raw", scale_path(name)))
    return found


def scale_path(name: str) -> str:
    prefix = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/default/control-plane"
    return f"{prefix}{SPACE}/workloaddeployments/{name}/scale"


def test_a_deployment_is_scaled_by_its_scale_and_its_owner_has_the_last_word(
    root: Kubectl, topology: Processes, project: Api, hub: Api
) -> None:
    project.create(f"{SPACE}/workloads", workload("owner", "DFW"))
    eventually(lambda: bool(named(project, DEPLOYMENTS, "owner")), "it has a deployment")
    (owned,) = named(project, DEPLOYMENTS, "owner")
    name, everywhere = owned["metadata"]["name"], (cell(topology, "dfw"), hub, project)
    root("create", "-f", "-", stdin=json.dumps(alone(owned, "scaled-main-dfw")))
    try:
        root("scale", "wd/scaled-main-dfw", "--replicas=3")
        eventually(lambda: counts("scaled", *everywhere) == [3, 3, 3], "three on every plane")
        eventually(
            lambda: scale_of(root, "scaled-main-dfw")["status"]["replicas"] == 3,
            "the scale says so",
        )
        # As an autoscaler does: whom does it count, how many are wanted, and not over others.
        scale = scale_of(root, "scaled-main-dfw")
        selected = project.items(f"{INSTANCES}?labelSelector={scale['status']['selector']}")
        assert len(selected) == scale["spec"]["replicas"] == 3
        scale["spec"]["replicas"] = 1
        put = ("replace", "--raw", scale_path("scaled-main-dfw"), "-f", "-")
        root(*put, stdin=json.dumps(scale))
        assert "has been modified" in root.refused(*put, stdin=json.dumps(scale))
        eventually(lambda: counts("scaled", *everywhere) == [1, 1, 1], "one on every plane")
    finally:
        root("delete", "wd/scaled-main-dfw", "--wait=false")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        project.patch(f"{SPACE}/workloaddeployments/{name}/scale", {"spec": {"replicas": 2}})
    root("scale", f"wd/{name}", "--replicas=2")
    eventually(partial(wants, project, name, 1), "its Workload has not asked for two")
    eventually(lambda: counts("owner", *everywhere) == [1, 1, 1], "and nowhere are two left")


def wants(api: Api, name: str, replicas: int) -> bool:
    found = api.find(f"{SPACE}/workloaddeployments/{name}") or {}
    settings = found.get("spec", {}).get("scaleSettings", {})
    return bool(settings.get("minReplicas") == replicas)


def a_type(name: str, cpu: str, memory: str) -> Object:
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "InstanceType",
        "metadata": {"name": name},
        "spec": {"resources": {"cpu": cpu, "memory": memory}},
    }


def sized(name: str, size: str, replicas: int = 1) -> Object:
    made = workload(name, "DFW", replicas=replicas)
    made["spec"]["template"]["spec"]["runtime"]["resources"] = {"instanceType": size}
    return made


def granted(project: Api, name: str) -> list[list[int]]:
    """What the instances of a workload have been granted: number, milli-CPUs, MiB."""
    claims = project.items(CLAIMS)
    own = [c for c in claims if c["metadata"]["name"].startswith(f"instance-{name}-")]
    given = [c for c in own if condition(c, "Granted")[0] == "True"]
    return [[r["amount"] for r in c["spec"]["requests"]] for c in given]


def test_a_size_is_offered_warned_about_refused_and_exchanged(
    needs_kubectl: None, topology: Processes, project: Api
) -> None:
    platform, kubectl = topology.api("platform"), Kubectl(topology.kubeconfig, "project/default")
    for made in (a_type("tiny", "250m", "512Mi"), a_type("small", "500m", "1Gi")):
        platform.create(TYPES, made)
    eventually(lambda: {"tiny", "small"} <= set(project.names(TYPES)), "the project has them")
    project.create(f"{SPACE}/workloads", sized("sizes", "tiny"))
    eventually(lambda: granted(project, "sizes") == [[1, 250, 512]], "it has what it asked for")

    retire(platform, "Deprecated")
    eventually(
        lambda: (
            condition(project.find(f"{SPACE}/workloads/sizes"), "InstanceTypeDeprecated")[0]
            == "True"
        ),
        "it says that its size goes",
    )
    warned = kubectl.run("create", "-f", "-", stdin=json.dumps(sized("late", "tiny")))
    assert warned.returncode == 0, warned.stderr
    assert "use small instead" in warned.stderr

    retire(platform, "Disabled")
    eventually(
        lambda: (
            "use small instead"
            in kubectl.run(*_DRY, stdin=json.dumps(sized("never", "tiny"))).stderr
            and kubectl.run(*_DRY, stdin=json.dumps(sized("never", "tiny"))).returncode != 0
        ),
        "nobody new gets it",
    )
    project.patch(f"{SPACE}/workloads/sizes", {"spec": sized("sizes", "tiny", 2)["spec"]})
    eventually(lambda: granted(project, "sizes") == [[1, 250, 512]] * 2, "who has it may grow")

    before = named(project, INSTANCES, "sizes")[0]["metadata"]["uid"]
    project.patch(f"{SPACE}/workloads/sizes", {"spec": sized("sizes", "small")["spec"]})
    eventually(lambda: granted(project, "sizes") == [[1, 500, 1024]], "another size, another claim")
    eventually(lambda: _are_ready(project, before), "and another instance, which serves")


_DRY = ("create", "--dry-run=server", "-f", "-")


def retire(platform: Api, phase: str) -> None:
    lifecycle = {"phase": phase, "replacementInstanceType": "small"}
    platform.patch(f"{TYPES}/tiny", {"spec": {"lifecycle": lifecycle}})


def _are_ready(project: Api, not_this: str) -> bool:
    shown = named(project, INSTANCES, "sizes")
    others = not_this not in [i["metadata"]["uid"] for i in shown]
    return others and [condition(i, "Ready")[0] for i in shown] == ["True"]
