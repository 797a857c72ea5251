"""A Server as a pod. Pure: values in, a body for the API out.

A pod is confined as the restricted pod security standard wants it, whatever the namespace demands:
no root, no privileges, no capabilities, no token of an account. Restarts are the kubelet's: it
starts a container again in place, with a growing pause.

A container without a readiness probe gets a ``tcpSocket`` probe of its first TCP port. Kubernetes
allows one readiness probe for each container, so its other ports are not checked.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from datum_compute.api.codec import JsonObject, plain
from datum_compute.api.containeroptions import Probe, TcpSocket
from datum_compute.api.instance import Container
from datum_compute.api.server import ServerSpec, machine_fingerprint
from datum_compute.drivers.container_defaults import (
    PORT_CHECK,
    ContainerLimits,
    checked_ports,
    container_limits,
)

# By which the driver finds its pods.
POD_LABELS = {"app.kubernetes.io/managed-by": "datum-compute"}
MACHINE_UID = "region.datumapis.com/machine-uid"
SERVER_NAME = "region.datumapis.com/server"
# A name of a machine has more letters than a label may hold.
MACHINE = "region.datumapis.com/machine"
SPEC_FINGERPRINT = "region.datumapis.com/spec-fingerprint"
# Names the containers whose readiness probe is the port check of the platform.
PORT_CHECKED = "region.datumapis.com/port-checked"

_WRITABLE = {"writable-tmp": "/tmp", "writable-run": "/run"}  # noqa: S108 - in the container


def pod_name(machine_id: str) -> str:
    """Another one for each machine, also of the same Server name."""
    _, name, uid = machine_id.split("/")
    return f"{name[:54]}-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"


def server_label(name: str) -> str:
    """What fits into a label of a Server's name; those of others may begin alike."""
    return name[:63].rstrip("-")


def pod_body(machine_id: str, spec: ServerSpec) -> JsonObject:
    """For ``POST /api/v1/namespaces/NAMESPACE/pods``."""
    namespace, name, uid = machine_id.split("/")
    limits = container_limits(spec)
    body: JsonObject = {
        "containers": [_container(c, limits[c.name]) for c in spec.containers],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "hostname": server_label(name),
    }
    volumes = [*map(_said, spec.volumes), *_writable(spec)]
    if volumes:
        body["volumes"] = volumes
    if spec.image_pull_secrets:
        body["imagePullSecrets"] = [{"name": pull.name} for pull in spec.image_pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(machine_id),
            "namespace": namespace,
            "labels": {**POD_LABELS, MACHINE_UID: uid, SERVER_NAME: server_label(name)},
            "annotations": {
                MACHINE: machine_id,
                SPEC_FINGERPRINT: machine_fingerprint(spec),
                **_port_checked(spec),
            },
        },
        "spec": body,
    }


def _container(container: Container, limits: ContainerLimits) -> JsonObject:
    amounts = _amounts(limits)
    mounts = [
        {"name": attached.name, "mountPath": attached.mount_path, "readOnly": True}
        for attached in container.volume_attachments
    ]
    if container.security_context.read_only_root_filesystem:
        mounts += [{"name": name, "mountPath": path} for name, path in _WRITABLE.items()]
    body: JsonObject = {
        "name": container.name,
        "image": container.image,
        "command": container.command,
        "args": container.args,
        "env": [_said(variable) for variable in container.env],
        "envFrom": [_said(source) for source in container.env_from],
        "ports": [
            {"name": port.name, "containerPort": port.port, "protocol": port.protocol}
            for port in container.ports
        ],
        "resources": {"limits": amounts, "requests": amounts} if amounts else {},
        "volumeMounts": mounts,
        "imagePullPolicy": container.image_pull_policy,
        "readinessProbe": _said(_readiness_probe(container)),
        "livenessProbe": _said(container.liveness_probe),
    }
    return {
        **{key: value for key, value in body.items() if value},
        "securityContext": _security(container),
        # The last lines of what it said, when it ends badly: they come with the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _readiness_probe(container: Container) -> Probe | None:
    ports = checked_ports(container.ports, container.readiness_probe)
    if not ports:
        return container.readiness_probe
    return msgspec.structs.replace(PORT_CHECK, tcp_socket=TcpSocket(port=ports[0].port))


def _port_checked(spec: ServerSpec) -> dict[str, str]:
    names = [c.name for c in spec.containers if checked_ports(c.ports, c.readiness_probe)]
    return {PORT_CHECKED: ",".join(names)} if names else {}


def _amounts(limits: ContainerLimits) -> dict[str, str]:
    """What it needs is what it may have: nobody is promised the memory of another."""
    amounts = {}
    if limits.millicores:
        amounts["cpu"] = f"{limits.millicores}m"
    if limits.mebibytes:
        amounts["memory"] = f"{limits.mebibytes}Mi"
    return amounts


def _security(container: Container) -> JsonObject:
    said = container.security_context
    context: JsonObject = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": said.read_only_root_filesystem,
    }
    if said.run_as_user is not None:
        context["runAsUser"] = said.run_as_user
    if said.run_as_group is not None:
        context["runAsGroup"] = said.run_as_group
    return context


def _writable(spec: ServerSpec) -> list[JsonObject]:
    needed = any(c.security_context.read_only_root_filesystem for c in spec.containers)
    return [{"name": name, "emptyDir": {}} for name in _WRITABLE] if needed else []


def _said(value: Any) -> Any:
    """As JSON, in words that a pod knows too, without what is as usual: where we have a default, a
    pod has the same one."""
    return plain(value)
