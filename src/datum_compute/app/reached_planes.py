"""Which planes a manager works on, how it reaches each, and which leases it holds there.

Federated: every context of the kubeconfig that is named as a plane (``hub``, ``project/<name>``,
``cell/<name>``, ``platform``) is one; the hub may come from a file of its own. Single-cluster: one
API server is the platform, the one project and the one cell at once, each under its own name, so
that the controllers are the same as anywhere. That is chosen by ``--mode``, or, if that is left
open, when both groups run and no context is named as a plane.
"""

from __future__ import annotations

from collections.abc import Collection

from datum_compute.api.plane import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    plane_role,
    project_plane,
)
from datum_compute.app.settings import ManagerSettings
from datum_compute.client.connection import Connection
from datum_compute.client.kubeconfig import (
    Kubeconfig,
    KubeconfigError,
    connection_of,
    load_kubeconfig,
)

Connections = dict[PlaneName, Connection]


def is_single_cluster(settings: ManagerSettings) -> bool:
    """Whether one API server is everything. Only asked for, or where nothing else can be meant."""
    if settings.mode != "auto":
        return settings.mode == "single"
    both = settings.management and settings.cell and not settings.propagator
    if not both or settings.federation is not None:
        return False
    return not any(_role(name) for name in load_kubeconfig([settings.kubeconfig]).contexts)


def reached_planes(settings: ManagerSettings, *, single: bool) -> Connections:
    config = load_kubeconfig([settings.kubeconfig])
    if single:
        one = connection_of(config, settings.single.context)
        return dict.fromkeys(single_planes(settings), one)
    return _federated(settings, config)


def single_planes(settings: ManagerSettings) -> tuple[PlaneName, ...]:
    """The names under which the one API server is known."""
    one = settings.single
    return (PLATFORM, project_plane(one.project), cell_plane(one.cluster))


def leases_of(
    settings: ManagerSettings, planes: Collection[PlaneName], *, single: bool = False
) -> list[tuple[PlaneName, str]]:
    """Plane and name of every lease, in an order that is the same in every manager; two managers
    that share work share a lease."""
    leader = settings.leader
    if leader.plane is not None:
        if leader.plane not in planes:
            raise KubeconfigError(f"{settings.kubeconfig} has no context for: {leader.plane}")
        return [(leader.plane, leader.name)]
    if single:
        return [(PLATFORM, leader.name)]
    found = []
    if settings.management:
        found.append((HUB, f"{leader.name}-management"))
    if settings.propagator:
        found.append((HUB, f"{leader.name}-propagator"))
    if settings.cell:
        found += [(p, f"{leader.name}-cell") for p in planes if plane_role(p) == "cell"]
    return sorted(found)


def _federated(settings: ManagerSettings, config: Kubeconfig) -> Connections:
    """Every context that names a plane the chosen controllers work on; others are not ours."""
    roles = {"hub"} | ({"platform", "project"} if settings.management else set())
    roles |= {"cell"} if settings.cell or settings.propagator else set()
    roles |= {"project"} if settings.cell else set()  # the quota claims of its instances
    found = {
        PlaneName(name): connection_of(config, name)
        for name in sorted(config.contexts)
        if _role(name) in roles
    }
    if settings.federation is not None:
        hub = load_kubeconfig([settings.federation.kubeconfig])
        found[HUB] = connection_of(hub, settings.federation.context)
    missing = roles - {plane_role(plane) for plane in found}
    if missing:
        raise KubeconfigError(_what_is_missing(settings, sorted(missing)))
    return found


def _what_is_missing(settings: ManagerSettings, roles: list[str]) -> str:
    text = f"{settings.kubeconfig} has no context for: {', '.join(roles)}"
    if "hub" in roles:
        text += " (the hub may have a file of its own: --federation-kubeconfig FILE"
        text += "; to run against one API server without a hub: --mode single)"
    return text


def _role(context: str) -> str:
    try:
        return plane_role(PlaneName(context))
    except ValueError:
        return ""
