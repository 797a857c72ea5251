"""Operators: they let cells join and leave, and create, entitle and delete projects.

An operator waits until a cell has left or joined, so that the cell that finally serves a city is
known (``Users.serving``). An operator who revokes access waits until the workloads are gone, so
that the expected state is known. No operator waits forever for the decision of another: a request
may stay undecided.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Protocol, assert_never

from datum_compute.api.conditions import is_true
from datum_compute.api.errors import AlreadyExists, ApiError, Invalid, NotFound, Unreachable
from datum_compute.api.kinds import (
    CLUSTER,
    CONSUMER,
    ENTITLEMENT,
    JOIN_TOKEN,
    PROJECT,
    SERVICE,
    WORKLOAD,
)
from datum_compute.api.labels import FORCED_LEAVE, TOPOLOGY_CITY
from datum_compute.api.membership import CELL_JOIN, CellJoin, token_text
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, PLATFORM, project_plane
from datum_compute.api.quota import SERVICE as COMPUTE
from datum_compute.api.quota import SERVICE_NAME
from datum_compute.api.services import ACTIVE, consumer_name
from datum_compute.client.client import Client
from testkit.sim.actors.retry import RETRY_S, until, wait_until_deleted
from testkit.sim.processes import join_spec
from testkit.sim.scenario.faults import FOR_EVER
from testkit.sim.scenario.operations import (
    CreateProject,
    Decide,
    DeleteProject,
    DeployIn,
    GateCompute,
    LeaveCell,
    MoveCity,
    OnCells,
    OnProjects,
    RenewAccess,
    RequestAccess,
    SecondCell,
    SuspendProject,
)
from testkit.sim.scenario.scenario import city_of

if TYPE_CHECKING:
    from testkit.sim.actors.users import Users


# Cities of cells whose city label is changed by hand.
_NO_CITY, _OTHER_CITY = "LIMBO", "AWAY"


class CellHosts(Protocol):
    """The hosts of cells, and the content of their disks."""

    def wipe_count(self, cell: str) -> int: ...

    def store_certificate(self, cell: str, certificate: str) -> None:
        """Store the certificate that the cell received when it joined."""
        ...

    def wipe(self, cell: str) -> None:
        """Stop the host, and start it with an empty disk."""
        ...

    def joining_client(self, token: str) -> Client:
        """Return a client of the hub with this token."""
        ...


async def perform_on_cells(users: Users, operation: OnCells) -> None:
    cell = operation.cell
    match operation:
        case LeaveCell():
            if users.serving.get(city_of(cell)) == cell:
                await _replace(users, operation)
        case SecondCell(_, _, for_s, stays):
            first = users.serving.get(city_of(cell), "")
            if not first or first == cell:
                return
            await _register(users, cell)
            await asyncio.sleep(for_s)
            await leave(users, first if stays else cell, forced=False)
            users.serving[city_of(cell)] = cell if stays else first
        case MoveCity(_, _, for_s):
            await _move_and_return(users, cell, for_s)
        case _:
            assert_never(operation)


async def _replace(users: Users, operation: LeaveCell) -> None:
    cell, heir = operation.cell, operation.heir
    await leave(users, cell, forced=operation.forced)
    if operation.forced and not (operation.kept and heir == cell):
        users.log(f"cell {cell} is stopped and wiped")
        users.machines.wipe(cell)
    elif operation.forced:
        users.returned.add(cell)
    await asyncio.sleep(operation.away_s)
    await join(users, heir)
    users.serving[city_of(cell)] = heir


async def leave(users: Users, cell: str, *, forced: bool) -> None:
    users.log(f"cell {cell} leaves{' by force' if forced else ''}")
    hub, ref = users.clients[HUB], Ref("", cell)
    if forced:
        mark = {"metadata": {"annotations": {FORCED_LEAVE: "true"}}}
        await users.retry_until_done(lambda: hub.patch_plain(CLUSTER, ref, mark))
    await users.retry_until_done(lambda: hub.delete(CLUSTER, ref))
    await wait_until_deleted(hub, CLUSTER, ref)
    users.log(f"cell {cell} has left")


async def join(users: Users, cell: str, city: str = "") -> None:
    """Create a token and join with it; repeat both until the cell is a member."""
    users.log(f"cell {cell} joins")
    machines, hub = users.machines, users.clients[HUB]

    async def is_member() -> bool:
        users.tokens += 1
        name = f"join-{users.tokens}"
        text = token_text(name, "secret")
        spec = {
            "tokenHash": hashlib.sha256(text.encode()).hexdigest(),
            "expiresAt": "2100-01-01T00:00:00Z",
        }
        head = {"apiVersion": JOIN_TOKEN.api_version, "kind": JOIN_TOKEN.kind}
        await hub.create_plain(JOIN_TOKEN, {**head, "metadata": {"name": name}, "spec": spec})
        asked = join_spec(cell, city or city_of(cell), machines.wipe_count(cell))
        joining = CellJoin(metadata=ObjectMeta(), spec=asked)
        answer = await machines.joining_client(text).create(CELL_JOIN, joining)
        machines.store_certificate(cell, answer.status.certificate)
        return True

    await until(is_member)
    users.log(f"cell {cell} has joined")


async def _register(users: Users, cell: str) -> None:
    """Join without a city, then set the label: the join API refuses a second cell of a city."""
    await join(users, cell, _NO_CITY)
    await _set_city(users, cell, city_of(cell))


async def _move_and_return(users: Users, cell: str, for_s: float) -> None:
    """Move the city to the spare and back. In the end the spare leaves, so that no trace
    remains."""
    city = city_of(cell)
    first = users.serving.get(city, "")
    if not first or first == cell:
        return
    await join(users, cell, _NO_CITY)
    await _set_city(users, first, _OTHER_CITY)
    await _set_city(users, cell, city)
    await asyncio.sleep(for_s)
    await _set_city(users, cell, _NO_CITY)
    await _set_city(users, first, city)
    await leave(users, cell, forced=False)


async def _set_city(users: Users, cell: str, city: str) -> None:
    users.log(f"operator moves cell {cell} to {city}")
    label, ref = {"metadata": {"labels": {TOPOLOGY_CITY: city}}}, Ref("", cell)
    await users.retry_until_done(lambda: users.clients[HUB].patch_plain(CLUSTER, ref, label))


# How long a user tries to deploy before giving up.
_DEPLOY_TIMEOUT_S = 20.0
_REF = Ref("", COMPUTE)
_DENIALS = ("Denied", "Suspended", "Removed")


async def perform_on_projects(users: Users, operation: OnProjects) -> None:
    project = operation.project
    if isinstance(operation, CreateProject):
        await _create(users, project)
        return
    if isinstance(operation, SuspendProject):
        await _suspend_for(users, operation)
        return
    if project not in users.new_projects:
        return  # it was never created, or was deleted
    users.log(f"{operation}")
    match operation:
        case GateCompute(_, _, gated):
            mode = "GatedByProvider" if gated else "SelfService"
            patch = {"spec": {"enablementPolicy": {"mode": mode}}}
            await users.retry_until_done(lambda: users.client(PLATFORM).patch(SERVICE, _REF, patch))
        case RequestAccess():
            await _request(users, project)
        case Decide(_, _, decision):
            await _decide(users, project, decision)
        case RenewAccess():
            await _renew(users, project)
        case DeployIn():
            await _deploy(users, operation)
        case DeleteProject():
            await _delete(users, project)
        case _:
            assert_never(operation)


async def _create(users: Users, project: str) -> None:
    if project in users.new_projects:
        return
    users.log(f"operator creates project {project}")
    platform, ref = users.client(PLATFORM), Ref("", project)
    body = {
        "apiVersion": PROJECT.api_version,
        "kind": PROJECT.kind,
        "metadata": {"name": project},
        "spec": {"ownerRef": {"kind": "Organization", "name": "default"}},
    }
    await users.retry_until_done(lambda: platform.create_plain(PROJECT, body))
    users.new_projects[project] = None

    async def is_ready() -> bool:
        return is_true((await platform.get(PROJECT, ref)).status.conditions, "Ready")

    await until(is_ready)


async def _request(users: Users, project: str) -> None:
    body = {
        "apiVersion": ENTITLEMENT.api_version,
        "kind": ENTITLEMENT.kind,
        "metadata": {"name": COMPUTE},
        "spec": {"serviceRef": {"name": COMPUTE}},
    }
    user = users.client(project_plane(project))
    await users.retry_until_done(lambda: user.create_plain(ENTITLEMENT, body))


async def _decide(users: Users, project: str, decision: str) -> None:
    """Decide the request, and record whether there was one that the decision applied to."""
    platform = users.client(PLATFORM)
    ref = Ref("", consumer_name(SERVICE_NAME, project))
    applied = False

    async def remove() -> None:
        nonlocal applied
        try:
            await platform.delete(CONSUMER, ref)
        except Unreachable:
            applied = True  # probably; the next response may be that the consumer is gone
            raise
        applied = True

    async def change() -> None:
        nonlocal applied
        applied = not (await platform.patch(CONSUMER, ref, {"spec": spec})).is_terminating

    if decision == "Removed":
        await users.retry_until_done(remove)
    else:
        spec: JsonObject = {"approval": {"decision": decision}}
        if decision in ("Suspended", "Resumed"):
            spec = {"suspended": decision == "Suspended"}
        await users.retry_until_done(change)
    users.effects.append((project, decision, applied))
    if decision in _DENIALS:
        await until(lambda: _is_access_removed(users, project))


async def _is_access_removed(users: Users, project: str) -> bool:
    """Return True if access has ended. The workloads stay."""
    try:
        entitlement = await users.client(project_plane(project)).get(ENTITLEMENT, _REF)
    except NotFound:
        return True
    return entitlement.status.phase != ACTIVE


async def _suspend_for(users: Users, operation: SuspendProject) -> None:
    project = operation.project
    if project in users.revoked:
        return
    users.log(f"{operation}")
    platform, ref = users.client(PLATFORM), Ref("", consumer_name(SERVICE_NAME, project))
    patch = {"spec": {"suspended": True}}
    await users.retry_until_done(lambda: platform.patch(CONSUMER, ref, patch))
    if operation.for_s == FOR_EVER:
        users.suspended.add(project)
        return
    await asyncio.sleep(operation.for_s)
    users.log(f"{project} is resumed")
    patch = {"spec": {"suspended": False}}
    await users.retry_until_done(lambda: platform.patch(CONSUMER, ref, patch))


async def _renew(users: Users, project: str) -> None:
    user = users.client(project_plane(project))
    await users.retry_until_done(lambda: user.delete(ENTITLEMENT, _REF))
    await wait_until_deleted(user, ENTITLEMENT, _REF)
    await _request(users, project)


async def _deploy(users: Users, operation: DeployIn) -> None:
    """Deploy, and record whether the project got access before the user gave up."""
    key = (operation.project, operation.name)
    if key in users.desired:
        return
    user = users.client(project_plane(operation.project))
    desired, workload = users.workload(key, operation.replicas, operation.cities)
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + _DEPLOY_TIMEOUT_S
    has_access = False
    while not has_access:
        try:
            await user.create_plain(WORKLOAD, workload)
            has_access = True
        except AlreadyExists:
            has_access = True
        except Invalid:
            if loop.time() > ends_s:
                users.log(f"{operation.project} has no access")
                break
            await asyncio.sleep(RETRY_S)
        except (ApiError, Unreachable):
            await asyncio.sleep(RETRY_S)  # the request may have been applied
    if has_access:
        users.desired[key] = desired
    users.effects.append((operation.project, f"deploy {operation.name}", has_access))


async def _delete(users: Users, project: str) -> None:
    platform, ref = users.client(PLATFORM), Ref("", project)
    await users.retry_until_done(lambda: platform.delete(PROJECT, ref))
    await wait_until_deleted(platform, PROJECT, ref)
    _delete_project(users, project)
    del users.new_projects[project]
    users.log(f"project {project} is gone")


def _delete_project(users: Users, project: str) -> None:
    for key in [key for key in users.desired if key[0] == project]:
        del users.desired[key]
