"""The pod of a Server. Pure.

- Pods satisfy the restricted Pod Security Standard, even if their namespace does not require it: no
  root, no privileges, no capabilities, no service account token.
- The kubelet restarts containers in place, with its own backoff.
- A container without a readiness probe gets a ``tcpSocket`` probe of its first TCP port. Kubernetes
  allows one readiness probe for each container, so its other ports are not checked.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from datum_compute.api.compute.instance import Container, Probe, TcpSocket
from datum_compute.api.compute.server import ServerSpec, machine_fingerprint
from datum_compute.api.meta.codec import JsonObject, to_json
from datum_compute.drivers.container_defaults import (
    PORT_CHECK,
    ContainerLimits,
    container_limits,
    ports_to_check,
)

# Labels of all pods of the driver.
POD_LABELS = {"app.kubernetes.io/managed-by": "datum-compute"}
MACHINE_UID = "region.datumapis.com/machine-uid"
SERVER_NAME = "region.datumapis.com/server"
# An annotation, because the id of a machine is too long for a label.
MACHINE = "region.datumapis.com/machine"
SPEC_FINGERPRINT = "region.datumapis.com/spec-fingerprint"
TEMPLATE_HASH = "region.datumapis.com/template-hash"
# An annotation with the names of the containers whose readiness probe is our port check.
PORT_CHECKED = "region.datumapis.com/port-checked"

_WRITABLE_FOLDERS = {"writable-tmp": "/tmp", "writable-run": "/run"}  # noqa: S108 - in the container


def pod_name(machine_id: str) -> str:
    """Return a name that differs between the machines of a Server."""
    _, name, uid = machine_id.split("/")
    return f"{name[:54]}-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"


def server_label(name: str) -> str:
    """Return the name of a Server, cut to the length of a label. Servers may share a label."""
    return name[:63].rstrip("-")


def pod_body(machine_id: str, spec: ServerSpec) -> JsonObject:
    """Return the body of ``POST /api/v1/namespaces/NAMESPACE/pods``."""
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
    volumes = [*map(_to_json, spec.volumes), *_writable_volumes(spec)]
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
                TEMPLATE_HASH: spec.template_hash,
                **_port_check_annotation(spec),
            },
        },
        "spec": body,
    }


def _container(container: Container, limits: ContainerLimits) -> JsonObject:
    resources = _resources(limits)
    mounts = [
        {"name": attachment.name, "mountPath": attachment.mount_path, "readOnly": True}
        for attachment in container.volume_attachments
    ]
    if container.security_context.read_only_root_filesystem:
        mounts += [{"name": name, "mountPath": path} for name, path in _WRITABLE_FOLDERS.items()]
    body: JsonObject = {
        "name": container.name,
        "image": container.image,
        "command": container.command,
        "args": container.args,
        "env": [_to_json(variable) for variable in container.env],
        "envFrom": [_to_json(source) for source in container.env_from],
        "ports": [
            {"name": port.name, "containerPort": port.port, "protocol": port.protocol}
            for port in container.ports
        ],
        "resources": {"limits": resources, "requests": resources} if resources else {},
        "volumeMounts": mounts,
        "imagePullPolicy": container.image_pull_policy,
        "readinessProbe": _to_json(_readiness_probe(container)),
        "livenessProbe": _to_json(container.liveness_probe),
    }
    return {
        **{key: value for key, value in body.items() if value},
        "securityContext": _security_context(container),
        # The pod status then contains the last lines of output of a container that failed.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _readiness_probe(container: Container) -> Probe | None:
    ports = ports_to_check(container.ports, container.readiness_probe)
    if not ports:
        return container.readiness_probe
    return msgspec.structs.replace(PORT_CHECK, tcp_socket=TcpSocket(port=ports[0].port))


def _port_check_annotation(spec: ServerSpec) -> dict[str, str]:
    names = [c.name for c in spec.containers if ports_to_check(c.ports, c.readiness_probe)]
    return {PORT_CHECKED: ",".join(names)} if names else {}


def _resources(limits: ContainerLimits) -> dict[str, str]:
    """Return requests, which equal the limits: memory is not overcommitted."""
    resources = {}
    if limits.millicores:
        resources["cpu"] = f"{limits.millicores}m"
    if limits.mebibytes:
        resources["memory"] = f"{limits.mebibytes}Mi"
    return resources


def _security_context(container: Container) -> JsonObject:
    requested = container.security_context
    context: JsonObject = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": requested.read_only_root_filesystem,
    }
    if requested.run_as_user is not None:
        context["runAsUser"] = requested.run_as_user
    if requested.run_as_group is not None:
        context["runAsGroup"] = requested.run_as_group
    return context


def _writable_volumes(spec: ServerSpec) -> list[JsonObject]:
    needed = any(c.security_context.read_only_root_filesystem for c in spec.containers)
    return [{"name": name, "emptyDir": {}} for name in _WRITABLE_FOLDERS] if needed else []


def _to_json(value: Any) -> Any:
    """Return the JSON of a value. Kubernetes uses the same field names and the same defaults."""
    return to_json(value)
