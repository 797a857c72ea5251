"""Quarantine of an Instance on the hub, and its release.

The rules are in planning/federation/instances.py. Two controllers use this module: one checks the
identity labels of each copy on the hub, the other looks up the deployment of a copy in its project.
"""

from __future__ import annotations

from datum_compute.api.compute.instance import Instance
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.planes import HUB
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.federation.instances import (
    Problem,
    plan_quarantine,
    plan_release_from_quarantine,
)
from datum_compute.runtime.controller import Key, Outcome
from datum_compute.runtime.event_recorder import EventRequest, reference_to

EVENT = "Quarantined"


async def quarantine(context: Context, instance: Instance, problem: Problem) -> Outcome:
    """Mark the copy and record an event, once the problem has lasted for the grace period."""
    key, now_s = Key(HUB, ref_of(instance)), context.elapsed_s()
    waited_s = now_s - context.state.unresolved_since_s.setdefault(key, now_s)
    plan = plan_quarantine(instance, problem, waited_s, context.now())
    outcome = await carry_out(context.planes, plan)
    if plan.actions:
        reason, message = problem
        note = f"{reason}: {message}. It stays, and is checked again when its labels change"
        about = reference_to(INSTANCE, instance)
        context.planes.record_event(EventRequest(HUB, about, "Warning", EVENT, note))
    return outcome


async def release_from_quarantine(context: Context, instance: Instance) -> Outcome:
    """Remove the marks, if there are any. A later problem starts a new grace period."""
    context.state.unresolved_since_s.pop(Key(HUB, ref_of(instance)), None)
    return await carry_out(context.planes, plan_release_from_quarantine(instance))
