"""The pod of a Server has all fields of its spec and no privileges."""

from __future__ import annotations

from typing import Any

from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.meta.codec import from_json
from datum_compute.drivers.pods.pod_spec import (
    MACHINE,
    PORT_CHECKED,
    TEMPLATE_HASH,
    pod_body,
    pod_name,
)

ID = "ns-1/web-0/0e0f3c1e-0000-4000-8000-000000000001"
SERVER_SPEC: dict[str, Any] = {
    "instanceType": "datumcloud/d1-standard-2",
    "templateHash": "abc",
    "resources": {"cpu": "1", "memory": "2Gi"},
    "terminationGracePeriodSeconds": 5,
    "imagePullSecrets": [{"name": "registry"}],
    "volumes": [
        {"name": "files", "configMap": {"name": "settings", "items": [{"key": "a", "path": "b"}]}},
        {"name": "keys", "secret": {"secretName": "key", "defaultMode": 256, "optional": True}},
    ],
    "containers": [
        {
            "name": "app",
            "image": "x.example/web:1",
            "command": ["run"],
            "args": ["fast"],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
            ],
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}],
            "volumeAttachments": [{"name": "files", "mountPath": "/etc/app"}],
            "ports": [{"name": "http", "port": 8080}],
            "resources": {"limits": {"cpu": "250m", "memory": "256Mi"}},
            "imagePullPolicy": "Always",
            "readinessProbe": {"httpGet": {"port": "http", "path": "/ready"}, "periodSeconds": 3},
            "livenessProbe": {"exec": {"command": ["true"]}},
            "securityContext": {"runAsUser": 1000, "readOnlyRootFilesystem": True},
        },
        {"name": "side", "image": "x.example/side:1"},
    ],
}


def build_pod() -> Any:
    return pod_body(ID, from_json(SERVER_SPEC, ServerSpec))


def test_a_container_has_the_fields_of_the_server() -> None:
    app = build_pod()["spec"]["containers"][0]
    assert app["command"] == ["run"]
    assert app["args"] == ["fast"]
    reference = {"secretKeyRef": {"name": "key", "key": "k"}}
    assert app["env"] == [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": reference}]
    assert app["envFrom"] == [{"prefix": "P_", "configMapRef": {"name": "settings"}}]
    assert app["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    assert app["imagePullPolicy"] == "Always"
    assert app["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
    assert app["readinessProbe"]["periodSeconds"] == 3
    assert app["livenessProbe"]["exec"] == {"command": ["true"]}
    assert {"name": "files", "mountPath": "/etc/app", "readOnly": True} in app["volumeMounts"]


def test_limits_are_stated_or_a_share_of_the_machine() -> None:
    app, side = build_pod()["spec"]["containers"]
    assert app["resources"]["limits"] == {"cpu": "250m", "memory": "256Mi"}
    assert side["resources"]["limits"] == {"cpu": "750m", "memory": "1792Mi"}
    assert side["resources"]["requests"] == side["resources"]["limits"]


def test_volumes_and_pull_secrets_are_references_by_name() -> None:
    spec = build_pod()["spec"]
    files, keys = spec["volumes"][:2]
    assert files["configMap"]["name"] == "settings"
    assert files["configMap"]["items"] == [{"key": "a", "path": "b"}]
    assert keys["secret"] == {"secretName": "key", "defaultMode": 256, "optional": True}
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["terminationGracePeriodSeconds"] == 5
    assert spec["restartPolicy"] == "Always"


def test_pods_satisfy_the_restricted_standard() -> None:
    spec = build_pod()["spec"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["runAsNonRoot"] is True
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(spec)


def test_a_read_only_root_has_writable_folders() -> None:
    spec = build_pod()["spec"]
    mounts = {m["mountPath"]: m["name"] for m in spec["containers"][0]["volumeMounts"]}
    empty = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    assert {mounts["/tmp"], mounts["/run"]} == empty
    assert "volumeMounts" not in spec["containers"][1], "the other container has a writable root"


def test_pod_names_differ_between_machines() -> None:
    assert pod_name("ns/web-0/1") != pod_name("ns/web-0/2")
    assert pod_name(ID).startswith("web-0-")
    assert len(pod_name(f"ns/{'a' * 63}/1")) <= 63
    annotations = build_pod()["metadata"]["annotations"]
    assert annotations[MACHINE] == ID
    assert annotations[TEMPLATE_HASH] == "abc"


def with_ports(*ports: dict[str, Any], **fields: Any) -> Any:
    container = {"name": "app", "image": "web:1", "ports": list(ports), **fields}
    side = {"name": "side", "image": "web:1"}
    return pod_body(ID, from_json({**SERVER_SPEC, "containers": [container, side]}, ServerSpec))


def test_a_container_without_a_readiness_probe_has_its_first_tcp_port_checked() -> None:
    dns = {"name": "dns", "port": 53, "protocol": "UDP"}
    http, admin = {"name": "http", "port": 8080}, {"name": "admin", "port": 9090}
    pod = with_ports(dns, http, admin)
    app, side = pod["spec"]["containers"]
    assert app["readinessProbe"] == {"tcpSocket": {"port": 8080}, "periodSeconds": 5}
    assert "readinessProbe" not in side
    assert pod["metadata"]["annotations"][PORT_CHECKED] == "app"


def test_only_containers_without_a_readiness_probe_are_port_checked() -> None:
    own = {"httpGet": {"port": 8080}}
    probed = with_ports({"name": "http", "port": 8080}, readinessProbe=own)
    assert "tcpSocket" not in probed["spec"]["containers"][0]["readinessProbe"]
    assert PORT_CHECKED not in probed["metadata"]["annotations"]
    unchecked = with_ports({"name": "dns", "port": 53, "protocol": "UDP"})
    assert "readinessProbe" not in unchecked["spec"]["containers"][0]
    assert PORT_CHECKED not in unchecked["metadata"]["annotations"]
