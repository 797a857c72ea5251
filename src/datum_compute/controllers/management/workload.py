"""Workload -> one WorkloadDeployment per placement and city, and the status of them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.instancetype import size_name
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE_TYPE, WORKLOAD
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.workload import Workload
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.placement import HELD_S, plan_workload
from datum_compute.planning.workloadclaims import (
    UNDECIDED,
    plan_workload_claim,
    quota_hold,
    workload_claim_ref,
)
from datum_compute.runtime.controller import Controller, for_, owns, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Later, Outcome
from datum_compute.runtime.view import View


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.need(key.plane)
    workload = view.read(WORKLOAD).get(key.ref)
    if workload is None:
        return Done()
    # By owner as well: labels are anybody's to edit.
    uid = workload.metadata.uid
    found = view.read(DEPLOYMENT)
    by_ref = {
        ref_of(d): d for d in (*found.labelled(labels.WORKLOAD_UID, uid), *found.owned_by(uid))
    }
    deployments = [by_ref[ref] for ref in sorted(by_ref)]
    claim = view.read(CLAIM).get(workload_claim_ref(key.ref))
    if not workload.is_terminating:
        made = plan_workload_claim(key.plane, workload, claim)
        await carry_out(context.planes, Plan(tuple(made)))
        if made and not deployments:
            return Done()  # the claim brings us back when it is decided
    hold = quota_hold(workload, claim, deployments)
    if hold is UNDECIDED and not workload.is_terminating:
        return Later(HELD_S)
    used = view.read(INSTANCE_TYPE).get(Ref("", size_of(workload)))
    plan = plan_workload(key.plane, workload, deployments, context.now(), used, hold)
    return await carry_out(context.planes, plan)


def from_orphan(view: View, change: Change[Any]) -> Iterable[Key]:
    """A deployment that lost its owner goes all the same, and the workload waits for that."""
    deployment = change.latest
    if not deployment.metadata.owner_references:
        yield Key(view.plane, Ref(deployment.metadata.namespace, deployment.spec.workload_ref.name))


def size_of(workload: Workload) -> str:
    return size_name(workload.spec.template.spec.runtime.resources.instance_type)


def from_type(view: View, change: Change[Any]) -> Iterable[Key]:
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
        watches(DEPLOYMENT, from_orphan),
        watches(INSTANCE_TYPE, from_type),
    ),
    finalizers=(labels.WORKLOAD_FINALIZER,),
)
