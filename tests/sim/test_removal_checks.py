"""I37: an object is removed from the hub or a cell only when its source is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from datum_compute.api import labels
from datum_compute.api.compute.server import FINGERPRINT_VERSION
from datum_compute.api.kinds import (
    BINDING,
    CLUSTER,
    DEPLOYMENT,
    INSTANCE,
    NAMESPACE,
    PROJECT,
    SECRET,
    SERVER,
    WORK,
)
from datum_compute.api.meta.codec import JsonObject, to_json
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import HUB, PLATFORM
from testkit.builders import a_template
from tests.sim.test_invariants import ALPHA, CELL, HOME, LEAVING_SINCE, Scene

WORKS = "karmada-es-dfw"
WORK_OF_WEB = {labels.WORK_NAMESPACE: WORKS, labels.WORK_NAME: "web-work"}


@pytest.fixture
def scene() -> Scene:
    """A deployment of a project with its copies, and a Secret that it refers to."""
    made = Scene()
    made.now_s = 100.0
    make_all(made)
    made.state.created_s.clear()  # they have existed for long
    return made


def make_all(scene: Scene) -> None:
    scene.put(PLATFORM, PROJECT, "alpha", namespace="")
    scene.put(ALPHA, NAMESPACE, "default", namespace="", metadata={"uid": "1"})
    scene.put(HUB, CLUSTER, "dfw", namespace="", metadata=labeled({labels.TOPOLOGY_CITY: "DFW"}))
    scene.put(HUB, NAMESPACE, HOME, namespace="")
    put_source(scene, "settings")
    copy = {labels.SOURCE_GENERATION: "1"}
    scene.put(HUB, DEPLOYMENT, "web", spec=deployment_spec(""), metadata={"annotations": copy})
    scene.put(HUB, SECRET, "settings", metadata=labeled({labels.REFERENCED_DATA: "true"}))
    put_binding(scene, "dfw")
    manifest = {"kind": DEPLOYMENT.kind, "spec": {"cityCode": "DFW"}}
    scene.put(
        HUB,
        WORK,
        "web-work",
        namespace=WORKS,
        metadata=labeled({labels.BINDING_ID: "uid-web-workloaddeployment"}),
        spec={"workload": {"manifests": [manifest]}},
    )
    scene.put(CELL, DEPLOYMENT, "web", metadata={"annotations": WORK_OF_WEB})
    scene.put(CELL, INSTANCE, "web-0")
    own = labeled({labels.INSTANCE_UID: "uid-web-0"})
    scene.put(CELL, SERVER, "web-0", metadata=own, spec=server_spec())
    owner = {"uid": "uid-web"}
    copied = {"annotations": {labels.COPY_OF: "dfw/uid-web-0"}, "ownerReferences": [owner]}
    scene.put(
        HUB,
        INSTANCE,
        "web-0",
        metadata={**copied, **labeled({labels.DEPLOYMENT_NAME: "web"})},
    )


def labeled(own: dict[str, str]) -> JsonObject:
    return {"labels": own}


def deployment_spec(secret: str) -> JsonObject:
    template = to_json(a_template("web:1"))
    if secret:
        source = {"secretKeyRef": {"name": secret, "key": "k"}}
        (container,) = template["spec"]["runtime"]["sandbox"]["containers"]
        container["env"] = [{"name": "K", "valueFrom": source}]
    reference = {"name": "web", "uid": "w"}
    return {
        "template": template,
        "workloadRef": reference,
        "placementName": "default",
        "cityCode": "DFW",
        "scaleSettings": {"minReplicas": 1},
    }


def put_source(scene: Scene, secret: str, **more: str) -> None:
    metadata = {"finalizers": [labels.REFERENCED_DATA_FINALIZER], **more}
    spec = deployment_spec(secret)
    scene.put(ALPHA, DEPLOYMENT, "web", namespace="default", spec=spec, metadata=metadata)


def put_binding(scene: Scene, *cells: str, **more: str) -> None:
    resource = {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind, "name": "web"}
    resource |= {"namespace": HOME, "uid": "uid-web"}
    spec = {"resource": resource, "clusters": [{"name": cell} for cell in cells]}
    scene.put(HUB, BINDING, "web-workloaddeployment", spec=spec, metadata=more)


def terminate_source(scene: Scene) -> None:
    put_source(scene, "settings", deletionTimestamp=LEAVING_SINCE)


def terminate_namespace(scene: Scene) -> None:
    leaving = {"uid": "1", "deletionTimestamp": LEAVING_SINCE}
    scene.put(ALPHA, NAMESPACE, "default", namespace="", metadata=leaving)


def delete_project(scene: Scene) -> None:
    scene.drop(PLATFORM, PROJECT, "alpha", "")


def reuse_name(scene: Scene) -> None:
    """Another workload has a deployment of this name."""
    spec = deployment_spec("settings")
    spec["workloadRef"]["uid"] = "later"
    scene.put(ALPHA, DEPLOYMENT, "web", namespace="default", spec=spec)


def start_from_other_spec(scene: Scene) -> None:
    own = labeled({labels.INSTANCE_UID: "uid-web-0"})
    status = {"specFingerprint": f"{FINGERPRINT_VERSION}-other"}
    scene.put(CELL, SERVER, "web-0", metadata=own, status=status, spec=server_spec())


def server_spec() -> JsonObject:
    containers = [{"name": "app", "image": "web:1"}]
    return {"instanceType": "d1-standard-2", "templateHash": "t", "containers": containers}


def refer_to_another_secret(scene: Scene) -> None:
    put_source(scene, "other")
    scene.now_s += 10


def terminate_binding(scene: Scene) -> None:
    with_excuse(scene, lambda: put_binding(scene, "dfw", deletionTimestamp=LEAVING_SINCE))


def move_city(scene: Scene) -> None:
    """Another cell serves the city, and the binding no longer lists this one."""
    for cell, city in (("dfw", "AWAY"), ("dfw-2", "DFW")):
        metadata = labeled({labels.TOPOLOGY_CITY: city})
        scene.put(HUB, CLUSTER, cell, namespace="", metadata=metadata)
    scene.now_s += 1000
    put_binding(scene)


def remove_cell(scene: Scene) -> None:
    scene.drop(HUB, CLUSTER, "dfw", "")


def terminate_work(scene: Scene) -> None:
    spec = {"workload": {"manifests": [{"kind": DEPLOYMENT.kind, "spec": {"cityCode": "DFW"}}]}}
    leaving = {"deletionTimestamp": LEAVING_SINCE}
    with_excuse(
        scene,
        lambda: scene.put(HUB, WORK, "web-work", namespace=WORKS, metadata=leaving, spec=spec),
    )


def with_excuse(scene: Scene, remove: Callable[[], None]) -> None:
    """Remove something that is a source and not the subject of the test."""
    scene.state.tampered[HUB, "by an operator"] = None
    remove()
    scene.state.tampered.clear()


def terminate_instance(scene: Scene) -> None:
    scene.put(CELL, INSTANCE, "web-0", metadata={"deletionTimestamp": LEAVING_SINCE})


def delete_hub_deployment(scene: Scene) -> None:
    terminate_source(scene)
    scene.drop(HUB, DEPLOYMENT, "web")


Removal = tuple[str, KindInfo[Any], str, str]
HUB_NAMESPACE: Removal = (HUB, NAMESPACE, HOME, "")
HUB_DEPLOYMENT: Removal = (HUB, DEPLOYMENT, "web", HOME)
HUB_SECRET: Removal = (HUB, SECRET, "settings", HOME)
HUB_INSTANCE: Removal = (HUB, INSTANCE, "web-0", HOME)
HUB_BINDING: Removal = (HUB, BINDING, "web-workloaddeployment", HOME)
HUB_WORK: Removal = (HUB, WORK, "web-work", WORKS)
CELL_COPY: Removal = (CELL, DEPLOYMENT, "web", HOME)
CELL_SERVER: Removal = (CELL, SERVER, "web-0", HOME)
ALL = (
    *(HUB_NAMESPACE, HUB_DEPLOYMENT, HUB_SECRET, HUB_INSTANCE, HUB_BINDING, HUB_WORK),
    *(CELL_COPY, CELL_SERVER),
)


def _title(removal: Removal) -> str:
    return f"{removal[0]} {removal[1].kind}"


def _remove(scene: Scene, removal: Removal) -> str:
    """Remove the object and return what I37 reports, if anything; other rules may report more."""
    scene.drop(*removal)
    return next((line for line in scene.observer.trace if "BROKEN I37" in line), "")


@pytest.mark.parametrize("removal", ALL, ids=_title)
def test_i37_an_object_is_removed_although_its_source_exists(
    scene: Scene, removal: Removal
) -> None:
    assert not scene.violation
    assert "has its source" in _remove(scene, removal)


@pytest.mark.parametrize(
    ("end_source", "removal"),
    [
        (terminate_namespace, HUB_NAMESPACE),
        (delete_project, HUB_NAMESPACE),
        (terminate_source, HUB_DEPLOYMENT),
        (terminate_namespace, HUB_DEPLOYMENT),
        (reuse_name, HUB_DEPLOYMENT),
        (delete_project, HUB_DEPLOYMENT),
        (terminate_source, HUB_SECRET),
        (refer_to_another_secret, HUB_SECRET),
        (terminate_instance, HUB_INSTANCE),
        (delete_hub_deployment, HUB_INSTANCE),
        (delete_hub_deployment, HUB_BINDING),
        (terminate_binding, HUB_WORK),
        (move_city, HUB_WORK),
        (remove_cell, HUB_WORK),
        (terminate_work, CELL_COPY),
        (terminate_instance, CELL_SERVER),
        (start_from_other_spec, CELL_SERVER),
    ],
    ids=lambda value: value.__name__ if callable(value) else _title(value),
)
def test_i37_an_object_may_be_removed_when_its_source_is_gone(
    scene: Scene, end_source: Callable[[Scene], None], removal: Removal
) -> None:
    end_source(scene)
    assert _remove(scene, removal) == ""


def test_i37_a_deployment_may_not_be_unbound_from_the_only_cell_of_its_city(scene: Scene) -> None:
    put_binding(scene)
    assert "has its source" in _remove(scene, HUB_WORK)


def test_i37_a_source_that_was_just_created_excuses_a_delete_in_transit(scene: Scene) -> None:
    scene.drop(CELL, INSTANCE, "web-0")
    scene.put(CELL, INSTANCE, "web-0")
    assert _remove(scene, CELL_SERVER) == ""
