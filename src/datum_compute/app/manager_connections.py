"""Which planes a manager works on, how it reaches each, and which leases it holds there.

Federated: every context of the kubeconfig that is named as a plane (``hub``, ``project/<name>``,
``cell/<name>``, ``platform``) is one; hub and projects may come from files of their own. How
projects are found is ``--discovery-mode``: those of Milo come and go with the Projects of the
platform, those of a list have a context each, a single one is the API server that is there anyway.

Single-cluster: one API server is the platform, the one project and the one cell at once, each under
its own name, so that the controllers are the same as anywhere. That is chosen by ``--mode``, or, if
that is left open, when both groups run and no context is named as a plane.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager

from datum_compute.api.planes import HUB, PLATFORM, PlaneName, cell_plane, plane_role, project_plane
from datum_compute.app.environment import Ports
from datum_compute.app.settings.flags import MILO, SINGLE
from datum_compute.app.settings.settings import ManagerSettings
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.credentials import AuthEnvironment
from datum_compute.client.auth.kubeconfig import (
    Kubeconfig,
    KubeconfigError,
    connection_of,
    load_kubeconfig,
)
from datum_compute.client.connect import open_transport
from datum_compute.client.transport.interface import BoundedTransport, Transport

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
    return (PLATFORM, project_plane(one.project), cell_plane(one.only_cell))


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


def project_paths(settings: ManagerSettings, planes: Connections) -> Connection | None:
    """The API server under whose paths projects are that come later; None where none can come."""
    if settings.discovery.mode != MILO:
        return None
    if settings.discovery.kubeconfig is not None:
        return connection_of(load_kubeconfig([settings.discovery.kubeconfig]))
    return planes.get(PLATFORM) or planes[HUB]


def _federated(settings: ManagerSettings, config: Kubeconfig) -> Connections:
    """Every context that names a plane the chosen controllers work on; others are not ours."""
    roles = {"hub"} | ({"platform", "project"} if settings.management else set())
    roles |= {"cell"} if settings.cell or settings.propagator else set()
    roles |= {"project"} if settings.cell else set()  # the quota claims of its instances
    found = _named(config, roles) | _of_projects(settings, config, roles)
    if settings.cell and settings.single.cluster and not _has(found, "cell"):
        own = connection_of(config, settings.single.context)
        found[cell_plane(settings.single.cluster)] = own
    if settings.federation is not None:
        hub = load_kubeconfig([settings.federation.kubeconfig])
        found[HUB] = connection_of(hub, settings.federation.context)
    missing = sorted(role for role in roles if not _has(found, role))
    missing = [role for role in missing if not _may_be_missing(settings, role)]
    if missing:
        raise KubeconfigError(_what_is_missing(settings, missing))
    return dict(sorted(found.items()))


def _named(config: Kubeconfig, roles: Collection[str]) -> Connections:
    return {
        PlaneName(name): connection_of(config, name)
        for name in config.contexts
        if _role(name) in roles
    }


def _of_projects(
    settings: ManagerSettings, config: Kubeconfig, roles: Collection[str]
) -> Connections:
    """What the way in which projects are found adds: a file of their own, or the only one."""
    file, only = settings.discovery.kubeconfig, settings.discovery.mode == SINGLE
    wanted = [role for role in ("platform", "project") if role in roles]
    config = config if file is None else load_kubeconfig([file])
    if not only:
        return {} if file is None else _named(config, wanted)
    one = connection_of(config, settings.single.context if file is None else "")
    project = project_plane(settings.single.project)
    return {PLATFORM if role == "platform" else project: one for role in wanted}


def _may_be_missing(settings: ManagerSettings, role: str) -> bool:
    """Cells that join the hub of the propagator need no context, nor do projects of Milo."""
    if role == "cell":
        return not settings.cell
    comes_later = settings.management or settings.discovery.kubeconfig is not None
    return role == "project" and settings.discovery.mode == MILO and comes_later


def _has(planes: Collection[PlaneName], role: str) -> bool:
    return any(plane_role(plane) == role for plane in planes)


def _what_is_missing(settings: ManagerSettings, roles: list[str]) -> str:
    text = f"{settings.kubeconfig} has no context for: {', '.join(roles)}"
    if "hub" in roles:
        text += " (the hub may have a file of its own: --federation-kubeconfig FILE"
        text += "; to run against one API server without a hub: --mode single)"
    elif "platform" in roles:
        text += " (if one API server is the only project, and the platform too:"
        text += " --discovery-mode single)"
    return text


def _role(context: str) -> str:
    try:
        return plane_role(PlaneName(context))
    except ValueError:
        return ""


# --- How a process opens its way to planes of other processes


def opener(
    ports: Ports, *, bounded: bool = True
) -> Callable[[Connection], AbstractAsyncContextManager[Transport]]:
    """For connections that bring all they need: no program is started to sign in. Those that are
    ``bounded`` are few; what users follow for as long as they like goes over others."""
    outside = AuthEnvironment(
        environ={}, is_terminal=False, unix_s=ports.unix_s, random=ports.random
    )
    around = BoundedTransport if bounded else None
    return lambda connection: open_transport(connection, outside, around)
