"""Names of planes and the path prefix under which each is served.

A plane name is ``platform``, ``hub``, ``project/<name>`` or ``cell/<name>``. The empty string
names no plane and never stands for a default one.
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
    return PlaneName(f"project/{_checked(name)}")


@lru_cache(maxsize=4096)
def cell_plane(name: str) -> PlaneName:
    return PlaneName(f"cell/{_checked(name)}")


def member_name(plane: PlaneName) -> str:
    """The project or cell of ``project/<name>`` or ``cell/<name>``."""
    if plane_role(plane) not in _MEMBER_ROLES:
        raise ValueError(f"plane {plane!r} is neither a project nor a cell")
    return plane.partition("/")[2]


@lru_cache(maxsize=4096)
def plane_role(plane: PlaneName) -> str:
    """``platform``, ``hub``, ``project`` or ``cell``; any other text names no plane."""
    if plane in (PLATFORM, HUB):
        return plane
    role, _, name = plane.partition("/")
    if role not in _MEMBER_ROLES or not _DNS_LABEL.fullmatch(name):
        raise ValueError(f"{plane!r} names no plane")
    return role


def path_prefix(plane: PlaneName) -> str:
    """Where the plane is served; the platform plane is the root."""
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
    """The plane a request path addresses, and the path inside that plane."""
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


def _checked(name: str) -> str:
    if not _DNS_LABEL.fullmatch(name):
        raise ValueError(f"{name!r} is not a DNS label")
    return name


# --- Names that are equal on every plane, and the codec that says which project an object is from


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


# --- The name of the Work that stands for an object on a cell


# As Kubernetes does it: no vowels, so that no words come out.
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619


def work_name(kind: KindInfo[Any], ref: Ref) -> str:
    """Distinct over all namespaces, because the Works of a cluster share one."""
    identity = f"{kind.api_version}/{kind.kind}/{ref.namespace}/{ref.name}"
    return f"{ref.name}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"


def work_names(kind: KindInfo[Any], ref: Ref) -> tuple[str, str]:
    """As the embedded hub names it, and as Karmada does."""
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
