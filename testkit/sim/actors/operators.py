"""Carries out what ``membership_operations.py`` says.

Nobody is in two minds: whoever lets a cell leave waits until it is gone, and whoever lets one join
asks until it is a member. So which cell serves a city in the end is certain (``Users.serving``).

Carries out what ``project_operations.py`` says.

Whoever takes access away waits until it is gone with all that ran; so what is wanted afterwards is
certain. Nobody waits for ever for what depends on others: a request may stay undecided.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Protocol, assert_never

from datum_compute.api.cellidentity import token_text
from datum_compute.api.celljoin import CELL_JOIN, CellJoin
from datum_compute.api.codec import JsonObject
from datum_compute.api.conditions import is_true
from datum_compute.api.entitlements import ACTIVE, consumer_name
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
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.plane import HUB, PLATFORM, project_plane
from datum_compute.api.quotametrics import SERVICE as COMPUTE
from datum_compute.api.quotametrics import SERVICE_NAME
from datum_compute.client.client import Client
from testkit.sim.actors.retry import AGAIN_S, until, until_gone
from testkit.sim.processes import join_spec
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
)
from testkit.sim.scenario.scenario import city_of

if TYPE_CHECKING:
    from testkit.sim.actors.users import Users


# Cities of cells that are given another by hand.
_NOWHERE, _ELSEWHERE = "LIMBO", "AWAY"


class Machines(Protocol):
    """The machines that cells are on, and what lies on their disks."""

    def incarnation(self, cell: str) -> int: ...

    def keep(self, cell: str, certificate: str) -> None:
        """The cell has joined with it."""
        ...

    def wipe(self, cell: str) -> None:
        """Switched off, and on again with nothing of what was there."""
        ...

    def joining_with(self, token: str) -> Client:
        """A client of the hub."""
        ...


async def carry_out_on_cells(users: Users, operation: OnCells) -> None:
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
            await _move_there_and_back(users, cell, for_s)
        case _:
            assert_never(operation)


async def _replace(users: Users, operation: LeaveCell) -> None:
    cell, heir = operation.cell, operation.heir
    await leave(users, cell, forced=operation.forced)
    if operation.forced and not (operation.kept and heir == cell):
        users.log(f"cell {cell} is switched off and wiped")
        users.machines.wipe(cell)
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
    await until_gone(hub, CLUSTER, ref)
    users.log(f"cell {cell} has left")


async def join(users: Users, cell: str, city: str = "") -> None:
    """With a new token whenever the last one did not do."""
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
        asked = join_spec(cell, city or city_of(cell), machines.incarnation(cell))
        joining = CellJoin(metadata=ObjectMeta(), spec=asked)
        answer = await machines.joining_with(text).create(CELL_JOIN, joining)
        machines.keep(cell, answer.status.certificate)
        return True

    await until(is_member)
    users.log(f"cell {cell} has joined")


async def _register(users: Users, cell: str) -> None:
    """The join desk refuses a second cell of a city; somebody changes the label afterwards."""
    await join(users, cell, _NOWHERE)
    await _give(users, cell, city_of(cell))


async def _move_there_and_back(users: Users, cell: str, for_s: float) -> None:
    """In the end the spare leaves, so that nothing of the move is left."""
    city = city_of(cell)
    first = users.serving.get(city, "")
    if not first or first == cell:
        return
    await join(users, cell, _NOWHERE)
    await _give(users, first, _ELSEWHERE)
    await _give(users, cell, city)
    await asyncio.sleep(for_s)
    await _give(users, cell, _NOWHERE)
    await _give(users, first, city)
    await leave(users, cell, forced=False)


async def _give(users: Users, cell: str, city: str) -> None:
    users.log(f"operator gives cell {cell} to {city}")
    label, ref = {"metadata": {"labels": {TOPOLOGY_CITY: city}}}, Ref("", cell)
    await users.retry_until_done(lambda: users.clients[HUB].patch_plain(CLUSTER, ref, label))


# How long somebody tries to deploy before taking no for an answer.
_PATIENCE_S = 20.0
_REF = Ref("", COMPUTE)
_AGAINST = ("Denied", "Suspended", "Removed")


async def carry_out_on_projects(users: Users, operation: OnProjects) -> None:
    project = operation.project
    if isinstance(operation, CreateProject):
        await _create(users, project)
        return
    if project not in users.newcomers:
        return  # it was never created, or is deleted
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
    if project in users.newcomers:
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
    users.newcomers[project] = None

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
    platform = users.client(PLATFORM)
    ref = Ref("", consumer_name(SERVICE_NAME, project))
    if decision == "Removed":
        await users.retry_until_done(lambda: platform.delete(CONSUMER, ref))
    else:
        spec: JsonObject = {"approval": {"decision": decision}}
        if decision in ("Suspended", "Resumed"):
            spec = {"suspended": decision == "Suspended"}
        await users.retry_until_done(lambda: platform.patch(CONSUMER, ref, {"spec": spec}))
    if decision in _AGAINST:
        await until(lambda: _is_torn_down(users, project))


async def _is_torn_down(users: Users, project: str) -> bool:
    """Access is gone, and so is what ran; nobody wants it any more."""
    user = users.client(project_plane(project))
    try:
        phase = (await user.get(ENTITLEMENT, _REF)).status.phase
    except NotFound:
        phase = None
    gone = phase != ACTIVE and not (await user.list(WORKLOAD)).items
    if gone:
        _forget(users, project)
    return gone


async def _renew(users: Users, project: str) -> None:
    user = users.client(project_plane(project))
    await users.retry_until_done(lambda: user.delete(ENTITLEMENT, _REF))
    await until_gone(user, ENTITLEMENT, _REF)
    _forget(users, project)
    await _request(users, project)


async def _deploy(users: Users, operation: DeployIn) -> None:
    key = (operation.project, operation.name)
    if key in users.wanted:
        return
    user = users.client(project_plane(operation.project))
    wanted, workload = users.workload(key, operation.replicas, operation.cities)
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + _PATIENCE_S
    while True:
        try:
            await user.create_plain(WORKLOAD, workload)
        except AlreadyExists:
            users.wanted[key] = wanted
            return
        except Invalid:
            if loop.time() > ends_s:
                users.log(f"{operation.project} has no access")
                return
        except (ApiError, Unreachable):
            pass  # it may have arrived
        else:
            users.wanted[key] = wanted
            return
        await asyncio.sleep(AGAIN_S)


async def _delete(users: Users, project: str) -> None:
    platform, ref = users.client(PLATFORM), Ref("", project)
    await users.retry_until_done(lambda: platform.delete(PROJECT, ref))
    await until_gone(platform, PROJECT, ref)
    _forget(users, project)
    del users.newcomers[project]
    users.log(f"project {project} is gone")


def _forget(users: Users, project: str) -> None:
    for key in [key for key in users.wanted if key[0] == project]:
        del users.wanted[key]
