"""Namespaces on planes of the embedded server: deletion of contents, and default objects.

The rules are in planning/cluster/namespaces.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing

from datum_compute.api.core import (
    DEFAULT_SERVICE_ACCOUNT,
    NAMESPACE_DEFAULT_OBJECTS,
    ROOT_CA_CONFIG_MAP,
)
from datum_compute.api.inventory import ChangeFilter, Holdings
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import ROLES
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan, delete_objects
from datum_compute.planning.cluster.namespaces import (
    CA_KEY,
    plan_default_objects,
    plan_namespace_removal,
    select_contents_to_delete,
)
from datum_compute.planning.plan import Plan
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_


async def reconcile(context: Context, key: Key) -> Outcome:
    client, holdings = context.planes.require(key.plane), context.holdings(key.plane)
    namespace = client.read(NAMESPACE).get(key.ref)
    if namespace is None or not namespace.is_terminating:
        return Done()
    contents = holdings.in_namespace(key.ref.name)
    await delete_objects(client, select_contents_to_delete(contents))
    remaining = holdings.in_namespace(key.ref.name)
    plan = plan_namespace_removal(key.plane, namespace, remaining, context.now())
    if isinstance(plan, Plan):
        return await apply_plan(context.planes, plan)
    await client.uncached.finalize_namespace(namespace)
    return Done()


async def external_keys(context: Context, client: CachedClient) -> AsyncIterator[Key]:
    """Yield the terminating namespace of each deleted object, which may have been its last one."""
    holdings = context.holdings(client.plane)
    with closing(holdings.changes(ChangeFilter(gone=True))) as changes:
        async for change in changes:
            if change.gone and change.ref.namespace:
                ref = Ref("", change.ref.namespace)
                namespace = holdings.find(NAMESPACE.storage, ref)
                if namespace is not None and namespace.terminating:
                    yield Key(client.plane, ref)


NAMESPACE_CONTROLLERS = tuple(
    Controller(
        name=f"namespace-{role}",
        role=role,
        reconcile=reconcile,
        edges=(for_(NAMESPACE),),
        external_sources=(external_keys,),
        workers=1,
    )
    for role in ROLES
)


_CHANGES = ChangeFilter(resources=tuple(resource for resource, _ in NAMESPACE_DEFAULT_OBJECTS))


async def reconcile_contents(context: Context, key: Key) -> Outcome:
    holdings = context.holdings(key.plane)
    namespace = holdings.find(NAMESPACE.storage, key.ref)
    if namespace is None or namespace.terminating:
        return Done()
    name = key.ref.name
    plan = plan_default_objects(
        key.plane,
        name,
        has_account=holdings.find(SERVICE_ACCOUNT.storage, Ref(name, DEFAULT_SERVICE_ACCOUNT))
        is not None,
        ca_certificates=_read_ca_certificates(holdings, name),
        trusted_certificates=context.authority,
    )
    return await apply_plan(context.planes, plan)


def _read_ca_certificates(holdings: Holdings, namespace: str) -> str | None:
    config_map = holdings.content(CONFIG_MAP.storage, Ref(namespace, ROOT_CA_CONFIG_MAP))
    return None if config_map is None else str(config_map.get("data", {}).get(CA_KEY, ""))


async def changed_contents(context: Context, client: CachedClient) -> AsyncIterator[Key]:
    """Yield the namespace of each default object that changed, so that edits are reverted."""
    with closing(context.holdings(client.plane).changes(_CHANGES)) as changes:
        async for change in changes:
            if (change.resource, change.ref.name) in NAMESPACE_DEFAULT_OBJECTS:
                yield Key(client.plane, Ref("", change.ref.namespace))


CONTENT_CONTROLLERS = tuple(
    Controller(
        name=f"contents-{role}",
        role=role,
        reconcile=reconcile_contents,
        edges=(for_(NAMESPACE),),
        external_sources=(changed_contents,),
        workers=1,
    )
    for role in ROLES
)
