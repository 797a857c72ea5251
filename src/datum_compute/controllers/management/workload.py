"""Workload -> one WorkloadDeployment per placement and city, and the status of them all."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, WORKLOAD
from datum_compute.api.meta import ref_of
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
from datum_compute.runtime.controller import Controller, for_, owns
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Later, Outcome


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
    plan = plan_workload(key.plane, workload, deployments, context.now(), hold)
    return await carry_out(context.planes, plan)


CONTROLLER = Controller(
    name="workload",
    role="project",
    reconcile=reconcile,
    edges=(for_(WORKLOAD), owns(DEPLOYMENT), owns(CLAIM)),
    finalizers=(labels.WORKLOAD_FINALIZER,),
)
