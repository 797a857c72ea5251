"""Carries out what ``composed_operations.py`` says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

from datum_compute.api.cellidentity import DRAINED
from datum_compute.api.cluster import NO_SCHEDULE
from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import CLUSTER, KINDS, PROJECT
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, PLATFORM, PlaneName
from testkit.sim.actors.patience import until_gone
from testkit.sim.scenario.composed_operations import (
    ComposedOperation,
    DeleteAll,
    DrainCell,
    DropField,
    RevokeProject,
)

if TYPE_CHECKING:
    from testkit.sim.actors.people import People

_BY_RESOURCE = {kind.resource: kind for kind in KINDS}


async def carry_out_composed(people: People, operation: ComposedOperation) -> None:
    match operation:
        case DeleteAll(_, plane, resource, prefix):
            await _delete_all(people, plane, resource, prefix)
        case DropField():
            await _drop_field(people, operation)
        case RevokeProject(_, project):
            await _revoke(people, project)
        case DrainCell(_, cell, for_s):
            await _drain(people, cell, for_s)
        case _:
            assert_never(operation)


async def _delete_all(people: People, plane: str, resource: str, prefix: str) -> None:
    kind, client = _BY_RESOURCE[resource], people.clients[PlaneName(plane)]
    try:
        listed = (await client.list_plain(kind)).items
    except (ApiError, Unreachable):
        return
    found = [ref for ref in map(_ref, listed) if ref.name.startswith(prefix)]
    people.say(f"operator deletes {len(found)} {kind.plural} {prefix}* on {plane}")
    for ref in sorted(found):
        people.tamper(plane, ref)

    async def delete(ref: Ref) -> None:
        await people.insist(lambda: client.delete(kind, ref))

    async with asyncio.TaskGroup() as group:
        for ref in sorted(found):
            group.create_task(delete(ref))


async def _drop_field(people: People, operation: DropField) -> None:
    kind = _BY_RESOURCE[operation.resource]
    found = await people.picked(operation.plane, kind, operation.pick, "")
    fields = sorted((found or {}).get("spec") or {})
    if found is None or not fields:
        return
    ref, name = _ref(found), fields[operation.pick % len(fields)]
    people.tamper(operation.plane, ref)
    people.say(f"an old writer drops spec.{name} of {kind.kind} {ref} on {operation.plane}")
    client = people.clients[PlaneName(operation.plane)]
    await people.insist(lambda: client.patch_plain(kind, ref, {"spec": {name: None}}))


async def _revoke(people: People, project: str) -> None:
    people.say(f"operator revokes project {project}")
    people.revoked[project] = None
    for key in [key for key in people.wanted if key[0] == project]:
        del people.wanted[key]
    platform, ref = people.clients[PLATFORM], Ref("", project)
    await people.insist(lambda: platform.delete(PROJECT, ref))
    await until_gone(platform, PROJECT, ref)
    people.say(f"project {project} is gone")


async def _drain(people: People, cell: str, for_s: float) -> None:
    """Twice the same of a cell: the later end counts, as it would for people."""
    client, ref = people.clients[HUB], Ref("", cell)
    for taints, then in (([{"key": DRAINED, "effect": NO_SCHEDULE}], "drains"), ([], "opens")):
        people.say(f"operator {then} cell {cell}")
        patch: JsonObject = {"spec": {"taints": taints}}
        await people.insist(lambda patch=patch: client.patch_plain(CLUSTER, ref, patch))  # type: ignore[misc]
        if taints:
            await asyncio.sleep(for_s)


def _ref(obj: JsonObject) -> Ref:
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
