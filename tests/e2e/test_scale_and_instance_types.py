"""The scale subresource across planes, and the lifecycle of an instance type."""

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
    NAMESPACE,
    Api,
    Object,
    Processes,
    condition,
    objects_of,
    workload,
)
from tests.e2e.topologies import cell

pytestmark = pytest.mark.e2e

TYPES = "/apis/compute.datumapis.com/v1alpha/instancetypes"
CLAIMS = "/apis/quota.miloapis.com/v1alpha1/resourceclaims"


@pytest.fixture(scope="module")
def topology(embedded_topology: Processes) -> Processes:
    """The embedded topology, because the instance types are on our own platform plane."""
    return embedded_topology


def count_instances(name: str, *apis: Api) -> list[int]:
    return [len(objects_of(api, INSTANCES, name)) for api in apis]


def without_owner(source: Object, name: str) -> Object:
    """Return a copy of the deployment with another name and no Workload."""
    made = copy.deepcopy(source)
    made["metadata"] = {"name": name, "namespace": "default"}
    made["spec"]["workloadRef"] = {"name": "missing", "uid": "missing"}
    return made


@pytest.fixture
def root(needs_kubectl: None, topology: Processes) -> Kubectl:
    """kubectl with all permissions, because no shipped role may scale deployments."""
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
    return Kubectl(file, "project/default").in_namespace("default")


def scale_of(root: Kubectl, name: str) -> Object:
    found: Object = json.loads(root("get", "--raw", scale_path(name)))
    return found


def scale_path(name: str) -> str:
    prefix = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/default/control-plane"
    return f"{prefix}{NAMESPACE}/workloaddeployments/{name}/scale"


def test_the_scale_of_a_deployment_applies_unless_a_workload_owns_it(
    root: Kubectl, topology: Processes, project: Api, hub: Api
) -> None:
    project.create(f"{NAMESPACE}/workloads", workload("owner", "DFW"))
    eventually(lambda: bool(objects_of(project, DEPLOYMENTS, "owner")), "it has a deployment")
    (owned,) = objects_of(project, DEPLOYMENTS, "owner")
    name, everywhere = owned["metadata"]["name"], (cell(topology, "dfw"), hub, project)
    root("create", "-f", "-", stdin=json.dumps(without_owner(owned, "scaled-main-dfw")))
    try:
        root("scale", "wd/scaled-main-dfw", "--replicas=3")
        eventually(
            lambda: count_instances("scaled", *everywhere) == [3, 3, 3], "three on every plane"
        )
        eventually(
            lambda: scale_of(root, "scaled-main-dfw")["status"]["replicas"] == 3,
            "the scale reports three",
        )
        # As an autoscaler does: count the selected instances, and write the version that was read.
        scale = scale_of(root, "scaled-main-dfw")
        selected = project.items(f"{INSTANCES}?labelSelector={scale['status']['selector']}")
        assert len(selected) == scale["spec"]["replicas"] == 3
        scale["spec"]["replicas"] = 1
        put = ("replace", "--raw", scale_path("scaled-main-dfw"), "-f", "-")
        root(*put, stdin=json.dumps(scale))
        assert "has been modified" in root.error_of(*put, stdin=json.dumps(scale))
        eventually(
            lambda: count_instances("scaled", *everywhere) == [1, 1, 1], "one on every plane"
        )
    finally:
        root("delete", "wd/scaled-main-dfw", "--wait=false")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        project.patch(f"{NAMESPACE}/workloaddeployments/{name}/scale", {"spec": {"replicas": 2}})
    root("scale", f"wd/{name}", "--replicas=2")
    eventually(partial(has_min_replicas, project, name, 1), "the Workload resets its deployment")
    eventually(lambda: count_instances("owner", *everywhere) == [1, 1, 1], "one on every plane")


def has_min_replicas(api: Api, name: str, replicas: int) -> bool:
    found = api.find(f"{NAMESPACE}/workloaddeployments/{name}") or {}
    settings = found.get("spec", {}).get("scaleSettings", {})
    return bool(settings.get("minReplicas") == replicas)


def instance_type(name: str, cpu: str, memory: str) -> Object:
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "InstanceType",
        "metadata": {"name": name},
        "spec": {"resources": {"cpu": cpu, "memory": memory}},
    }


def workload_with_type(name: str, size: str, replicas: int = 1) -> Object:
    made = workload(name, "DFW", replicas=replicas)
    made["spec"]["template"]["spec"]["runtime"]["resources"] = {"instanceType": size}
    return made


def granted_amounts(project: Api, name: str) -> list[list[int]]:
    """Return the granted instances, milli-CPUs and MiB of each claim of a workload."""
    claims = project.items(CLAIMS)
    own = [c for c in claims if c["metadata"]["name"].startswith(f"instance-{name}-")]
    granted = [c for c in own if condition(c, "Granted")[0] == "True"]
    return [[r["amount"] for r in c["spec"]["requests"]] for c in granted]


def test_an_instance_type_is_offered_deprecated_disabled_and_replaced(
    needs_kubectl: None, topology: Processes, project: Api
) -> None:
    platform, kubectl = topology.api("platform"), Kubectl(topology.kubeconfig, "project/default")
    for made in (instance_type("tiny", "250m", "512Mi"), instance_type("small", "500m", "1Gi")):
        platform.create(TYPES, made)
    eventually(lambda: {"tiny", "small"} <= set(project.names(TYPES)), "the project has the types")
    project.create(f"{NAMESPACE}/workloads", workload_with_type("sizes", "tiny"))
    eventually(lambda: granted_amounts(project, "sizes") == [[1, 250, 512]], "its quota is granted")

    retire(platform, "Deprecated")
    eventually(
        lambda: (
            condition(project.find(f"{NAMESPACE}/workloads/sizes"), "InstanceTypeDeprecated")[0]
            == "True"
        ),
        "the workload reports the deprecation",
    )
    warned = kubectl.run("create", "-f", "-", stdin=json.dumps(workload_with_type("late", "tiny")))
    assert warned.returncode == 0, warned.stderr
    assert "use small instead" in warned.stderr

    retire(platform, "Disabled")
    eventually(
        lambda: (
            "use small instead"
            in kubectl.run(*_DRY, stdin=json.dumps(workload_with_type("never", "tiny"))).stderr
            and kubectl.run(*_DRY, stdin=json.dumps(workload_with_type("never", "tiny"))).returncode
            != 0
        ),
        "new workloads cannot use it",
    )
    project.patch(
        f"{NAMESPACE}/workloads/sizes", {"spec": workload_with_type("sizes", "tiny", 2)["spec"]}
    )
    eventually(
        lambda: granted_amounts(project, "sizes") == [[1, 250, 512]] * 2,
        "an existing workload may scale",
    )

    before = objects_of(project, INSTANCES, "sizes")[0]["metadata"]["uid"]
    project.patch(
        f"{NAMESPACE}/workloads/sizes", {"spec": workload_with_type("sizes", "small")["spec"]}
    )
    eventually(
        lambda: granted_amounts(project, "sizes") == [[1, 500, 1024]],
        "the claim has the new amounts",
    )
    eventually(lambda: _are_ready(project, before), "the new instance is ready")


_DRY = ("create", "--dry-run=server", "-f", "-")


def retire(platform: Api, phase: str) -> None:
    lifecycle = {"phase": phase, "replacementInstanceType": "small"}
    platform.patch(f"{TYPES}/tiny", {"spec": {"lifecycle": lifecycle}})


def _are_ready(project: Api, old_uid: str) -> bool:
    shown = objects_of(project, INSTANCES, "sizes")
    others = old_uid not in [i["metadata"]["uid"] for i in shown]
    return others and [condition(i, "Ready")[0] for i in shown] == ["True"]
