"""What every namespace holds: the ServiceAccount ``default`` and the certificates to trust.

Clients and test suites wait for both before they use a namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing

from datum_compute.api.configmap import ConfigMap
from datum_compute.api.errors import Forbidden
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.plane import ROLES
from datum_compute.api.serviceaccount import ServiceAccount
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View

ACCOUNT, AUTHORITY, AUTHORITY_KEY = "default", "kube-root-ca.crt", "ca.crt"
_EXPECTED = ((SERVICE_ACCOUNT.storage, ACCOUNT), (CONFIG_MAP.storage, AUTHORITY))


async def reconcile(context: Context, key: Key) -> Outcome:
    view, holdings = context.planes.need(key.plane), context.holdings(key.plane)
    namespace = holdings.find(NAMESPACE.storage, key.ref)
    if namespace is None or namespace.terminating:
        return Done()
    try:
        await _fill(context, view, key.ref.name)
    except Forbidden:
        # Nobody may put anything into a namespace that has begun to go meanwhile.
        latest = holdings.find(NAMESPACE.storage, key.ref)
        if latest is not None and not latest.terminating:
            raise
    return Done()


async def _fill(context: Context, view: View, inside: str) -> None:
    holdings = context.holdings(view.plane)
    if holdings.find(SERVICE_ACCOUNT.storage, Ref(inside, ACCOUNT)) is None:
        account = ServiceAccount(metadata=ObjectMeta(name=ACCOUNT, namespace=inside))
        await view.client.create(SERVICE_ACCOUNT, account)
    await _ensure_authority(context, view, inside)


async def _ensure_authority(context: Context, view: View, namespace: str) -> None:
    data = {AUTHORITY_KEY: context.authority}
    ref = Ref(namespace, AUTHORITY)
    if context.holdings(view.plane).find(CONFIG_MAP.storage, ref) is None:
        metadata = ObjectMeta(name=AUTHORITY, namespace=namespace)
        await view.client.create(CONFIG_MAP, ConfigMap(metadata=metadata, data=data))
    else:
        await view.client.patch(CONFIG_MAP, ref, {"data": data})  # writes only a difference


async def outside(context: Context, view: View) -> AsyncIterator[Key]:
    """Both come back when somebody deletes or changes them."""
    with closing(context.holdings(view.plane).changes()) as changes:
        async for change in changes:
            if (change.resource, change.ref.name) in _EXPECTED:
                yield Key(view.plane, Ref("", change.ref.namespace))


CONTROLLERS = tuple(
    Controller(
        name=f"contents-{role}",
        role=role,
        kind=NAMESPACE,
        reconcile=reconcile,
        outside=outside,
        workers=1,
    )
    for role in ROLES
)
