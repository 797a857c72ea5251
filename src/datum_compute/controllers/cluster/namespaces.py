"""A terminating namespace is emptied, then removed. For planes without a Kubernetes beside them.

While anything holds on, the status of the namespace says what it is and which finalizers keep it.
Quota claims go last: they stand for machines that are still being stopped while deployments are
there, and whoever stops a machine releases its claim.

What every namespace holds: the ServiceAccount ``default`` and the certificates to trust.

Clients and test suites wait for both before they use a namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing

from datum_compute.api.codec import plain
from datum_compute.api.configmap import ConfigMap
from datum_compute.api.holdings import Held, Holdings, Wanted
from datum_compute.api.kinds import CLAIM, CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT
from datum_compute.api.meta import ObjectMeta, Ref, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import ROLES
from datum_compute.api.serviceaccount import ServiceAccount
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


NAMESPACE_CONTROLLERS = tuple(
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


ACCOUNT, AUTHORITY, AUTHORITY_KEY = "default", "kube-root-ca.crt", "ca.crt"
_EXPECTED = ((SERVICE_ACCOUNT.storage, ACCOUNT), (CONFIG_MAP.storage, AUTHORITY))
_WANTED = Wanted(resources=tuple(resource for resource, _ in _EXPECTED))


async def reconcile_contents(context: Context, key: Key) -> Outcome:
    view, holdings = context.planes.require(key.plane), context.holdings(key.plane)
    inside = key.ref.name
    if not _is_open(holdings, inside):
        return Done()
    if holdings.find(SERVICE_ACCOUNT.storage, Ref(inside, ACCOUNT)) is None:
        account = ServiceAccount(metadata=ObjectMeta(name=ACCOUNT, namespace=inside))
        await view.client.create(SERVICE_ACCOUNT, account)
    if _is_open(holdings, inside):  # it may have begun to end meanwhile
        await _ensure_authority(context, view, inside)
    return Done()


def _is_open(holdings: Holdings, name: str) -> bool:
    namespace = holdings.find(NAMESPACE.storage, Ref("", name))
    return namespace is not None and not namespace.terminating


async def _ensure_authority(context: Context, view: CachedClient, namespace: str) -> None:
    data = {AUTHORITY_KEY: context.authority}
    ref = Ref(namespace, AUTHORITY)
    present = context.holdings(view.plane).content(CONFIG_MAP.storage, ref)
    if present is None:
        metadata = ObjectMeta(name=AUTHORITY, namespace=namespace)
        await view.client.create(CONFIG_MAP, ConfigMap(metadata=metadata, data=data))
    elif present.get("data", {}).get(AUTHORITY_KEY) != context.authority:
        await view.client.patch(CONFIG_MAP, ref, {"data": data})


async def content_sources(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    """Both come back when somebody deletes or changes them."""
    with closing(context.holdings(view.plane).changes(_WANTED)) as changes:
        async for change in changes:
            if (change.resource, change.ref.name) in _EXPECTED:
                yield Key(view.plane, Ref("", change.ref.namespace))


CONTENT_CONTROLLERS = tuple(
    Controller(
        name=f"contents-{role}",
        role=role,
        reconcile=reconcile_contents,
        edges=(for_(NAMESPACE),),
        external_sources=(content_sources,),
        workers=1,
    )
    for role in ROLES
)
