"""Workload -> WorkloadRevisions: every change of it is on record, whoever made it."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.kinds import REVISION, WORKLOAD
from datum_compute.api.meta import ref_of
from datum_compute.api.workload import Workload
from datum_compute.api.workloadrevision import WorkloadRevision
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.revisions import plan_revisions
from datum_compute.runtime.cached_client import CachedClient
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
        return Done()  # nothing is made yet that nobody would take away
    plan = plan_revisions(key.plane, workload, revisions_of(view, workload))
    return await carry_out(context.planes, plan)


def revisions_of(view: CachedClient, workload: Workload) -> list[WorkloadRevision]:
    """All of its name, in order."""
    metadata, found = workload.metadata, view.read(REVISION)
    # By owner as well: labels are anybody's to edit.
    seen = (
        *found.with_label(labels.WORKLOAD_NAME, metadata.name),
        *found.owned_by(metadata.uid),
    )
    by_ref = {ref_of(r): r for r in seen if r.metadata.namespace == metadata.namespace}
    return [by_ref[ref] for ref in sorted(by_ref)]


CONTROLLER = Controller(
    name="revision",
    role="project",
    reconcile=reconcile,
    edges=(for_(WORKLOAD, update_filter=spec_or_metadata_changed), owns(REVISION)),
    entitled_only=True,
)
