"""Workload -> one WorkloadDeployment per placement and city, and the status of them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.instancetype import size_name
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE_TYPE, REVISION, WORKLOAD
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.resourceclaim import ResourceClaim
from datum_compute.api.workload import Workload
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.management.revision import revisions_of
from datum_compute.planning.actions import Plan, add_finalizer
from datum_compute.planning.placement import plan_workload
from datum_compute.planning.revisions import release_revisions
from datum_compute.planning.workloadclaims import (
    DECIDED_WITHIN_S,
    UNDECIDED,
    is_fresh,
    plan_workload_claim,
    quota_hold,
    release_workload_claim,
    workload_claim_ref,
    workload_of_claim,
)
from datum_compute.planning.workloadremoval import plan_workload_removal
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Debounce,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    owns,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange

# Its cities report one after the other, and each more than once: one summary for many of them.
REPORTED = Debounce(idle_s=0.01, max_s=0.25)


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    workload = view.read(WORKLOAD).get(key.ref)
    if workload is None:
        return Done()
    # By owner as well: labels are anybody's to edit.
    uid = workload.metadata.uid
    found = view.read(DEPLOYMENT)
    by_ref = {
        ref_of(d): d for d in (*found.with_label(labels.WORKLOAD_UID, uid), *found.owned_by(uid))
    }
    deployments = [by_ref[ref] for ref in sorted(by_ref)]
    claim = view.read(CLAIM).get(workload_claim_ref(key.ref))
    if workload.is_terminating:
        last = (
            *release_workload_claim(key.plane, workload, claim),
            *release_revisions(key.plane, workload, revisions_of(view, workload)),
        )
        plan = plan_workload_removal(key.plane, workload, deployments, context.now(), last)
        return await carry_out(context.planes, plan)
    guard = add_finalizer(key.plane, WORKLOAD, workload, labels.WORKLOAD_FINALIZER)
    made = plan_workload_claim(key.plane, workload, claim)
    await carry_out(context.planes, Plan((*guard, *made)))
    if guard or (made and not deployments):
        return Done()  # what was written brings us back
    return await _deploy(context, view, workload, deployments, claim)


async def _deploy(
    context: Context,
    view: CachedClient,
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    claim: ResourceClaim | None,
) -> Outcome:
    now, hold = context.now(), quota_hold(workload, claim, deployments)
    if hold is UNDECIDED and is_fresh(claim, now):
        return Requeue(DECIDED_WITHIN_S)
    used = view.read(INSTANCE_TYPE).get(Ref("", size_of(workload)))
    plan = plan_workload(view.plane, workload, deployments, now, used, hold)
    outcome = await carry_out(context.planes, plan)
    return replace(outcome, debounce=REPORTED) if deployments else outcome


def from_claim(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """By its name: one that was left by an earlier workload names no owner, or another."""
    workload = workload_of_claim(ref_of(change.latest))
    if workload is not None:
        yield Key(view.plane, workload)


def from_orphan(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """A deployment that lost its owner goes all the same, and the workload waits for that."""
    deployment = change.latest
    if not deployment.metadata.owner_references:
        yield Key(view.plane, Ref(deployment.metadata.namespace, deployment.spec.workload_ref.name))


def size_of(workload: Workload) -> str:
    return size_name(workload.spec.template.spec.runtime.resources.instance_type)


def from_type(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """The workloads that name it: they say what became of it."""
    name = change.latest.metadata.name
    for workload in view.cached(WORKLOAD).all():
        if size_of(workload) == name:
            yield Key(view.plane, ref_of(workload))


CONTROLLER = Controller(
    name="workload",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(WORKLOAD),
        owns(DEPLOYMENT),
        owns(CLAIM),
        watches(CLAIM, from_claim),
        reads(REVISION),
        watches(DEPLOYMENT, from_orphan),
        watches(INSTANCE_TYPE, from_type),
    ),
    finalizers=(labels.WORKLOAD_FINALIZER,),
    entitled_only=True,
)
