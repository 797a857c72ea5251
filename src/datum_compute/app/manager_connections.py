"""The planes that a manager works on, its connection to each, and the Leases that it holds there.

Federated mode: every context of the kubeconfig that is named as a plane (``hub``,
``project/<name>``, ``cell/<name>``, ``platform``) is a plane. Hub and projects may have kubeconfigs
of their own. ``--discovery-mode`` selects how projects are found: projects of Milo come and go with
the Projects of the platform, projects of a list have a context each, and a single project is the
API server of the kubeconfig.

Single-cluster mode: one API server is the platform, the only project and the only cell. It has the
name of each, so that the controllers are the same as in a federation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from msgspec.structs import replace as struct_replace

from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CLAIM
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    path_prefix,
    plane_role,
    project_plane,
)
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.settings.options import LIST, MILO, SINGLE
from datum_compute.app.settings.settings import ManagerSettings, PlaneSettings
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


def plane_connections(settings: ManagerSettings) -> Connections:
    config = load_kubeconfig([settings.planes.kubeconfig])
    if settings.planes.discovery.quota_kubeconfig is not None:
        load_kubeconfig([settings.planes.discovery.quota_kubeconfig])  # raises if it is missing
    if settings.planes.is_single_cluster:
        connection = connection_of(config, settings.planes.single.context)
        return dict.fromkeys(single_cluster_planes(settings.planes), connection)
    return _federated_connections(settings, config)


def single_cluster_planes(settings: PlaneSettings) -> tuple[PlaneName, ...]:
    """Return the names of the API server in single-cluster mode."""
    single = settings.single
    return (PLATFORM, project_plane(single.project), cell_plane(single.only_cell))


def leases_of(
    settings: ManagerSettings, planes: Collection[PlaneName]
) -> list[tuple[PlaneName, str]]:
    """Return plane and name of every Lease.

    Managers that share work share a Lease. The order is the same in all managers, so that they
    cannot block each other.
    """
    leader, controllers = settings.leader, settings.controllers
    if leader.plane is not None:
        if leader.plane not in planes:
            raise KubeconfigError(
                f"{settings.planes.kubeconfig} has no context for: {leader.plane}"
            )
        return [(leader.plane, leader.name)]
    if settings.planes.is_single_cluster:
        return [(PLATFORM, leader.name)]
    found = []
    if controllers.management:
        found.append((HUB, f"{leader.name}-management"))
    if controllers.propagator:
        found.append((HUB, f"{leader.name}-propagator"))
    if controllers.cell:
        found += [(p, f"{leader.name}-cell") for p in planes if plane_role(p) == "cell"]
    return sorted(found)


def project_api(settings: PlaneSettings, planes: Connections) -> Connection | None:
    """Return the connection to the API server that serves projects which are created later.

    Return None if no project can be created later.
    """
    if settings.discovery.mode != MILO:
        return None
    if settings.discovery.kubeconfig is not None:
        return connection_of(load_kubeconfig([settings.discovery.kubeconfig]))
    return planes.get(PLATFORM) or planes[HUB]


def quota_connection(settings: PlaneSettings, plane: PlaneName) -> Connection | None:
    """Return the connection for the quota claims of a project, if it is a separate one."""
    file = settings.discovery.quota_kubeconfig
    if file is None or plane_role(plane) != "project":
        return None
    config = load_kubeconfig([file])
    if plane in config.contexts or settings.discovery.mode == LIST:
        return connection_of(config, plane)
    connection = connection_of(config)
    if settings.discovery.mode == SINGLE:
        return connection
    return replace(connection, path_prefix=path_prefix(plane))


class QuotaTransport:
    """Sends the requests for quota objects of a project with the quota credential."""

    def __init__(
        self,
        inner: Transport,
        connection: Connection,
        quota: Transport,
        quota_connection: Connection,
    ) -> None:
        self._inner = inner
        self._connection = connection
        self._quota = quota
        self._quota_connection = quota_connection

    async def send(self, request: Request) -> Response:
        path = request.path.removeprefix(self._connection.path_prefix)
        if not path.startswith(f"/apis/{CLAIM.group}/"):
            return await self._inner.send(request)
        headers = {k: v for k, v in request.headers.items() if k != "authorization"}
        quota = self._quota_connection
        if quota.token and quota.sign_in is None:
            headers["authorization"] = f"Bearer {quota.token}"
        request = struct_replace(request, path=quota.path_prefix + path, headers=headers)
        return await self._quota.send(request)


def _federated_connections(settings: ManagerSettings, config: Kubeconfig) -> Connections:
    """Return the contexts that name a plane of the enabled controllers; others are ignored."""
    groups, planes = settings.controllers, settings.planes
    roles = {"hub"} | ({"platform", "project"} if groups.management else set())
    roles |= {"cell"} if groups.cell or groups.propagator else set()
    roles |= {"project"} if groups.cell else set()  # the quota claims of its instances
    found = _named_planes(config, roles) | _project_connections(planes, config, roles)
    if groups.cell and planes.single.cluster and not _has_role(found, "cell"):
        own = connection_of(config, planes.single.context)
        found[cell_plane(planes.single.cluster)] = own
    platform = planes.discovery.platform_kubeconfig
    if platform is not None and "platform" in roles:
        of_platform = load_kubeconfig([platform])
        named = PLATFORM if PLATFORM in of_platform.contexts else ""
        found[PLATFORM] = connection_of(of_platform, named)
    if planes.federation is not None:
        hub = load_kubeconfig([planes.federation.kubeconfig])
        found[HUB] = connection_of(hub, planes.federation.context)
    missing = sorted(role for role in roles if not _has_role(found, role))
    missing = [role for role in missing if not _is_optional(settings, role)]
    if missing:
        raise KubeconfigError(_describe_missing(planes, missing))
    return dict(sorted(found.items()))


def _named_planes(config: Kubeconfig, roles: Collection[str]) -> Connections:
    return {
        PlaneName(name): connection_of(config, name)
        for name in config.contexts
        if _role_of_context(name) in roles
    }


def _project_connections(
    settings: PlaneSettings, config: Kubeconfig, roles: Collection[str]
) -> Connections:
    """Return the planes of a kubeconfig of projects, or of the single project."""
    file = settings.discovery.kubeconfig
    project_roles = [role for role in ("platform", "project") if role in roles]
    config = config if file is None else load_kubeconfig([file])
    if settings.discovery.mode != SINGLE:
        return {} if file is None else _named_planes(config, project_roles)
    connection = connection_of(config, settings.single.context if file is None else "")
    project = project_plane(settings.single.project)
    return {PLATFORM if role == "platform" else project: connection for role in project_roles}


def _is_optional(settings: ManagerSettings, role: str) -> bool:
    """Return True for cells that join the hub of the propagator, and for projects of Milo."""
    groups, discovery = settings.controllers, settings.planes.discovery
    if role == "cell":
        return not groups.cell
    comes_later = groups.management or discovery.kubeconfig is not None
    return role == "project" and discovery.mode == MILO and comes_later


def _has_role(planes: Collection[PlaneName], role: str) -> bool:
    return any(plane_role(plane) == role for plane in planes)


def _describe_missing(settings: PlaneSettings, roles: list[str]) -> str:
    text = f"{settings.kubeconfig} has no context for: {', '.join(roles)}"
    if "hub" in roles:
        text += " (a hub with its own kubeconfig: --federation-kubeconfig FILE"
        text += "; one API server without a hub: --mode single)"
    elif "platform" in roles:
        text += " (one API server that is the only project and the platform:"
        text += " --discovery-mode single)"
    return text


def _role_of_context(context: str) -> str:
    try:
        return plane_role(PlaneName(context))
    except ValueError:
        return ""


# --- Transports to planes of other processes


def transport_opener(
    environment: ProcessEnvironment, *, is_bounded: bool = True
) -> Callable[[Connection], AbstractAsyncContextManager[Transport]]:
    """Return a function that opens a transport without starting credential plugins.

    A bounded transport has few connections. Streams that users follow for an unlimited time need
    an unbounded transport.
    """
    outside = AuthEnvironment(
        environ={}, is_terminal=False, unix_s=environment.unix_s, random=environment.random
    )
    around = BoundedTransport if is_bounded else None
    return lambda connection: open_transport(connection, outside, around)
