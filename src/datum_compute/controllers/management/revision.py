"""Record every change of a Workload as a WorkloadRevision."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.kinds import REVISION, WORKLOAD
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.workload.revisions import plan_revisions, select_revisions
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    for_,
    owns,
    spec_or_metadata_changed,
)


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    workload = view.read(WORKLOAD).get(key.ref)
    if workload is None:
        return Done()
    if labels.WORKLOAD_FINALIZER not in workload.metadata.finalizers:
        return Done()  # the finalizer comes first: it removes the revisions
    found = view.read(REVISION)
    revisions = select_revisions(
        workload,
        found.with_label(labels.WORKLOAD_NAME, key.ref.name),
        found.owned_by(workload.metadata.uid),
    )
    return await carry_out(context.planes, plan_revisions(key.plane, workload, revisions))


CONTROLLER = Controller(
    name="revision",
    role="project",
    reconcile=reconcile,
    edges=(for_(WORKLOAD, update_filter=spec_or_metadata_changed), owns(REVISION)),
    entitled_only=True,
)
