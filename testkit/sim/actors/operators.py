"""Carries out what ``membership_operations.py`` says.

Nobody is in two minds: whoever lets a cell leave waits until it is gone, and whoever lets one join
asks until it is a member. So which cell serves a city in the end is certain (``People.serving``).

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
    from testkit.sim.actors.users import People


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


async def carry_out_on_cells(people: People, operation: OnCells) -> None:
    cell = operation.cell
    match operation:
        case LeaveCell():
            if people.serving.get(city_of(cell)) == cell:
                await _replace(people, operation)
        case SecondCell(_, _, for_s, stays):
            first = people.serving.get(city_of(cell), "")
            if not first or first == cell:
                return
            await _register(people, cell)
            await asyncio.sleep(for_s)
            await leave(people, first if stays else cell, forced=False)
            people.serving[city_of(cell)] = cell if stays else first
        case MoveCity(_, _, for_s):
            await _move_there_and_back(people, cell, for_s)
        case _:
            assert_never(operation)


async def _replace(people: People, operation: LeaveCell) -> None:
    cell, heir = operation.cell, operation.heir
    await leave(people, cell, forced=operation.forced)
    if operation.forced and not (operation.kept and heir == cell):
        people.say(f"cell {cell} is switched off and wiped")
        people.machines.wipe(cell)
    await asyncio.sleep(operation.away_s)
    await join(people, heir)
    people.serving[city_of(cell)] = heir


async def leave(people: People, cell: str, *, forced: bool) -> None:
    people.say(f"cell {cell} leaves{' by force' if forced else ''}")
    hub, ref = people.clients[HUB], Ref("", cell)
    if forced:
        mark = {"metadata": {"annotations": {FORCED_LEAVE: "true"}}}
        await people.insist(lambda: hub.patch_plain(CLUSTER, ref, mark))
    await people.insist(lambda: hub.delete(CLUSTER, ref))
    await until_gone(hub, CLUSTER, ref)
    people.say(f"cell {cell} has left")


async def join(people: People, cell: str, city: str = "") -> None:
    """With a new token whenever the last one did not do."""
    people.say(f"cell {cell} joins")
    machines, hub = people.machines, people.clients[HUB]

    async def is_member() -> bool:
        people.tokens += 1
        name = f"join-{people.tokens}"
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
    people.say(f"cell {cell} has joined")


async def _register(people: People, cell: str) -> None:
    """The join desk refuses a second cell of a city; somebody changes the label afterwards."""
    await join(people, cell, _NOWHERE)
    await _give(people, cell, city_of(cell))


async def _move_there_and_back(people: People, cell: str, for_s: float) -> None:
    """In the end the spare leaves, so that nothing of the move is left."""
    city = city_of(cell)
    first = people.serving.get(city, "")
    if not first or first == cell:
        return
    await join(people, cell, _NOWHERE)
    await _give(people, first, _ELSEWHERE)
    await _give(people, cell, city)
    await asyncio.sleep(for_s)
    await _give(people, cell, _NOWHERE)
    await _give(people, first, city)
    await leave(people, cell, forced=False)


async def _give(people: People, cell: str, city: str) -> None:
    people.say(f"operator gives cell {cell} to {city}")
    label, ref = {"metadata": {"labels": {TOPOLOGY_CITY: city}}}, Ref("", cell)
    await people.insist(lambda: people.clients[HUB].patch_plain(CLUSTER, ref, label))


# How long somebody tries to deploy before taking no for an answer.
_PATIENCE_S = 20.0
_REF = Ref("", COMPUTE)
_AGAINST = ("Denied", "Suspended", "Removed")


async def carry_out_on_projects(people: People, operation: OnProjects) -> None:
    project = operation.project
    if isinstance(operation, CreateProject):
        await _create(people, project)
        return
    if project not in people.newcomers:
        return  # it was never created, or is deleted
    people.say(f"{operation}")
    match operation:
        case GateCompute(_, _, gated):
            mode = "GatedByProvider" if gated else "SelfService"
            patch = {"spec": {"enablementPolicy": {"mode": mode}}}
            await people.insist(lambda: people.client(PLATFORM).patch(SERVICE, _REF, patch))
        case RequestAccess():
            await _request(people, project)
        case Decide(_, _, decision):
            await _decide(people, project, decision)
        case RenewAccess():
            await _renew(people, project)
        case DeployIn():
            await _deploy(people, operation)
        case DeleteProject():
            await _delete(people, project)
        case _:
            assert_never(operation)


async def _create(people: People, project: str) -> None:
    if project in people.newcomers:
        return
    people.say(f"operator creates project {project}")
    platform, ref = people.client(PLATFORM), Ref("", project)
    body = {
        "apiVersion": PROJECT.api_version,
        "kind": PROJECT.kind,
        "metadata": {"name": project},
        "spec": {"ownerRef": {"kind": "Organization", "name": "default"}},
    }
    await people.insist(lambda: platform.create_plain(PROJECT, body))
    people.newcomers[project] = None

    async def is_ready() -> bool:
        return is_true((await platform.get(PROJECT, ref)).status.conditions, "Ready")

    await until(is_ready)


async def _request(people: People, project: str) -> None:
    body = {
        "apiVersion": ENTITLEMENT.api_version,
        "kind": ENTITLEMENT.kind,
        "metadata": {"name": COMPUTE},
        "spec": {"serviceRef": {"name": COMPUTE}},
    }
    user = people.client(project_plane(project))
    await people.insist(lambda: user.create_plain(ENTITLEMENT, body))


async def _decide(people: People, project: str, decision: str) -> None:
    platform = people.client(PLATFORM)
    ref = Ref("", consumer_name(SERVICE_NAME, project))
    if decision == "Removed":
        await people.insist(lambda: platform.delete(CONSUMER, ref))
    else:
        spec: JsonObject = {"approval": {"decision": decision}}
        if decision in ("Suspended", "Resumed"):
            spec = {"suspended": decision == "Suspended"}
        await people.insist(lambda: platform.patch(CONSUMER, ref, {"spec": spec}))
    if decision in _AGAINST:
        await until(lambda: _is_torn_down(people, project))


async def _is_torn_down(people: People, project: str) -> bool:
    """Access is gone, and so is what ran; nobody wants it any more."""
    user = people.client(project_plane(project))
    try:
        phase = (await user.get(ENTITLEMENT, _REF)).status.phase
    except NotFound:
        phase = None
    gone = phase != ACTIVE and not (await user.list(WORKLOAD)).items
    if gone:
        _forget(people, project)
    return gone


async def _renew(people: People, project: str) -> None:
    user = people.client(project_plane(project))
    await people.insist(lambda: user.delete(ENTITLEMENT, _REF))
    await until_gone(user, ENTITLEMENT, _REF)
    _forget(people, project)
    await _request(people, project)


async def _deploy(people: People, operation: DeployIn) -> None:
    key = (operation.project, operation.name)
    if key in people.wanted:
        return
    user = people.client(project_plane(operation.project))
    wanted, workload = people.workload(key, operation.replicas, operation.cities)
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + _PATIENCE_S
    while True:
        try:
            await user.create_plain(WORKLOAD, workload)
        except AlreadyExists:
            people.wanted[key] = wanted
            return
        except Invalid:
            if loop.time() > ends_s:
                people.say(f"{operation.project} has no access")
                return
        except (ApiError, Unreachable):
            pass  # it may have arrived
        else:
            people.wanted[key] = wanted
            return
        await asyncio.sleep(AGAIN_S)


async def _delete(people: People, project: str) -> None:
    platform, ref = people.client(PLATFORM), Ref("", project)
    await people.insist(lambda: platform.delete(PROJECT, ref))
    await until_gone(platform, PROJECT, ref)
    _forget(people, project)
    del people.newcomers[project]
    people.say(f"project {project} is gone")


def _forget(people: People, project: str) -> None:
    for key in [key for key in people.wanted if key[0] == project]:
        del people.wanted[key]
