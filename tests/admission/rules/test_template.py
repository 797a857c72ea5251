"""Rules for the template of a workload, as one table."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import admit, unsupported_fields
from datum_compute.api.kinds import INSTANCE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import on_networks, with_template

CONTAINER = "spec.template.spec.runtime.sandbox.containers[0]"
VOLUME = "spec.template.spec.volumes[0]"
RESOURCES = "spec.template.spec.runtime.resources"
KEY = {"name": "a", "key": "k"}


def running(*, volumes: Any = (), resources: Any = None, **container: Any) -> JsonObject:
    made = with_template(volumes=list(volumes))
    runtime = made["spec"]["template"]["spec"]["runtime"]
    runtime["sandbox"]["containers"] = [{"name": "app", "image": "web:1", **container}]
    runtime["resources"] = resources or {}
    return made


def env(**more: Any) -> JsonObject:
    return running(env=[{"name": "A", **more}])


def volume(attached: str = "v", path: str = "/data", **source: Any) -> JsonObject:
    attachments = [{"name": attached, "mountPath": path}] if attached else []
    return running(volumes=[{"name": "v", **source}], volumeAttachments=attachments)


def with_amounts(requests: JsonObject, limits: JsonObject) -> JsonObject:
    made = running()
    runtime = made["spec"]["template"]["spec"]["runtime"]
    amounts = {"requests": requests, "limits": limits}
    runtime["sandbox"]["containers"][0]["resources"] = amounts
    return made


def files(*paths: str) -> JsonObject:
    items = [{"key": "k", "path": path} for path in paths]
    return {"configMap": {"name": "a", "items": items}}


FINE = [
    env(value="x"),
    env(valueFrom={"secretKeyRef": KEY}),
    env(value="", valueFrom={"configMapKeyRef": KEY}),
    running(envFrom=[{"secretRef": {"name": "a"}}]),
    running(envFrom=[{"prefix": "my.app-1_", "secretRef": {"name": "a"}}]),
    env(name="my.app-1_"),
    env(name="%1$s"),
    volume(secret={"secretName": "a"}),
    volume(**files("a/b", "c..d")),
    *(volume(path=p, secret={"secretName": "a"}) for p in ("/procs", "/etc/proc", "/devices/")),
    on_networks({"name": "net", "namespace": "other"}),
    running(resources={"requests": {"cpu": "1", "memory": "1Gi"}}),
    with_amounts({"cpu": "500m", "memory": "1Gi"}, {"cpu": 1, "memory": "1024Mi"}),
    with_amounts({"cpu": "4"}, {"memory": "1Gi"}),
    running(readinessProbe={"httpGet": {"port": 80}}, livenessProbe={"exec": {"command": ["x"]}}),
    running(ports=[{"name": "web", "port": 80}], readinessProbe={"tcpSocket": {"port": "web"}}),
    running(securityContext={"runAsUser": 1, "runAsGroup": 1}),
]

UNUSABLE = ("=", "A=B", "A B", "é", "A\n", "\x00", "\x7f")

WRONG = [
    (env(value="x", valueFrom={"secretKeyRef": KEY}), f"{CONTAINER}.env[0].valueFrom", "Invalid"),
    (env(valueFrom={}), f"{CONTAINER}.env[0].valueFrom", "Required"),
    (
        env(valueFrom={"secretKeyRef": KEY, "configMapKeyRef": KEY}),
        f"{CONTAINER}.env[0].valueFrom.secretKeyRef",
        "Forbidden",
    ),
    *((env(name=name), f"{CONTAINER}.env[0].name", "Invalid") for name in UNUSABLE),
    *(
        (
            running(envFrom=[{"prefix": prefix, "configMapRef": {"name": "a"}}]),
            f"{CONTAINER}.envFrom[0].prefix",
            "Invalid",
        )
        for prefix in (*UNUSABLE, "1_")
    ),
    (running(envFrom=[{"prefix": "A_"}]), f"{CONTAINER}.envFrom[0]", "Required"),
    (volume(), VOLUME, "Required"),
    (
        volume(secret={"secretName": "a"}, configMap={"name": "a"}),
        f"{VOLUME}.secret",
        "Forbidden",
    ),
    (volume("", secret={"secretName": "a"}), VOLUME, "Invalid"),
    (
        running(volumeAttachments=[{"name": "none", "mountPath": "/a"}]),
        f"{CONTAINER}.volumeAttachments[0].name",
        "NotFound",
    ),
    (
        volume(path="/a/../etc", secret={"secretName": "a"}),
        f"{CONTAINER}.volumeAttachments[0].mountPath",
        "Invalid",
    ),
    *(
        (
            volume(path=path, secret={"secretName": "a"}),
            f"{CONTAINER}.volumeAttachments[0].mountPath",
            "Invalid",
        )
        for path in (
            *("/", "//", "/.", "/./", "/proc", "/proc/", "//proc", "/./proc", "/proc/self"),
            *("/sys", "/sys/fs/cgroup", "/dev", "/dev/shm", "/dev//null", "/etc/../proc", "/a\0b"),
        )
    ),
    (
        running(
            volumes=[{"name": "v", "secret": {"secretName": "a"}}],
            volumeAttachments=[
                {"name": "v", "mountPath": "/a/b"},
                {"name": "v", "mountPath": "/a//b/"},
            ],
        ),
        f"{CONTAINER}.volumeAttachments[1].mountPath",
        "Duplicate",
    ),
    (running(command=["a", "b\0"]), f"{CONTAINER}.command[1]", "Invalid"),
    (running(args=["\0"]), f"{CONTAINER}.args[0]", "Invalid"),
    (env(value="a\0b"), f"{CONTAINER}.env[0].value", "Invalid"),
    (volume(**files("a\0b")), f"{VOLUME}.configMap.items[0].path", "Invalid"),
    *(
        (
            running(**{probe: {"exec": {"command": ["a\0"]}}}),
            f"{CONTAINER}.{probe}.exec.command[0]",
            "Invalid",
        )
        for probe in ("readinessProbe", "livenessProbe")
    ),
    (volume(**files("../up")), f"{VOLUME}.configMap.items[0].path", "Invalid"),
    (volume(**files("a", "a")), f"{VOLUME}.configMap.items[1].path", "Duplicate"),
    (
        on_networks({"name": "a.b"}),
        "spec.template.spec.networkInterfaces[0].network.name",
        "Invalid",
    ),
    (
        on_networks({"name": "a", "namespace": "A"}),
        "spec.template.spec.networkInterfaces[0].network.namespace",
        "Invalid",
    ),
    (running(resources={"requests": {"cpu": "1"}}), f"{RESOURCES}.requests.memory", "Required"),
    (running(resources={"requests": {"memory": "1Gi"}}), f"{RESOURCES}.requests.cpu", "Required"),
    (running(readinessProbe={}), f"{CONTAINER}.readinessProbe", "Required"),
    (
        running(livenessProbe={"tcpSocket": {"port": 1}, "exec": {"command": ["x"]}}),
        f"{CONTAINER}.livenessProbe.exec",
        "Forbidden",
    ),
    (
        running(readinessProbe={"httpGet": {"port": "web"}}),
        f"{CONTAINER}.readinessProbe.httpGet.port",
        "NotFound",
    ),
    (
        running(securityContext={"runAsGroup": 1}),
        f"{CONTAINER}.securityContext.runAsUser",
        "Required",
    ),
    (
        with_amounts({"cpu": "1001m"}, {"cpu": "1"}),
        f"{CONTAINER}.resources.requests.cpu",
        "Invalid",
    ),
]


@pytest.mark.parametrize("workload", FINE)
def test_a_valid_template_has_no_errors(workload: JsonObject) -> None:
    assert admit(WORKLOAD, workload, None)[1] == []


@pytest.mark.parametrize(("workload", "field", "reason"), WRONG)
def test_an_invalid_template_has_an_error_at_its_field(
    workload: JsonObject, field: str, reason: str
) -> None:
    found = {cause.field: cause.reason for cause in admit(WORKLOAD, workload, None)[1]}
    assert found == {field: f"FieldValue{reason}"}


def test_no_message_contains_a_secret_value() -> None:
    (cause,) = admit(WORKLOAD, env(value="hunter2", valueFrom={"secretKeyRef": KEY}), None)[1]
    assert "hunter2" not in cause.message


@pytest.mark.parametrize(
    "workload",
    [
        on_networks({"name": "a.b"}),
        running(resources={"requests": {"cpu": "1"}}),
        env(name="A B"),
    ],
)
def test_values_that_an_earlier_release_accepted_can_stay(workload: JsonObject) -> None:
    assert admit(WORKLOAD, workload, workload)[1] == []


UNSUPPORTED = [
    "spec.template.spec.runtime.virtualMachine",
    "spec.template.spec.runtime.class",
    "spec.template.spec.volumes[12].disk",
    "spec.template.spec.networkInterfaces[0].networkPolicy",
    "spec.template.spec.controller",
    "spec.placements[1].scaleSettings.maxReplicas",
    "spec.placements[0].scaleSettings.metrics",
]


@pytest.mark.parametrize("field", UNSUPPORTED)
def test_an_unsupported_field_is_refused(field: str) -> None:
    (cause,) = unsupported_fields(WORKLOAD, [field, f"{field}s", f"x{field}"]).values()
    assert (cause.field, cause.reason) == (field, "FieldValueForbidden")
    assert unsupported_fields(INSTANCE, [field]) == {}
