"""ResourceClaim of a slot -> released, when its slot is empty and no longer wanted, or when a user
has deleted the claim and nothing runs in the slot.

A live read of the cell confirms that the slot is empty. From that read until the claim is gone, the
quota gate clears no gate by the claim (``ProcessState.claims_being_released``). An instance that is
created in the slot meanwhile waits for a new claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

from datum_compute.api import labels
from datum_compute.api.errors import NotFound
from datum_compute.api.identity import deployment_of, instance_name
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE, NAMESPACE
from datum_compute.api.meta import ApiObject, KindInfo, Ref
from datum_compute.api.resourceclaim import ResourceClaim
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.quota.claims import (
    ReleaseState,
    claim_home,
    claim_ref,
    instance_of,
    plan_release,
    release_state,
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

# How soon the cache is checked for a claim that was deleted.
LEAVING_S = 0.2


async def reconcile(context: Context, key: Key) -> Outcome:
    claim = context.planes.require(key.plane).read(CLAIM).get(key.ref)
    slot = instance_of(claim) if claim is not None else None
    cell = context.planes.get(slot[0]) if slot is not None else None
    releasing = context.state.claims_being_released
    if claim is None or releasing.get(key) != claim.metadata.uid:
        releasing.pop(key, None)
    if claim is None or slot is None or cell is None:
        return Done()
    ref, owner = slot[1], _owner(claim, slot[1])
    instance, deployment = cell.read(INSTANCE).get(ref), cell.read(DEPLOYMENT).get(owner)
    state = release_state(claim, instance, deployment, has_begun=key in releasing)
    if state is ReleaseState.CONFIRM:
        # Before the read, so that no gate is cleared between the read and the deletion.
        releasing[key] = claim.metadata.uid
        try:
            instance = await _get_uncached(cell, INSTANCE, ref)
            deployment = await _get_uncached(cell, DEPLOYMENT, owner)
            state = release_state(claim, instance, deployment, is_live=True)
        finally:
            if state is not ReleaseState.RELEASING:
                del releasing[key]
    if state is ReleaseState.RELEASING:
        # An earlier request may have arrived, so the release is completed whatever the slot holds.
        await carry_out(context.planes, plan_release(key.plane, claim, None, None))
        return Requeue(LEAVING_S)
    return await carry_out(context.planes, plan_release(key.plane, claim, instance, deployment))


def _owner(claim: ResourceClaim, ref: Ref) -> Ref:
    return Ref(ref.namespace, deployment_of(ref.name, claim.metadata.labels))


async def _get_uncached(cell: CachedClient, kind: KindInfo[T], ref: Ref) -> T | None:
    try:
        return await cell.client.get(kind, ref)
    except NotFound:
        return None


def concerns_release(old: ResourceClaim, new: ResourceClaim) -> bool:
    """Return True unless only the status changed, which matters only while a claim terminates."""
    return new.is_terminating or spec_or_metadata_changed(old, new)


def _from_instance(
    single_project: str, view: CachedClient, change: ObjectChange[Any]
) -> Iterable[Key]:
    """Map an instance to the claim of its slot when the instance is gone."""
    if change.new is None:
        metadata = change.latest.metadata
        yield from _claims(single_project, view, metadata.namespace, [metadata.name])


def _from_deployment(
    single_project: str, view: CachedClient, change: ObjectChange[Any]
) -> Iterable[Key]:
    """Map a deployment to the claims of the slots that it no longer wants."""
    if change.old is None:
        return
    metadata = change.old.metadata
    numbers = released_slots(change.old, change.new)
    names = [instance_name(metadata.name, number) for number in numbers]
    yield from _claims(single_project, view, metadata.namespace, names)


def released_slots(old: WorkloadDeployment, new: WorkloadDeployment | None) -> range:
    """Return the slots that this update releases.

    A deployment that was terminating before has released its slots; its status updates release no
    more.
    """
    before = old.spec.scale_settings.min_replicas
    if new is None:
        return range(before)  # again, because no update follows
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
    """``single_project`` as in the context, which event mappings do not receive."""
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
