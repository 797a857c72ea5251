"""Workload -> the record of what it was asked to be: one WorkloadRevision for every change.

A revision is the template with the placements. The number of a new one is above every number seen
under the workload's name, so that the records of an earlier workload of that name are never
overwritten. The name follows from the number; two writers with an old view collide instead of
recording a change twice.

They go with their workload: its finalizer takes them away (``release_revisions``). Those that lost
their owner are of an earlier workload of the name and go when there is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from datum_compute.api import labels
from datum_compute.api.changes import render_changes
from datum_compute.api.codec import JsonObject, canonical
from datum_compute.api.kinds import REVISION, WORKLOAD
from datum_compute.api.meta import ObjectMeta, owner_reference, ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.workload import Workload
from datum_compute.api.workloaddeployment import WorkloadRef
from datum_compute.api.workloadrevision import WorkloadRevision, WorkloadRevisionSpec
from datum_compute.planning.plan import Action, Create, Delete, Plan
from datum_compute.planning.workload.templates import template_hash

KEPT = 20
_CHANGES_MAX, _LINE_MAX = 100, 200


def plan_revisions(
    plane: PlaneName, workload: Workload, revisions: Sequence[WorkloadRevision]
) -> Plan:
    """``revisions`` are all that name the workload, those of earlier ones of its name included."""
    if workload.is_terminating:
        return Plan()
    own = own_revisions(workload, revisions)
    actions: list[Action] = []
    if not own or _is_changed(own[-1], workload):
        number = 1 + max((revision.spec.revision for revision in revisions), default=0)
        made = _revision(workload, own, number)
        actions.append(Create(plane, REVISION, made, "the workload was changed"))
    surplus = max(0, len(own) + len(actions) - KEPT)
    actions += [_delete(plane, old, f"{KEPT} are kept") for old in own[:surplus]]
    actions += [
        _delete(plane, left, "its workload is gone") for left in _leftover(workload, revisions)
    ]
    return Plan(tuple(actions))


def select_revisions(
    workload: Workload,
    labeled: Iterable[WorkloadRevision],
    owned: Iterable[WorkloadRevision],
) -> list[WorkloadRevision]:
    """The revisions in the workload's namespace, each once, in order of their names.

    Revisions are found by label and by owner, because users can edit labels.
    """
    namespace = workload.metadata.namespace
    by_ref = {ref_of(r): r for r in (*labeled, *owned) if r.metadata.namespace == namespace}
    return [by_ref[ref] for ref in sorted(by_ref)]


def release_revisions(
    plane: PlaneName, workload: Workload, revisions: Sequence[WorkloadRevision]
) -> list[Action]:
    """What has to go before the workload does."""
    going = [*own_revisions(workload, revisions), *_leftover(workload, revisions)]
    return [_delete(plane, revision, "its workload is going") for revision in going]


def _leftover(workload: Workload, revisions: Sequence[WorkloadRevision]) -> list[WorkloadRevision]:
    """Those of others that nobody owns: garbage collection never takes them."""
    uid = workload.metadata.uid
    return [
        r
        for r in revisions
        if r.spec.workload_ref.uid != uid
        and not r.metadata.owner_references
        and not r.is_terminating
    ]


def _delete(plane: PlaneName, revision: WorkloadRevision, reason: str) -> Delete:
    return Delete(plane, REVISION, ref_of(revision), revision.metadata.uid, reason)


def own_revisions(
    workload: Workload, revisions: Sequence[WorkloadRevision]
) -> list[WorkloadRevision]:
    """Those of this very workload, oldest first."""
    uid = workload.metadata.uid
    own = [r for r in revisions if r.spec.workload_ref.uid == uid and not r.is_terminating]
    return sorted(own, key=lambda revision: revision.spec.revision)


def _is_changed(latest: WorkloadRevision, workload: Workload) -> bool:
    before, after = latest.spec, workload.spec
    if (before.template, before.placements) == (after.template, after.placements):
        return False  # by far the most passes, and the cheap way to know
    return _asked(before) != _asked(after)


def _revision(workload: Workload, own: Sequence[WorkloadRevision], number: int) -> WorkloadRevision:
    metadata, spec = workload.metadata, workload.spec
    return WorkloadRevision(
        metadata=ObjectMeta(
            name=f"{metadata.name}-{number}",
            namespace=metadata.namespace,
            labels={
                labels.WORKLOAD_UID: metadata.uid,
                labels.WORKLOAD_NAME: metadata.name,
            },
            owner_references=[owner_reference(workload, WORKLOAD)],
        ),
        spec=WorkloadRevisionSpec(
            workload_ref=WorkloadRef(name=metadata.name, uid=metadata.uid),
            revision=number,
            template_hash=template_hash(spec.template),
            template=spec.template,
            placements=spec.placements,
            changes=_changes(own[-1], workload) if own else [],
            actor=metadata.annotations.get(labels.CHANGED_BY, ""),
            restores=_restored(own, workload),
        ),
    )


def _restored(own: Sequence[WorkloadRevision], workload: Workload) -> int | None:
    """The newest earlier revision with the very template that is asked for again."""
    wanted = template_hash(workload.spec.template)
    if not own or own[-1].spec.template_hash == wanted:
        return None
    same = (r.spec.revision for r in reversed(own) if r.spec.template_hash == wanted)
    return next(same, None)


def _changes(latest: WorkloadRevision, workload: Workload) -> list[str]:
    """For people; values of environment variables are never in it."""
    before, after = {"spec": _asked(latest.spec)}, {"spec": _asked(workload.spec)}
    lines = [line[:_LINE_MAX] for line in render_changes(before, after)]
    if len(lines) <= _CHANGES_MAX:
        return lines
    return [*lines[: _CHANGES_MAX - 1], f"and {len(lines) - _CHANGES_MAX + 1} more"]


def _asked(spec: object) -> JsonObject:
    """What counts as a change; fields equal to their default do not."""
    whole = canonical(spec)
    return {name: whole.get(name) for name in ("template", "placements")}
