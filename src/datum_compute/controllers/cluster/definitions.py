"""Definitions (CustomResourceDefinitions) on planes of the embedded server.

The rules are in planning/cluster/definitions.py. When a definition is gone, the others are
reconciled, because one of them may have waited for its names. The name of a definition is the
resource that it defines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing

from datum_compute.api.inventory import ChangeFilter
from datum_compute.api.kinds import DEFINITION
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import ROLES
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan, delete_objects
from datum_compute.planning.cluster.definitions import (
    is_cleaning_up,
    plan_definition,
    select_objects_to_delete,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome


async def reconcile(context: Context, key: Key) -> Outcome:
    client, holdings = context.planes.require(key.plane), context.holdings(key.plane)
    definition = holdings.find(DEFINITION.storage, key.ref)
    if definition is None:
        return Done()
    if not is_cleaning_up(definition):
        return await apply_plan(context.planes, plan_definition(key.plane, definition, ()))
    objects = holdings.of_resource(key.ref.name)
    await delete_objects(client, select_objects_to_delete(objects))
    remaining = holdings.of_resource(key.ref.name)
    return await apply_plan(context.planes, plan_definition(key.plane, definition, remaining))


async def external_keys(context: Context, client: CachedClient) -> AsyncIterator[Key]:
    holdings = context.holdings(client.plane)
    with closing(
        holdings.changes(ChangeFilter(resources=(DEFINITION.storage,), gone=True))
    ) as changes:
        async for change in changes:
            if change.resource == DEFINITION.storage:
                # A deleted definition releases names for which others may wait.
                others = holdings.of_resource(DEFINITION.storage) if change.gone else ()
                for ref in (change.ref, *(held.ref for held in others)):
                    yield Key(client.plane, ref)
            elif change.gone:
                definition = holdings.find(DEFINITION.storage, Ref("", change.resource))
                if definition is not None and definition.terminating:
                    yield Key(client.plane, definition.ref)


CONTROLLERS = tuple(
    Controller(
        name=f"definition-{role}",
        role=role,
        reconcile=reconcile,
        external_sources=(external_keys,),
        workers=1,
    )
    for role in ROLES
)
