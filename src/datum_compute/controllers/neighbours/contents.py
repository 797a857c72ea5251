"""What every namespace holds: the ServiceAccount ``default`` and the certificates to trust.

Clients and test suites wait for both before they use a namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing

from datum_compute.api.configmap import ConfigMap
from datum_compute.api.holdings import Holdings, Wanted
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.plane import ROLES
from datum_compute.api.serviceaccount import ServiceAccount
from datum_compute.controllers.context import Context
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_

ACCOUNT, AUTHORITY, AUTHORITY_KEY = "default", "kube-root-ca.crt", "ca.crt"
_EXPECTED = ((SERVICE_ACCOUNT.storage, ACCOUNT), (CONFIG_MAP.storage, AUTHORITY))
_WANTED = Wanted(resources=tuple(resource for resource, _ in _EXPECTED))


async def reconcile(context: Context, key: Key) -> Outcome:
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


async def outside(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    """Both come back when somebody deletes or changes them."""
    with closing(context.holdings(view.plane).changes(_WANTED)) as changes:
        async for change in changes:
            if (change.resource, change.ref.name) in _EXPECTED:
                yield Key(view.plane, Ref("", change.ref.namespace))


CONTROLLERS = tuple(
    Controller(
        name=f"contents-{role}",
        role=role,
        reconcile=reconcile,
        edges=(for_(NAMESPACE),),
        external_sources=(outside,),
        workers=1,
    )
    for role in ROLES
)
