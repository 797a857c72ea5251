"""``kubectl describe``, ``events`` and ``scale`` on a running workload."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import LocalPlatform
from tests.e2e.manifests import workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

NAMESPACE = "described"


@pytest.fixture(scope="module")
def kubectl(in_project: Kubectl) -> Iterator[Kubectl]:
    """kubectl in a project namespace with a running workload."""
    in_project("create", "namespace", NAMESPACE)
    inside = in_project.in_namespace(NAMESPACE)
    inside("apply", "-f", "-", stdin=workload())
    inside("wait", "workload/web", "--for=condition=Available", "--timeout=60s")
    yield inside
    in_project("delete", "namespace", NAMESPACE, "--timeout=60s")


def event(name: str, about: dict[str, Any], message: str, *, kind: str = "Normal") -> str:
    metadata = about["metadata"]
    involved = {"apiVersion": about["apiVersion"], "kind": about["kind"]}
    involved |= {key: metadata[key] for key in ("name", "namespace", "uid")}
    times = dict.fromkeys(("firstTimestamp", "lastTimestamp"), metadata["creationTimestamp"])
    obj = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}}
    fields = {"reason": "Tested", "message": message, "type": kind, "count": 1}
    return json.dumps({**obj, "involvedObject": involved, **times, **fields})


@pytest.mark.parametrize("kind", ["workload", "workloaddeployment", "instance"])
def test_a_description_has_status_and_events(kubectl: Kubectl, kind: str) -> None:
    (obj,) = kubectl.json("get", kind)["items"]
    kubectl("create", "-f", "-", stdin=event(f"about-{kind}", obj, f"about the {kind}"))
    output = kubectl("describe", kind, obj["metadata"]["name"])
    assert f"Name:         {obj['metadata']['name']}" in output
    assert "Conditions:" in output
    assert "Tested" in output.partition("Events:")[2]
    assert f"about the {kind}" in output.partition("Events:")[2]


def test_core_objects_are_described(kubectl: Kubectl, in_project: Kubectl) -> None:
    assert "Active" in in_project("describe", "namespace", NAMESPACE)
    assert "ca.crt" in kubectl("describe", "configmap", "kube-root-ca.crt")
    assert "default" in kubectl("describe", "serviceaccount", "default")
    kubectl("create", "secret", "generic", "quiet", "--from-literal=password=hunter2")
    output = kubectl("describe", "secret", "quiet")
    assert ("7 bytes" in output, "hunter2" in output) == (True, False)


def test_events_are_listed_by_object_and_type(kubectl: Kubectl) -> None:
    obj = kubectl.json("get", "workload", "web")
    kubectl("create", "-f", "-", stdin=event("warned", obj, "look here", kind="Warning"))
    assert "look here" in kubectl("events", "--for", "workload.compute.datumapis.com/web")
    assert "look here" in kubectl("events", "--types=Warning")
    assert "look here" not in kubectl("events", "--types=Normal")
    by_field = ("get", "events", "--field-selector", "involvedObject.name=web,type=Warning")
    assert kubectl(*by_field, "-o", "name") == "event/warned\n"
    assert "look here" in kubectl("get", "events.v1.events.k8s.io")


def test_scaling_a_deployment_requires_permission(
    kubectl: Kubectl, shared_platform: LocalPlatform
) -> None:
    (deployment,) = kubectl("get", "wd", "-o", "name").split()
    assert "cannot patch resource" in kubectl.error_of("scale", deployment, "--replicas=2")
    operator = Kubectl(shared_platform.kubeconfig, "platform").in_namespace("default")
    obj = kubectl.json("get", deployment)
    for name in ("resourceVersion", "uid", "namespace", "ownerReferences", "finalizers"):
        obj["metadata"].pop(name, None)
    operator("create", "-f", "-", stdin=json.dumps(obj))
    assert "scaled" in operator("scale", deployment, "--replicas=4", "--current-replicas=1")
    path = "jsonpath={.spec.scaleSettings.minReplicas}"
    assert operator("get", deployment, "-o", path) == "4"
    assert operator("get", deployment, "--subresource=scale", "-o=jsonpath={.spec.replicas}") == "4"
    assert (
        "expected replicas"
        in operator.error_of(*("scale", deployment, "--replicas=5", "--current-replicas=1")).lower()
    )
    operator("delete", deployment)


def test_scaling_a_kind_without_a_scale_is_an_error(kubectl: Kubectl) -> None:
    error = kubectl.error_of("scale", "workload", "web", "--replicas=3")
    assert '"web" has no "scale"' in error
