"""ResourceClaim of a slot -> gone, when nothing runs in the slot and nobody wants it, or somebody
has deleted the claim.

That is asked of the cell itself, not of a cache. From then until the claim is gone no instance gets
its gate cleared by it: one that comes at this very moment waits for a claim of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

from datum_compute.api import labels
from datum_compute.api.errors import NotFound
from datum_compute.api.identity import instance_name
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE, NAMESPACE
from datum_compute.api.meta import ApiObject, KindInfo, Ref
from datum_compute.api.resourceclaim import ResourceClaim
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.claims import (
    claim_home,
    claim_ref,
    instance_of,
    plan_release,
    releases,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    MANY_WORKERS,
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    reads,
    spec_or_metadata_changed,
    watches,
)
from datum_compute.runtime.informer import ObjectChange

T = TypeVar("T", bound=ApiObject)

# How soon the cache is asked whether a claim that was deleted is out of it.
LEAVING_S = 0.2


async def reconcile(context: Context, key: Key) -> Outcome:
    claim = context.planes.require(key.plane).read(CLAIM).get(key.ref)
    slot = instance_of(claim) if claim is not None else None
    cell = context.planes.get(slot[0]) if slot is not None else None
    if claim is None or context.leaving.get(key) != claim.metadata.uid:
        context.leaving.pop(key, None)
    if claim is None or slot is None or cell is None:
        return Done()
    ref, owner = slot[1], _owner(claim, slot[1])
    plan = plan_release(
        key.plane, claim, cell.read(INSTANCE).get(ref), cell.read(DEPLOYMENT).get(owner)
    )
    if key not in context.leaving and releases(plan):
        plan = await _asked(context, cell, key, claim)
    if key in context.leaving:
        # Whether an earlier attempt arrived nobody knows, so there is no way back.
        await carry_out(context.planes, plan_release(key.plane, claim, None, None))
        return Requeue(LEAVING_S)
    return await carry_out(context.planes, plan)


async def _asked(context: Context, cell: CachedClient, key: Key, claim: ResourceClaim) -> Plan:
    """The plan as the cell sees it now. The claim leaves unless the cell says otherwise."""
    slot = instance_of(claim)
    assert slot is not None, "asked about the claim of a slot"
    context.leaving[key] = claim.metadata.uid
    try:
        instance = await _now(cell, INSTANCE, slot[1])
        deployment = await _now(cell, DEPLOYMENT, _owner(claim, slot[1]))
        plan = plan_release(key.plane, claim, instance, deployment)
    except BaseException:
        del context.leaving[key]
        raise
    if not releases(plan):
        del context.leaving[key]
    return plan


def _owner(claim: ResourceClaim, ref: Ref) -> Ref:
    told = claim.metadata.labels.get(labels.DEPLOYMENT_NAME)
    return Ref(ref.namespace, told or ref.name.rpartition("-")[0])


async def _now(cell: CachedClient, kind: KindInfo[T], ref: Ref) -> T | None:
    try:
        return await cell.client.get(kind, ref)
    except NotFound:
        return None


def concerns_release(old: ResourceClaim, new: ResourceClaim) -> bool:
    """Whether it was granted matters only for one that is leaving."""
    return new.is_terminating or spec_or_metadata_changed(old, new)


def _from_instance(
    single_project: str, view: CachedClient, change: ObjectChange[Any]
) -> Iterable[Key]:
    """When the last thing in a slot is gone."""
    if change.new is None:
        metadata = change.latest.metadata
        yield from _claims(single_project, view, metadata.namespace, [metadata.name])


def _from_deployment(
    single_project: str, view: CachedClient, change: ObjectChange[Any]
) -> Iterable[Key]:
    """The slots that it no longer wants."""
    if change.old is None:
        return
    metadata = change.old.metadata
    numbers = slots_let_go(change.old, change.new)
    names = [instance_name(metadata.name, number) for number in numbers]
    yield from _claims(single_project, view, metadata.namespace, names)


def slots_let_go(old: WorkloadDeployment, new: WorkloadDeployment | None) -> range:
    """By this very change: one that leaves reports on itself again and again meanwhile."""
    before = old.spec.scale_settings.min_replicas
    if new is None:
        return range(before)  # once more, for it is the last word
    if old.is_terminating:
        return range(0)
    return range(0 if new.is_terminating else new.spec.scale_settings.min_replicas, before)


def _claims(
    single_project: str, view: CachedClient, namespace: str, names: Iterable[str]
) -> Iterable[Key]:
    found = view.cached(NAMESPACE).get(Ref("", namespace))
    home = claim_home(view.plane, found, single_project)
    if home is not None:
        yield from (Key(home.plane, claim_ref(home, name)) for name in names)


def controller(single_project: str = "") -> Controller[Context]:
    """``single_project`` as in the context: what wakes the controller knows no context."""
    return Controller(
        name="claim-release",
        role="project",
        reconcile=reconcile,
        edges=(
            for_(CLAIM, update_filter=concerns_release),
            watches(INSTANCE, partial(_from_instance, single_project), on="cell"),
            watches(DEPLOYMENT, partial(_from_deployment, single_project), on="cell"),
            reads(NAMESPACE, on="cell"),
        ),
        finalizers=(labels.CLAIM_FINALIZER,),
        workers=MANY_WORKERS,
    )


CONTROLLER = controller()
