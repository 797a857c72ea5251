"""Workload controller: reconciles a Workload to one WorkloadDeployment per placement and city.

It also aggregates their status. A second controller records every change of a Workload as a
WorkloadRevision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.instance_type import size_name
from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.kinds import (
    CLAIM,
    DEPLOYMENT,
    INSTANCE,
    INSTANCE_TYPE,
    REVISION,
    WORKLOAD,
)
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.quota.workload_claims import workload_claim_ref, workload_of_claim
from datum_compute.planning.workload.city_order import needs_revisions
from datum_compute.planning.workload.deployments import WorkloadObjects, plan_workload_lifecycle
from datum_compute.planning.workload.names import (
    NameHolder,
    candidate_names,
    new_places,
    preferred_names,
)
from datum_compute.planning.workload.revisions import (
    lacks_digests,
    plan_revisions,
    select_revisions,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Debounce,
    Done,
    Key,
    Outcome,
    for_,
    owns,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import any_of, spec_or_metadata_changed, value_changed

# Every city reports several times, so one status update aggregates many reports.
STATUS_DEBOUNCE = Debounce(idle_s=0.01, max_s=0.25)

BY_INSTANCE_TYPE = "instance-type"
BY_DEPLOYMENT_NAME = "deployment-name"


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    workload = client.read(WORKLOAD).get(key.ref)
    if workload is None:
        return Done()
    membership = context.membership
    is_suspended = membership is not None and membership.is_suspended(key.plane)
    found = dataclasses.replace(
        observe_workload(client, workload),
        is_suspended=is_suspended,
        enforces_quota=context.enforces_quota,
    )
    outcome = await apply_plan(
        context.planes, plan_workload_lifecycle(key.plane, found, context.now())
    )
    if workload.is_terminating or not found.deployments:
        return outcome
    return replace(outcome, debounce=STATUS_DEBOUNCE)


def observe_workload(client: CachedClient, workload: Workload) -> WorkloadObjects:
    """Return the Workload with its objects.

    Deployments and revisions are found by label and by owner, because users can edit labels.
    """
    uid, ref = workload.metadata.uid, ref_of(workload)
    deployments = client.read(DEPLOYMENT)
    by_ref = {
        ref_of(d): d
        for d in (
            *deployments.list_with_label(labels.WORKLOAD_UID, uid),
            *deployments.list_owned_by(uid),
        )
    }
    found = [by_ref[ref] for ref in sorted(by_ref)]
    holders = {} if workload.is_terminating else _observe_name_holders(client, workload, found)
    return WorkloadObjects(
        workload=workload,
        deployments=found,
        claim=client.read(CLAIM).get(workload_claim_ref(ref)),
        revisions=_revisions(client, workload)
        if workload.is_terminating or needs_revisions(workload, found)
        else (),
        instance_type=client.read(INSTANCE_TYPE).get(Ref("", type_name(workload))),
        name_holders=holders,
    )


def _observe_name_holders(
    client: CachedClient, workload: Workload, own: Sequence[WorkloadDeployment]
) -> dict[str, NameHolder]:
    """Return the deployments of other workloads that have a name for a new deployment."""
    deployments, workloads = client.read(DEPLOYMENT), client.read(WORKLOAD)
    namespace, own_uids = workload.metadata.namespace, {d.metadata.uid for d in own}
    found: dict[str, NameHolder] = {}
    for place in new_places(workload, own):
        for name in candidate_names(workload, place):
            deployment = deployments.get(Ref(namespace, name))
            if deployment is None:
                break
            if deployment.metadata.uid not in own_uids:
                owner = deployment.spec.workload_ref
                candidate = workloads.get(Ref(namespace, owner.name))
                is_owner = candidate is not None and candidate.metadata.uid == owner.uid
                found[name] = NameHolder(deployment, candidate if is_owner else None)
    return found


def _revisions(client: CachedClient, workload: Workload) -> list[WorkloadRevision]:
    found, metadata = client.read(REVISION), workload.metadata
    labeled = found.list_with_label(labels.WORKLOAD_NAME, metadata.name)
    return select_revisions(workload, labeled, found.list_owned_by(metadata.uid))


def map_claim(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a claim to the workload that it is named after.

    The claim may be left from an earlier workload and then has another owner, or none.
    """
    workload = workload_of_claim(ref_of(change.latest))
    if workload is not None:
        yield Key(client.plane, workload)


def map_ownerless_deployment(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map an ownerless deployment to its workload.

    The workload also deletes its ownerless deployments, and waits until they are gone.
    """
    deployment = change.latest
    if not deployment.metadata.owner_references:
        yield Key(
            client.plane, Ref(deployment.metadata.namespace, deployment.spec.workload_ref.name)
        )


def map_deployment_to_waiting(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted deployment to the workloads that may wait for its name."""
    if change.new is None:
        metadata = change.latest.metadata
        for waiting in client.read_unsynced(WORKLOAD).list_by_index(
            BY_DEPLOYMENT_NAME, metadata.name
        ):
            if waiting.metadata.namespace == metadata.namespace:
                yield Key(client.plane, ref_of(waiting))


async def suspension_changes(context: Context, client: CachedClient) -> AsyncIterator[Key]:
    """Yield all workloads of the project whenever it is suspended or resumed."""
    if context.membership is None:
        return
    async for _ in context.membership.suspension_changes(client.plane):
        for ref in client.read_unsynced(WORKLOAD).refs():
            yield Key(client.plane, ref)


def type_name(workload: Workload) -> str:
    return size_name(workload.spec.template.spec.runtime.resources.instance_type)


def map_instance_type(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map an instance type to the workloads that use it. Their status reports its lifecycle."""
    name = change.latest.metadata.name
    for workload in client.read_unsynced(WORKLOAD).list_by_index(BY_INSTANCE_TYPE, name):
        yield Key(client.plane, ref_of(workload))


WORKLOAD_CONTROLLER = Controller(
    name="workload",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(WORKLOAD),
        owns(DEPLOYMENT),
        owns(CLAIM),
        watches(CLAIM, map_claim),
        owns(REVISION),
        watches(DEPLOYMENT, map_ownerless_deployment),
        watches(DEPLOYMENT, map_deployment_to_waiting),
        watches(INSTANCE_TYPE, map_instance_type),
    ),
    indexes=(
        Index(WORKLOAD, BY_INSTANCE_TYPE, lambda workload: (type_name(workload),)),
        Index(WORKLOAD, BY_DEPLOYMENT_NAME, preferred_names),
    ),
    finalizers=(labels.WORKLOAD_FINALIZER,),
    external_sources=(suspension_changes,),
    entitled_only=True,
)


async def reconcile_revision(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    workload = client.read(WORKLOAD).get(key.ref)
    if workload is None:
        return Done()
    if labels.WORKLOAD_FINALIZER not in workload.metadata.finalizers:
        return Done()  # the finalizer is added first, because it removes the revisions
    found = client.read(REVISION)
    revisions = select_revisions(
        workload,
        found.list_with_label(labels.WORKLOAD_NAME, key.ref.name),
        found.list_owned_by(workload.metadata.uid),
    )
    instances: list[Instance] = []
    if lacks_digests(workload, revisions):
        uid = workload.metadata.uid
        instances = client.read(INSTANCE).list_with_label(labels.WORKLOAD_UID, uid)
    plan = plan_revisions(key.plane, workload, revisions, instances)
    return await apply_plan(context.planes, plan)


def map_reported_images(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map an instance whose image digests are known to its workload, which records them."""
    instance = change.latest
    name = instance.metadata.labels.get(labels.WORKLOAD_NAME)
    if name and instance.status.images:
        yield Key(client.plane, Ref(instance.metadata.namespace, name))


# A rollback changes the running template, but not the spec.
_TEMPLATE_MAY_HAVE_CHANGED = any_of(
    spec_or_metadata_changed, value_changed(lambda found: found.status.rollout.failed_revision)
)

REVISION_CONTROLLER = Controller(
    name="revision",
    role="project",
    reconcile=reconcile_revision,
    edges=(
        for_(WORKLOAD, update_filter=_TEMPLATE_MAY_HAVE_CHANGED),
        owns(REVISION),
        watches(
            INSTANCE,
            map_reported_images,
            update_filter=value_changed(lambda instance: instance.status.images),
        ),
    ),
    entitled_only=True,
)
