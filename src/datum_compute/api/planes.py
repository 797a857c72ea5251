"""Names of planes and of objects that are equal on all planes, and the paths of planes.

A plane name is ``platform``, ``hub``, ``project/<name>`` or ``cell/<name>``. The empty string is
not a plane name and never means a default plane.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NewType

from datum_compute.api import labels
from datum_compute.api.meta.objects import KindInfo, Ref

PlaneName = NewType("PlaneName", str)

ROLES = ("platform", "project", "hub", "cell")

PLATFORM = PlaneName("platform")
HUB = PlaneName("hub")

_PROJECTS = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/"
_CONTROL_PLANE = "/control-plane"
_CELLS = "/planes/cells/"
_HUB_PREFIX = "/planes/hub"
_MEMBER_ROLES = ("project", "cell")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@lru_cache(maxsize=4096)
def project_plane(name: str) -> PlaneName:
    return PlaneName(f"project/{_check_label(name)}")


@lru_cache(maxsize=4096)
def cell_plane(name: str) -> PlaneName:
    return PlaneName(f"cell/{_check_label(name)}")


def member_name(plane: PlaneName) -> str:
    """Return the project or cell of ``project/<name>`` or ``cell/<name>``."""
    if plane_role(plane) not in _MEMBER_ROLES:
        raise ValueError(f"plane {plane!r} is neither a project nor a cell")
    return plane.partition("/")[2]


@lru_cache(maxsize=4096)
def plane_role(plane: PlaneName) -> str:
    """Return ``platform``, ``hub``, ``project`` or ``cell``. Raises ValueError for other names."""
    if plane in (PLATFORM, HUB):
        return plane
    role, _, name = plane.partition("/")
    if role not in _MEMBER_ROLES or not _DNS_LABEL.fullmatch(name):
        raise ValueError(f"{plane!r} is not a plane name")
    return role


def path_prefix(plane: PlaneName) -> str:
    """Return the path at which a plane is served. The platform plane is the root."""
    match plane_role(plane):
        case "platform":
            return ""
        case "hub":
            return _HUB_PREFIX
        case "project":
            return f"{_PROJECTS}{member_name(plane)}{_CONTROL_PLANE}"
        case _:
            return f"{_CELLS}{member_name(plane)}"


def split_path(path: str) -> tuple[PlaneName, str]:
    """Return the plane of a request path, and the path in that plane."""
    if path.startswith(_PROJECTS):
        name, found, rest = path.removeprefix(_PROJECTS).partition(_CONTROL_PLANE)
        if found and _DNS_LABEL.fullmatch(name) and (not rest or rest.startswith("/")):
            return PlaneName(f"project/{name}"), rest or "/"
    if path.startswith(_CELLS):
        name, _, rest = path.removeprefix(_CELLS).partition("/")
        if _DNS_LABEL.fullmatch(name):
            return PlaneName(f"cell/{name}"), "/" + rest
    if path == _HUB_PREFIX or path.startswith(_HUB_PREFIX + "/"):
        return HUB, path.removeprefix(_HUB_PREFIX) or "/"
    return PLATFORM, path


def _check_label(name: str) -> str:
    if not _DNS_LABEL.fullmatch(name):
        raise ValueError(f"{name!r} is not a DNS label")
    return name


# --- Names that are equal on every plane, and the labels that contain the project of an object


_CLUSTER_PREFIX = "cluster-"
_FEDERATION_PREFIX = "ns-"


def normalize_city(city: str) -> str:
    """Return a city code in upper case. Only names of objects contain lower case."""
    return city.strip().upper()


def instance_name(deployment: str, ordinal: int) -> str:
    return f"{deployment}-{ordinal}"


def deployment_of(instance_name: str, instance_labels: Mapping[str, str] | None = None) -> str:
    """Return the deployment of an instance: by its label, else its name without the ordinal.

    Without labels only the name counts, for callers that must not rely on labels.
    """
    named = (instance_labels or {}).get(labels.DEPLOYMENT_NAME)
    return named or instance_name.rpartition("-")[0]


def federation_namespace(namespace_uid: str) -> str:
    """Return the namespace on the hub and on cells for a namespace of a project."""
    return f"{_FEDERATION_PREFIX}{namespace_uid}"


def source_uid(federation_namespace: str) -> str:
    """Return the UID of the project namespace for a hub namespace; empty for other namespaces."""
    if not federation_namespace.startswith(_FEDERATION_PREFIX):
        return ""
    return federation_namespace.removeprefix(_FEDERATION_PREFIX)


def execution_namespace(cluster: str) -> str:
    """Return the namespace of the Works of a cell on the hub."""
    return f"karmada-es-{cluster}"


def city_policy_name(city: str) -> str:
    return f"city-{city.lower()}"


def source_copy_policy_name(kind: str, name: str) -> str:
    return f"{kind.lower()}-{name}"


def encode_cluster_label(project: str) -> str:
    """Return the label value for a project on the hub."""
    return _CLUSTER_PREFIX + project.replace("/", "_")


def decode_project_label(label: str) -> str | None:
    """Return the project of a label value: its last path segment, or None."""
    if not label.startswith(_CLUSTER_PREFIX):
        return None
    return label.removeprefix(_CLUSTER_PREFIX).replace("_", "/").rpartition("/")[2] or None


# --- Names of Works


# As in Kubernetes: no vowels, so that no words result.
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619


def work_name(kind: KindInfo[Any], ref: Ref) -> str:
    """Return a name that is unique over all namespaces, because the Works of a cluster
    share one.
    """
    identity = f"{kind.api_version}/{kind.kind}/{ref.namespace}/{ref.name}"
    return f"{ref.name}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"


def work_names(kind: KindInfo[Any], ref: Ref) -> tuple[str, str]:
    """Return the name of a Work on the embedded hub, and with Karmada."""
    return work_name(kind, ref), _karmada_work_name(kind, ref)


def _karmada_work_name(kind: KindInfo[Any], ref: Ref) -> str:
    name = ref.name.replace(":", ".").lower()
    identity = "-".join(filter(None, (ref.namespace, name, kind.kind))).lower()
    digits = str(_fnv_1a(identity.encode()))
    return f"{name}-{''.join(_SAFE[ord(digit) % len(_SAFE)] for digit in digits)}"


def _fnv_1a(data: bytes) -> int:
    found = _FNV_OFFSET
    for byte in data:
        found = (found ^ byte) * _FNV_PRIME % 2**32
    return found
