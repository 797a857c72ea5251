"""Namespaces on planes of the embedded server: deletion of contents, and default objects.

- The contents of a terminating namespace are deleted, then the namespace. Until then its status
  lists the remaining objects and finalizers.
- Quota claims are deleted last. Machines that use the quota may still be stopping, and their claims
  are released after they have stopped.
- Every namespace has the ServiceAccount ``default`` and a ConfigMap with the trusted certificates.
  Clients and test suites wait for both before they use a namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing

from datum_compute.api.core import (
    DEFAULT_SERVICE_ACCOUNT,
    NAMESPACE_DEFAULT_OBJECTS,
    ROOT_CA_CONFIG_MAP,
    ConfigMap,
    Namespace,
    ServiceAccount,
)
from datum_compute.api.inventory import ChangeFilter, Holdings, StoredObject
from datum_compute.api.kinds import CLAIM, CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.planes import ROLES
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import delete_objects
from datum_compute.planning.cluster.namespaces import namespace_conditions
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, for_

RECHECK_S = 10.0
_DELETED_LAST = (CLAIM.storage,)


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    namespace = view.read(NAMESPACE).get(key.ref)
    if namespace is None or not namespace.is_terminating:
        return Done()
    holdings = context.holdings(key.plane)
    remaining = holdings.in_namespace(key.ref.name)
    first = [held for held in remaining if held.kind.storage not in _DELETED_LAST] or remaining
    await delete_objects(view, [held for held in first if not held.terminating])
    remaining = holdings.in_namespace(key.ref.name)
    if remaining:
        await _report_remaining(context, view, namespace, remaining)
        return Requeue(RECHECK_S)
    await view.client.finalize_namespace(namespace)
    return Done()


async def _report_remaining(
    context: Context, view: CachedClient, namespace: Namespace, remaining: list[StoredObject]
) -> None:
    """Write the conditions, unless they are unchanged."""
    before = namespace.status.conditions
    conditions = namespace_conditions(before, remaining, context.now())
    if conditions != before:
        status = {"conditions": [to_json(condition) for condition in conditions]}
        version = namespace.metadata.resource_version
        await view.patch_status(NAMESPACE, ref_of(namespace), status, version=version)


async def external_keys(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    """Yield the terminating namespace of each deleted object, which may have been its last one."""
    holdings = context.holdings(view.plane)
    with closing(holdings.changes(ChangeFilter(gone=True))) as changes:
        async for change in changes:
            if change.gone and change.ref.namespace:
                ref = Ref("", change.ref.namespace)
                namespace = holdings.find(NAMESPACE.storage, ref)
                if namespace is not None and namespace.terminating:
                    yield Key(view.plane, ref)


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


CA_KEY = "ca.crt"
_CHANGES = ChangeFilter(resources=tuple(resource for resource, _ in NAMESPACE_DEFAULT_OBJECTS))


async def reconcile_contents(context: Context, key: Key) -> Outcome:
    view, holdings = context.planes.require(key.plane), context.holdings(key.plane)
    namespace = key.ref.name
    if not _is_active(holdings, namespace):
        return Done()
    if holdings.find(SERVICE_ACCOUNT.storage, Ref(namespace, DEFAULT_SERVICE_ACCOUNT)) is None:
        account = ServiceAccount(
            metadata=ObjectMeta(name=DEFAULT_SERVICE_ACCOUNT, namespace=namespace)
        )
        await view.client.create(SERVICE_ACCOUNT, account)
    if _is_active(holdings, namespace):  # the create call may have taken long
        await _ensure_ca_config_map(context, view, namespace)
    return Done()


def _is_active(holdings: Holdings, name: str) -> bool:
    namespace = holdings.find(NAMESPACE.storage, Ref("", name))
    return namespace is not None and not namespace.terminating


async def _ensure_ca_config_map(context: Context, view: CachedClient, namespace: str) -> None:
    data = {CA_KEY: context.authority}
    ref = Ref(namespace, ROOT_CA_CONFIG_MAP)
    present = context.holdings(view.plane).content(CONFIG_MAP.storage, ref)
    if present is None:
        metadata = ObjectMeta(name=ROOT_CA_CONFIG_MAP, namespace=namespace)
        await view.client.create(CONFIG_MAP, ConfigMap(metadata=metadata, data=data))
    elif present.get("data", {}).get(CA_KEY) != context.authority:
        await view.client.patch(CONFIG_MAP, ref, {"data": data})


async def changed_contents(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    """Yield the namespace of each default object that changed, so that edits are reverted."""
    with closing(context.holdings(view.plane).changes(_CHANGES)) as changes:
        async for change in changes:
            if (change.resource, change.ref.name) in NAMESPACE_DEFAULT_OBJECTS:
                yield Key(view.plane, Ref("", change.ref.namespace))


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
