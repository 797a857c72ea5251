"""``describe``, ``events`` and ``scale``, beside controllers that carry a workload."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import LocalPlatform
from tests.e2e.manifests import workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

SPACE = "described"


@pytest.fixture(scope="module")
def here(in_project: Kubectl) -> Iterator[Kubectl]:
    """A namespace of a project with a workload that runs."""
    in_project("create", "namespace", SPACE)
    inside = in_project.within(SPACE)
    inside("apply", "-f", "-", stdin=workload())
    inside("wait", "workload/web", "--for=condition=Available", "--timeout=60s")
    yield inside
    in_project("delete", "namespace", SPACE, "--timeout=60s")


def event(name: str, about: dict[str, Any], message: str, *, kind: str = "Normal") -> str:
    metadata = about["metadata"]
    involved = {"apiVersion": about["apiVersion"], "kind": about["kind"]}
    involved |= {key: metadata[key] for key in ("name", "namespace", "uid")}
    times = dict.fromkeys(("firstTimestamp", "lastTimestamp"), metadata["creationTimestamp"])
    obj = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}}
    told = {"reason": "Tested", "message": message, "type": kind, "count": 1}
    return json.dumps({**obj, "involvedObject": involved, **times, **told})


@pytest.mark.parametrize("kind", ["workload", "workloaddeployment", "instance"])
def test_a_description_has_status_and_events(here: Kubectl, kind: str) -> None:
    (obj,) = here.json("get", kind)["items"]
    here("create", "-f", "-", stdin=event(f"about-{kind}", obj, f"said of the {kind}"))
    told = here("describe", kind, obj["metadata"]["name"])
    assert f"Name:         {obj['metadata']['name']}" in told
    assert "Conditions:" in told
    assert "Tested" in told.partition("Events:")[2]
    assert f"said of the {kind}" in told.partition("Events:")[2]


def test_core_objects_are_described(here: Kubectl, in_project: Kubectl) -> None:
    assert "Active" in in_project("describe", "namespace", SPACE)
    assert "ca.crt" in here("describe", "configmap", "kube-root-ca.crt")
    assert "default" in here("describe", "serviceaccount", "default")
    here("create", "secret", "generic", "quiet", "--from-literal=password=hunter2")
    told = here("describe", "secret", "quiet")
    assert ("7 bytes" in told, "hunter2" in told) == (True, False)


def test_events_are_listed_by_object_and_type(here: Kubectl) -> None:
    obj = here.json("get", "workload", "web")
    here("create", "-f", "-", stdin=event("warned", obj, "look here", kind="Warning"))
    assert "look here" in here("events", "--for", "workload.compute.datumapis.com/web")
    assert "look here" in here("events", "--types=Warning")
    assert "look here" not in here("events", "--types=Normal")
    by_field = ("get", "events", "--field-selector", "involvedObject.name=web,type=Warning")
    assert here(*by_field, "-o", "name") == "event/warned\n"
    assert "look here" in here("get", "events.v1.events.k8s.io")


def test_a_deployment_is_scaled_by_those_who_may(here: Kubectl, shared: LocalPlatform) -> None:
    (deployment,) = here("get", "wd", "-o", "name").split()
    assert "cannot patch resource" in here.refused("scale", deployment, "--replicas=2")
    operator = Kubectl(shared.kubeconfig, "platform").within("default")
    obj = here.json("get", deployment)
    for name in ("resourceVersion", "uid", "namespace", "ownerReferences", "finalizers"):
        obj["metadata"].pop(name, None)
    operator("create", "-f", "-", stdin=json.dumps(obj))
    assert "scaled" in operator("scale", deployment, "--replicas=4", "--current-replicas=1")
    path = "jsonpath={.spec.scaleSettings.minReplicas}"
    assert operator("get", deployment, "-o", path) == "4"
    assert operator("get", deployment, "--subresource=scale", "-o=jsonpath={.spec.replicas}") == "4"
    assert (
        "expected replicas"
        in operator.refused(*("scale", deployment, "--replicas=5", "--current-replicas=1")).lower()
    )
    operator("delete", deployment)


def test_a_kind_without_a_scale_says_so(here: Kubectl) -> None:
    error = here.refused("scale", "workload", "web", "--replicas=3")
    assert '"web" has no "scale"' in error
