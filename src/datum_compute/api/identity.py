"""Names that are equal on every plane, and the codec that says which project an object is from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from datum_compute.api import labels

_CLUSTER_PREFIX = "cluster-"
_HOME_PREFIX = "ns-"
_WORKLOAD_NAME_MAX = 30


def normalized_city(city: str) -> str:
    """Cities are upper case everywhere but in names of objects."""
    return city.strip().upper()


def deployment_name(workload_name: str, workload_uid: str, placement: str, city: str) -> str:
    """At most 41 characters, unambiguous whatever dashes the parts contain."""
    parts = "\0".join((workload_uid, placement, city.lower()))
    digest = hashlib.sha256(parts.encode()).hexdigest()[:10]
    return f"{workload_name[:_WORKLOAD_NAME_MAX].rstrip('-.')}-{digest}"


def instance_name(deployment: str, ordinal: int) -> str:
    return f"{deployment}-{ordinal}"


def deployment_of(instance_name: str, instance_labels: Mapping[str, str] | None = None) -> str:
    """Return the deployment of an instance: by its label, else its name without the ordinal.

    Without labels only the name counts, for callers that must not rely on labels.
    """
    named = (instance_labels or {}).get(labels.DEPLOYMENT_NAME)
    return named or instance_name.rpartition("-")[0]


def federation_namespace(namespace_uid: str) -> str:
    """The hub and cell namespace of a project namespace."""
    return f"{_HOME_PREFIX}{namespace_uid}"


def source_uid(federation_namespace: str) -> str:
    """The uid of the project namespace whose home it is; empty for any other namespace."""
    if not federation_namespace.startswith(_HOME_PREFIX):
        return ""
    return federation_namespace.removeprefix(_HOME_PREFIX)


def execution_namespace(cluster: str) -> str:
    """Where the hub keeps the Works of a cell."""
    return f"karmada-es-{cluster}"


def city_policy_name(city: str) -> str:
    return f"city-{city.lower()}"


def source_copy_policy_name(kind: str, name: str) -> str:
    return f"{kind.lower()}-{name}"


def encoded_cluster(project: str) -> str:
    """The label value that names a project on the hub."""
    return _CLUSTER_PREFIX + project.replace("/", "_")


def decoded_project(label: str) -> str | None:
    """The project a label value names: the last path segment, or None if it names none."""
    if not label.startswith(_CLUSTER_PREFIX):
        return None
    return label.removeprefix(_CLUSTER_PREFIX).replace("_", "/").rpartition("/")[2] or None
