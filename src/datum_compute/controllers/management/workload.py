"""Workload -> one WorkloadDeployment per placement and city, and the status of them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.meta import Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.placement import plan_workload
from datum_compute.runtime.controller import Controller, for_, owns, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
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
    plan = plan_workload(key.plane, workload, deployments, context.now())
    return await carry_out(context.planes, plan)


def from_orphan(view: View, change: Change[Any]) -> Iterable[Key]:
    """A deployment that lost its owner goes all the same, and the workload waits for that."""
    deployment = change.latest
    if not deployment.metadata.owner_references:
        yield Key(view.plane, Ref(deployment.metadata.namespace, deployment.spec.workload_ref.name))


CONTROLLER = Controller(
    name="workload",
    role="project",
    reconcile=reconcile,
    edges=(for_(WORKLOAD), owns(DEPLOYMENT), watches(DEPLOYMENT, from_orphan)),
    finalizers=(labels.WORKLOAD_FINALIZER,),
)
