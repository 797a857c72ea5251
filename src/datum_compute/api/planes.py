"""Names of planes and the path prefix under which each is served.

A plane name is ``platform``, ``hub``, ``project/<name>`` or ``cell/<name>``. The empty string
names no plane and never stands for a default one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NewType

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
