"""Hub Instance that does not say whose it is -> set apart, and told once; see planning/quarantine.

The projector uses the second half for those that lead to a deployment their project does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from datum_compute.api.instance import Instance
from datum_compute.api.kinds import INSTANCE, NAMESPACE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.plane import HUB, PlaneName
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.quarantine import (
    NO_DEPLOYMENT,
    REASONS,
    Problem,
    identity_problem,
    is_quarantined,
    plan_quarantine,
    plan_readmission,
    quarantine_reason,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.event_recorder import EventRequest, reference_to
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.metrics import ComputedGauge, GaugeSample

EVENT = "Quarantined"


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    instance = view.read(INSTANCE).get(key.ref)
    if instance is None:
        context.unresolved_since_s.pop(key, None)
        return Done()
    home = view.read(NAMESPACE).get(Ref("", key.ref.namespace))
    problem = identity_problem(instance, home)
    if problem is not None:
        return await set_apart(context, instance, problem)
    if quarantine_reason(instance) == NO_DEPLOYMENT and is_quarantined(instance):
        return Done()  # the projector looks for its deployment
    return await readmit(context, instance)


async def set_apart(context: Context, instance: Instance, problem: Problem) -> Outcome:
    """Once it has had its time."""
    key, now_s = Key(HUB, ref_of(instance)), context.elapsed_s()
    waited_s = now_s - context.unresolved_since_s.setdefault(key, now_s)
    plan = plan_quarantine(instance, problem, waited_s, context.now())
    outcome = await carry_out(context.planes, plan)
    if plan.actions:
        about = reference_to(INSTANCE, instance)
        note = f"{problem[0]}: {problem[1]}. It stays, and is tried again when its labels change"
        context.planes.record_event(EventRequest(HUB, about, "Warning", EVENT, note))
    return outcome


async def readmit(context: Context, instance: Instance) -> Outcome:
    context.unresolved_since_s.pop(Key(HUB, ref_of(instance)), None)
    return await carry_out(context.planes, plan_readmission(instance))


def from_home(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """What a home says of itself decides on the copies in it."""
    old, new = change.old, change.new
    if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
        return
    for instance in view.cached(INSTANCE).in_namespace(change.latest.metadata.name):
        yield Key(view.plane, ref_of(instance))


def concerns_identity(old: Instance, new: Instance) -> bool:
    before, after = old.metadata, new.metadata
    return before.labels != after.labels or before.annotations != after.annotations


def _by_reason(instance: Instance) -> Iterable[str]:
    reason = quarantine_reason(instance)
    return (reason,) if reason else ()


def quarantine_gauge(view_of: Callable[[PlaneName], CachedClient | None]) -> ComputedGauge:
    """How many are set apart now, by reason; reasons of which there are none are said as well."""

    def readings() -> Iterable[GaugeSample]:
        hub = view_of(HUB)
        informer = hub.informer(INSTANCE) if hub is not None else None
        counts = informer.cache.counts(QUARANTINED.name) if informer is not None else {}
        return [((reason,), float(counts.get(reason, 0))) for reason in REASONS]

    text = "Copies of instances on the hub that lead to nobody, by reason."
    return ComputedGauge("compute_federation_quarantined_objects", text, ("reason",), readings)


QUARANTINED = Index(INSTANCE, "quarantined", _by_reason)

CONTROLLER = Controller(
    name="quarantine",
    role="hub",
    reconcile=reconcile,
    edges=(for_(INSTANCE, update_filter=concerns_identity), watches(NAMESPACE, from_home)),
    indexes=(QUARANTINED,),
)
