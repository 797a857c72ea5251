"""Carries out what ``membership_operations.py`` says.

Nobody is in two minds: whoever lets a cell leave waits until it is gone, and whoever lets one join
asks until it is a member. So which cell serves a city in the end is certain (``People.serving``).
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Protocol, assert_never

from datum_compute.api.cellidentity import token_text
from datum_compute.api.celljoin import CELL_JOIN, CellJoin
from datum_compute.api.kinds import CLUSTER, JOIN_TOKEN
from datum_compute.api.labels import FORCED_LEAVE, TOPOLOGY_CITY
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.plane import HUB
from datum_compute.client.client import Client
from testkit.sim.actors.patience import until, until_gone
from testkit.sim.joined import join_spec
from testkit.sim.scenario.layout import city_of
from testkit.sim.scenario.membership_operations import LeaveCell, MoveCity, OnCells, SecondCell

if TYPE_CHECKING:
    from testkit.sim.actors.people import People

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
