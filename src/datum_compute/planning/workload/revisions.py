"""Revisions of a Workload: one for each change of its template, placements or restarts.

Rules:
- The number of a new revision is above every number in use under the workload's name, so that the
  revisions of an earlier workload of that name are never overwritten.
- The name contains the number. Two writers with stale caches therefore create the same name, and
  the conflict prevents that a change is recorded twice.
- The newest ``REVISIONS_KEPT`` revisions are kept, and the one that an automatic rollback restored.
- While an automatic rollback is in effect, the recorded template is the one that the cities run.
- The newest revision gets the digest of each image: from the name of the image, or from the first
  instance of its template that reports one. A recorded digest never changes.
- The revisions of a workload are deleted before its finalizer is removed (``release_revisions``).
- Garbage collection ignores revisions of an earlier workload that have no owner reference. They are
  deleted when a workload of that name exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadRef
from datum_compute.api.compute.instance import Instance, InstanceTemplate
from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import (
    PinnedImage,
    WorkloadRevision,
    WorkloadRevisionSpec,
)
from datum_compute.api.kinds import REVISION, WORKLOAD
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ObjectMeta, owner_reference, ref_of
from datum_compute.api.planes import PlaneName, normalize_city
from datum_compute.planning.plan import Action, Create, Delete, Patch, Plan
from datum_compute.planning.workload.city_order import restored_template
from datum_compute.planning.workload.history import (
    describe_changes,
    find_restored_revision,
    images_of,
    recorded_fields,
)
from datum_compute.planning.workload.templates import current_templates, template_hash

REVISIONS_KEPT = 20


def plan_revisions(
    plane: PlaneName,
    workload: Workload,
    revisions: Sequence[WorkloadRevision],
    instances: Sequence[Instance] = (),
) -> Plan:
    """Plan the revisions of a workload.

    ``revisions`` are those under the workload's name, including those of earlier workloads.
    ``instances`` are those of the workload. They are required only if ``lacks_digests`` is True.
    """
    if workload.is_terminating:
        return Plan()
    own = own_revisions(workload, revisions)
    actions: list[Action] = []
    restored = restored_template(workload, own)
    running = workload  # with the template that the cities run
    if restored is not None:
        spec = msgspec.structs.replace(workload.spec, template=restored)
        running = msgspec.structs.replace(workload, spec=spec)
    if not own or _is_changed(own[-1], running):
        number = 1 + max((revision.spec.revision for revision in revisions), default=0)
        revision = _build_revision(running, own, number, is_automatic=restored is not None)
        actions.append(Create(plane, REVISION, revision, "the workload was changed"))
    else:
        actions += _record_digests(plane, own[-1], running, instances)
    created = sum(isinstance(action, Create) for action in actions)
    surplus = max(0, len(own) + created - REVISIONS_KEPT)
    actions += [
        _delete_revision(plane, old, f"only {REVISIONS_KEPT} are kept")
        for old in own[:surplus]
        if old.spec.revision != workload.status.rollout.running_revision
    ]
    actions += [
        _delete_revision(plane, ownerless, "its workload is gone")
        for ownerless in _ownerless_revisions(workload, revisions)
    ]
    return Plan(tuple(actions))


def lacks_digests(workload: Workload, revisions: Sequence[WorkloadRevision]) -> bool:
    """Return True if the newest revision lacks the digest of an image."""
    own = own_revisions(workload, revisions)
    return bool(own) and bool(_containers_without_digest(own[-1]))


def select_revisions(
    workload: Workload,
    labeled: Iterable[WorkloadRevision],
    owned: Iterable[WorkloadRevision],
) -> list[WorkloadRevision]:
    """Return the revisions in the workload's namespace, each once, ordered by name.

    Revisions are found by label and by owner, because users can edit labels.
    """
    namespace = workload.metadata.namespace
    by_ref = {ref_of(r): r for r in (*labeled, *owned) if r.metadata.namespace == namespace}
    return [by_ref[ref] for ref in sorted(by_ref)]


def release_revisions(
    plane: PlaneName, workload: Workload, revisions: Sequence[WorkloadRevision]
) -> list[Action]:
    """Delete the revisions of a workload that is being deleted, and ownerless earlier ones."""
    found = [*own_revisions(workload, revisions), *_ownerless_revisions(workload, revisions)]
    return [
        _delete_revision(plane, revision, "its workload is being deleted") for revision in found
    ]


def _ownerless_revisions(
    workload: Workload, revisions: Sequence[WorkloadRevision]
) -> list[WorkloadRevision]:
    """Return the revisions of earlier workloads that have no owner reference."""
    uid = workload.metadata.uid
    return [
        r
        for r in revisions
        if r.spec.workload_ref.uid != uid
        and not r.metadata.owner_references
        and not r.is_terminating
    ]


def _delete_revision(plane: PlaneName, revision: WorkloadRevision, reason: str) -> Delete:
    return Delete(plane, REVISION, ref_of(revision), revision.metadata.uid, reason)


def own_revisions(
    workload: Workload, revisions: Sequence[WorkloadRevision]
) -> list[WorkloadRevision]:
    """Return the revisions of this workload, oldest first."""
    uid = workload.metadata.uid
    own = [r for r in revisions if r.spec.workload_ref.uid == uid and not r.is_terminating]
    return sorted(own, key=lambda revision: revision.spec.revision)


# --- digests


def _record_digests(
    plane: PlaneName, latest: WorkloadRevision, running: Workload, instances: Sequence[Instance]
) -> list[Action]:
    """Add the digests that instances of the latest revision report.

    ``running`` is the workload with the template of that revision.
    """
    missing, templates = _containers_without_digest(latest), current_templates(running)
    found: dict[str, str] = {}
    for instance in sorted(instances, key=ref_of):
        city = instance.metadata.labels.get(labels.CITY_CODE, "")
        if instance.spec.controller.template_hash != templates.hash_in(normalize_city(city)):
            continue
        for record in instance.status.images:
            if missing.get(record.name) == record.image:
                found.setdefault(record.name, record.digest)
    if not found:
        return []
    known = {image.container: image.digest for image in latest.spec.images} | found
    metadata = latest.metadata
    patch = {
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "spec": {"images": to_json(_pinned_images(known))},
    }
    return [Patch(plane, REVISION, ref_of(latest), patch, "record the digests of the images")]


def _containers_without_digest(revision: WorkloadRevision) -> dict[str, str]:
    """Return the image of each container whose digest is unknown, by the name of the container."""
    known = {image.container for image in revision.spec.images}
    images = images_of(revision.spec.template)
    return {name: image for name, image in images.items() if name not in known}


def _digests_in_names(template: InstanceTemplate) -> dict[str, str]:
    """Return the digests that are part of image names, by container."""
    digests = {name: image.partition("@")[2] for name, image in images_of(template).items()}
    return {name: digest for name, digest in digests.items() if digest}


def _pinned_images(digests: Mapping[str, str]) -> list[PinnedImage]:
    return [PinnedImage(container=name, digest=digests[name]) for name in sorted(digests)]


# --- new revisions


def _is_changed(latest: WorkloadRevision, workload: Workload) -> bool:
    before, after = latest.spec, workload.spec
    if (before.template, before.placements, before.restarts) == (
        after.template,
        after.placements,
        after.restarts,
    ):
        return False  # the usual case; this comparison is cheaper than the next one
    return recorded_fields(before) != recorded_fields(after)


def _build_revision(
    workload: Workload, own: Sequence[WorkloadRevision], number: int, *, is_automatic: bool
) -> WorkloadRevision:
    """Build the next revision. ``is_automatic``: an automatic rollback is in effect."""
    metadata, spec = workload.metadata, workload.spec
    digest = template_hash(spec.template)
    restores = find_restored_revision(workload, own, spec.template)
    cause: Literal["Change", "AutomaticRollback"] = "Change"
    if is_automatic and own and own[-1].spec.template_hash != digest:
        restores, cause = workload.status.rollout.running_revision, "AutomaticRollback"
    changes = ["created"]
    if own:
        changes = describe_changes(own[-1].spec, spec, is_rollback=restores is not None)
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
            template_hash=digest,
            template=spec.template,
            placements=spec.placements,
            restarts=spec.restarts,
            changes=changes,
            actor="" if cause == "AutomaticRollback" else _actor(workload),
            restores=restores,
            cause=cause,
            images=_pinned_images(_digests_in_names(spec.template)),
        ),
    )


def _actor(workload: Workload) -> str:
    return workload.metadata.annotations.get(labels.CHANGED_BY, "")
