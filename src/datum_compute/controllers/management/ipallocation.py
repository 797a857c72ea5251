"""IPAllocation -> gone, if whoever holds it is.

Holders give back what they hold. This is for those that could not: somebody took their finalizer
away, or a crash came between. That a holder is gone is asked of its plane, not read from a cache.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.errors import NotFound
from datum_compute.api.ipallocation import IPAllocation
from datum_compute.api.kinds import IP_ALLOCATION, NETWORK, SUBNET
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.prefixes import plan_giving_back
from datum_compute.runtime.controller import Controller, for_
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Later, Outcome
from datum_compute.runtime.view import View

# A record that is right is looked at again so rarely that it costs nothing.
RECHECK_S = 600.0
_KINDS: dict[str, KindInfo[Any]] = {kind.kind: kind for kind in (NETWORK, SUBNET)}


async def reconcile(context: Context, key: Key) -> Outcome:
    found = context.planes.need(key.plane).read(IP_ALLOCATION).get(key.ref)
    if found is None:
        return Done()
    project = context.planes.project(found.spec.project)
    kind = _KINDS.get(found.spec.holder.kind)
    if project is None or kind is None or await _is_held(project, kind, found):
        return Later(RECHECK_S)
    return await carry_out(context.planes, Plan(tuple(plan_giving_back([found]))))


async def _is_held(project: View, kind: KindInfo[Any], found: IPAllocation) -> bool:
    named = found.spec.holder
    try:
        holder = await project.client.get(kind, Ref(named.namespace, named.name))
    except NotFound:
        return False
    return bool(holder.metadata.uid == found.spec.holder_uid)


CONTROLLER = Controller(
    name="ip-allocation",
    role="platform",
    reconcile=reconcile,
    edges=(for_(IP_ALLOCATION),),
)
