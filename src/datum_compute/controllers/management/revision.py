"""Workload -> WorkloadRevisions: every change of it is on record, whoever made it."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.kinds import REVISION, WORKLOAD
from datum_compute.api.meta import ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.revisions import plan_revisions
from datum_compute.runtime.controller import Controller, for_, owns
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.need(key.plane)
    workload = view.read(WORKLOAD).get(key.ref)
    if workload is None:
        return Done()
    found = view.read(REVISION)
    # By owner as well: labels are anybody's to edit.
    seen = (
        *found.labelled(labels.WORKLOAD_NAME, key.ref.name),
        *found.owned_by(workload.metadata.uid),
    )
    by_ref = {ref_of(r): r for r in seen if r.metadata.namespace == key.ref.namespace}
    plan = plan_revisions(key.plane, workload, [by_ref[ref] for ref in sorted(by_ref)])
    return await carry_out(context.planes, plan)


CONTROLLER = Controller(
    name="revision",
    role="project",
    reconcile=reconcile,
    edges=(for_(WORKLOAD), owns(REVISION)),
)
