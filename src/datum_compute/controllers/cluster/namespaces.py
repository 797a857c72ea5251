"""A terminating namespace is emptied, then removed. For planes without a Kubernetes beside them.

While anything holds on, the status of the namespace says what it is and which finalizers keep it.
Quota claims go last: they stand for machines that are still being stopped while deployments are
there, and whoever stops a machine releases its claim.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing

from datum_compute.api.codec import plain
from datum_compute.api.holdings import Held, Wanted
from datum_compute.api.kinds import CLAIM, NAMESPACE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import ROLES
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import delete_objects
from datum_compute.planning.cluster.namespaces import conditions_of
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, for_

RECHECK_S = 10.0
_LAST = (CLAIM.storage,)


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    namespace = view.read(NAMESPACE).get(key.ref)
    if namespace is None or not namespace.is_terminating:
        return Done()
    holdings = context.holdings(key.plane)
    remaining = holdings.in_namespace(key.ref.name)
    first = [held for held in remaining if held.kind.storage not in _LAST] or remaining
    await delete_objects(view, [held for held in first if not held.terminating])
    remaining = holdings.in_namespace(key.ref.name)
    if remaining:
        await _tell(context, view, namespace, remaining)
        return Requeue(RECHECK_S)
    await view.client.finalize_namespace(namespace)
    return Done()


async def _tell(
    context: Context, view: CachedClient, namespace: Namespace, remaining: list[Held]
) -> None:
    """Say what remains; a status that says so already is not written again."""
    before = namespace.status.conditions
    conditions = conditions_of(before, remaining, context.now())
    if conditions != before:
        status = {"conditions": [plain(condition) for condition in conditions]}
        version = namespace.metadata.resource_version
        await view.patch_status(NAMESPACE, ref_of(namespace), status, version=version)


async def outside(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    """What goes may have been the last thing that a terminating namespace held."""
    holdings = context.holdings(view.plane)
    with closing(holdings.changes(Wanted(gone=True))) as changes:
        async for change in changes:
            if change.gone and change.ref.namespace:
                ref = Ref("", change.ref.namespace)
                namespace = holdings.find(NAMESPACE.storage, ref)
                if namespace is not None and namespace.terminating:
                    yield Key(view.plane, ref)


CONTROLLERS = tuple(
    Controller(
        name=f"namespace-{role}",
        role=role,
        reconcile=reconcile,
        edges=(for_(NAMESPACE),),
        external_sources=(outside,),
        workers=1,
    )
    for role in ROLES
)
