"""Definitions (CustomResourceDefinitions) on planes of the embedded server.

The objects of a terminating definition are deleted, then the definition. When a definition is gone,
the others are reconciled, because one of them may have waited for its names. The name of a
definition is the resource that it defines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing

from datum_compute.api.apiextensions import CLEANUP_FINALIZER
from datum_compute.api.errors import NotFound
from datum_compute.api.inventory import ChangeFilter, StoredObject
from datum_compute.api.kinds import DEFINITION
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import ROLES
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import delete_objects
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue

RECHECK_S = 10.0


async def reconcile(context: Context, key: Key) -> Outcome:
    view, holdings = context.planes.require(key.plane), context.holdings(key.plane)
    definition = holdings.find(DEFINITION.storage, key.ref)
    if definition is None:
        return Done()
    if not definition.terminating:
        # An empty patch makes the server compute the status again.
        await view.client.patch_status(DEFINITION, key.ref, {}, version=definition.version)
        return Done()
    if CLEANUP_FINALIZER not in definition.finalizers:
        return Done()
    objects = holdings.of_resource(key.ref.name)
    await delete_objects(view, [held for held in objects if not held.terminating])
    if holdings.of_resource(key.ref.name):
        return Requeue(RECHECK_S)
    await _release(view, definition)
    return Done()


async def _release(view: CachedClient, definition: StoredObject) -> None:
    kept = [f for f in definition.finalizers if f != CLEANUP_FINALIZER]
    metadata = {"finalizers": kept or None, "resourceVersion": definition.version}
    try:
        await view.client.patch(DEFINITION, definition.ref, {"metadata": metadata})
    except NotFound:
        return


async def external_keys(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    holdings = context.holdings(view.plane)
    with closing(
        holdings.changes(ChangeFilter(resources=(DEFINITION.storage,), gone=True))
    ) as changes:
        async for change in changes:
            if change.resource == DEFINITION.storage:
                # A deleted definition releases names for which others may wait.
                others = holdings.of_resource(DEFINITION.storage) if change.gone else ()
                for ref in (change.ref, *(held.ref for held in others)):
                    yield Key(view.plane, ref)
            elif change.gone:
                definition = holdings.find(DEFINITION.storage, Ref("", change.resource))
                if definition is not None and definition.terminating:
                    yield Key(view.plane, definition.ref)


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
