"""Carries out what ``composed_operations.py`` says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import KINDS, NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.plane import PlaneName
from datum_compute.testing.composed_operations import (
    ComposedOperation,
    DeleteAll,
    DeleteNamespaceAtOnce,
    DropField,
)

if TYPE_CHECKING:
    from datum_compute.testing.people import People

PATIENCE_S = 20.0
_BY_RESOURCE = {kind.resource: kind for kind in KINDS}
_FEDERATED = "ns-"


async def carry_out_composed(people: People, operation: ComposedOperation) -> None:
    match operation:
        case DeleteNamespaceAtOnce(_, plane):
            await _delete_the_next_namespace(people, plane)
        case DeleteAll(_, plane, resource, prefix):
            await _delete_all(people, plane, resource, prefix)
        case DropField():
            await _drop_field(people, operation)
        case _:
            assert_never(operation)


async def _delete_the_next_namespace(people: People, plane: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            name = await _next_namespace(people, plane)
    except TimeoutError:
        return
    people.tamper(plane, Ref("", name))
    people.say(f"operator deletes namespace {name} on {plane} as soon as it is there")
    client = people.clients[PlaneName(plane)]
    await people.insist(lambda: client.delete(NAMESPACE, Ref("", name)))


async def _next_namespace(people: People, plane: str) -> str:
    """Asked for again and again, because a watch that begins anew could miss it."""
    known: set[str] | None = None
    while True:
        try:
            listed = (await people.clients[PlaneName(plane)].list_plain(NAMESPACE)).items
        except (ApiError, Unreachable):
            await asyncio.sleep(0.1)
            continue
        names = sorted(item["metadata"]["name"] for item in listed)
        new = [n for n in names if known is not None and n not in known]
        for name in new:
            if name.startswith(_FEDERATED):
                return name
        known = set(names)
        await asyncio.sleep(0.002)


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


def _ref(obj: JsonObject) -> Ref:
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
