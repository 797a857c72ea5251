"""Instance -> its Ready condition."""

from __future__ import annotations

from datum_compute.api.kinds import INSTANCE
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.readiness import plan_readiness
from datum_compute.runtime.controller import Controller, for_
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome


async def reconcile(context: Context, key: Key) -> Outcome:
    instance = context.planes.need(key.plane).read(INSTANCE).get(key.ref)
    if instance is None:
        return Done()
    plan = plan_readiness(key.plane, instance, context.now())
    return await carry_out(context.planes, plan)


CONTROLLER = Controller(name="instance", role="cell", reconcile=reconcile, edges=(for_(INSTANCE),))
