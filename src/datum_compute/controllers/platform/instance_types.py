"""Controllers of InstanceTypes on the platform plane: status, and copies on projects and cells.

Copies have no status of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.compute.instance_type import InstanceType
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import PLATFORM, PlaneName
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import apply_plan, for_each_plane
from datum_compute.planning.plan import Plan
from datum_compute.planning.platform.instance_types import (
    plan_copy,
    plan_instance_type,
    plan_removal,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, for_, watches
from datum_compute.runtime.informer import ObjectChange

BY_REPLACEMENT = "replacement"


async def reconcile(context: Context, key: Key) -> Outcome:
    types = context.planes.require(key.plane).read(INSTANCE_TYPE)
    found = types.get(key.ref)
    if found is None:
        return Done()
    replacement = types.get(Ref("", found.spec.lifecycle.replacement_instance_type))
    plan = plan_instance_type(key.plane, found, replacement, context.now())
    return await apply_plan(context.planes, plan)


def map_replacement(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map an instance type to the types that name it as their replacement."""
    name = change.latest.metadata.name
    for found in client.read_unsynced(INSTANCE_TYPE).list_by_index(BY_REPLACEMENT, name):
        yield Key(client.plane, ref_of(found))


def _replacements(instance_type: InstanceType) -> tuple[str, ...]:
    name = instance_type.spec.lifecycle.replacement_instance_type
    return (name,) if name else ()


INSTANCE_TYPE_CONTROLLER = Controller(
    name="instancetype",
    role="platform",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE_TYPE),
        watches(INSTANCE_TYPE, map_replacement),
    ),
    indexes=(Index(INSTANCE_TYPE, BY_REPLACEMENT, _replacements),),
)


# --- copies

COPIED_TO = ("project", "cell")
# A new plane has the built-in types immediately, and receives the others within this time.
RESYNC_S = 300.0


async def reconcile_copies(context: Context, key: Key) -> Outcome:
    original = context.planes.require(key.plane).read(INSTANCE_TYPE).get(key.ref)
    if original is not None and original.is_terminating:
        return Done()

    async def mirror(plane: PlaneName) -> None:
        copy = context.planes.require(plane).read(INSTANCE_TYPE).get(key.ref)
        actions = plan_copy(plane, original, copy) if original else plan_removal(plane, copy)
        await apply_plan(context.planes, Plan(tuple(actions)))

    await for_each_plane(context.planes, COPIED_TO, mirror)
    return Done() if original is None else Requeue(RESYNC_S)


def map_copy_to_original(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(PLATFORM, ref_of(change.latest))


COPY_CONTROLLER = Controller(
    name="catalogue",
    role="platform",
    reconcile=reconcile_copies,
    edges=(
        for_(INSTANCE_TYPE),
        *(watches(INSTANCE_TYPE, map_copy_to_original, on=role) for role in COPIED_TO),
    ),
    modes=(FEDERATED,),
)
