"""Controllers of quota claims of instances: creation, release, and claims that no cell releases.

``claim`` creates the claim of an instance in its project.

``claim-release`` releases the claim of an empty slot, if the slot is no longer wanted or if a user
deleted the claim. A live read of the cell confirms that the slot is empty. From that read until the
claim is gone, the quota gate ignores the claim (``ProcessState.claims_being_released``), so a new
instance in the slot waits for a new claim.

``left-claim`` and ``orphaned-claim`` delete claims that no cell will release. A cell cannot release
its claims if it has left the federation, or if its copy of the namespace is gone: the labels of
that namespace contain the project.

- ``left-claim`` is keyed by the name of a Cluster. It acts if the hub has no such Cluster.
- ``orphaned-claim`` is keyed by the name of a hub namespace. It acts on claims whose deployment is
  gone from the project, if the hub has neither the namespace nor a Work that carries it or an
  object in it. A Work stays until its cell has confirmed the removal, so the claims of an
  unreachable cell stay too.

Both read the hub live: quota is never released because an object is missing from a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.errors import AlreadyExists, Forbidden, Invalid, NotFound
from datum_compute.api.karmada import Work
from datum_compute.api.kinds import (
    CLAIM,
    CLUSTER,
    DEPLOYMENT,
    INSTANCE,
    INSTANCE_TYPE,
    NAMESPACE,
    WORK,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.planes import HUB, deployment_of, instance_name, plane_role, source_uid
from datum_compute.api.quota import ResourceClaim
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.controllers.instance_quota import map_claim, observe_claim_location, size_on
from datum_compute.planning.federation.cells import plan_orphaned_claims
from datum_compute.planning.plan import Action, Plan
from datum_compute.planning.quota.claims import (
    REFUSED_RETRY_S,
    ReleaseState,
    claim_ref,
    claimed_instance,
    find_claim_location,
    needs_claim,
    plan_claim,
    plan_claim_error,
    plan_release,
    release_state,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    MANY_WORKERS,
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import (
    any_of,
    never,
    new_state,
    spec_or_metadata_changed,
    value_changed,
)


async def reconcile(context: Context, key: Key) -> Outcome:
    instance = context.planes.require(key.plane).read(INSTANCE).get(key.ref)
    if instance is None or instance.is_terminating or not needs_claim(instance):
        return Done()
    if not context.enforces_quota:
        return Done()
    location = observe_claim_location(context, key)
    if location is None:
        return Requeue(REFUSED_RETRY_S)
    claim = (
        context.planes.require(location.plane).read(CLAIM).get(claim_ref(location, key.ref.name))
    )
    plan = plan_claim(location, instance, claim, size_on(context, key, instance))
    try:
        return await apply_plan(context.planes, plan)
    except (AlreadyExists, Forbidden, Invalid, NotFound) as error:
        if claim is not None:
            raise
        now, unix_s = context.now(), context.unix_s()
        report = plan_claim_error(key.plane, location, instance, error, now, unix_s)
        return await apply_plan(context.planes, report)


def _claim_inputs(instance: Instance) -> object:
    """Return what the claim depends on: whether it is needed, and the size of the instance."""
    return needs_claim(instance), instance.spec.runtime


CLAIM_CONTROLLER = Controller(
    name="claim",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE, update_filter=value_changed(_claim_inputs)),
        # This controller creates the claims itself. If another client created one, the create
        # request fails and is retried.
        watches(
            CLAIM,
            map_claim,
            on="project",
            create_filter=never,
            update_filter=spec_or_metadata_changed,
        ),
        reads(NAMESPACE),
        reads(INSTANCE_TYPE),
    ),
    workers=MANY_WORKERS,
)


# --- release

T = TypeVar("T", bound=ApiObject)

# Interval of checks whether a claim that was deleted is gone from the cache.
RELEASE_RECHECK_S = 0.2


async def reconcile_release(context: Context, key: Key) -> Outcome:
    claim = context.planes.require(key.plane).read(CLAIM).get(key.ref)
    slot = claimed_instance(claim) if claim is not None else None
    cell = context.planes.get(slot[0]) if slot is not None else None
    releasing = context.state.claims_being_released
    if claim is None or releasing.get(key) != claim.metadata.uid:
        releasing.pop(key, None)
    if claim is None or slot is None or cell is None:
        return Done()
    ref, owner = slot[1], _deployment_of_claim(claim, slot[1])
    instance, deployment = cell.read(INSTANCE).get(ref), cell.read(DEPLOYMENT).get(owner)
    state = release_state(claim, instance, deployment, release_requested=key in releasing)
    if state is ReleaseState.CONFIRM:
        # Record the release before the read, so that no gate is cleared between read and deletion.
        releasing[key] = claim.metadata.uid
        try:
            instance = await _get_uncached(cell, INSTANCE, ref)
            deployment = await _get_uncached(cell, DEPLOYMENT, owner)
            state = release_state(claim, instance, deployment, is_live=True)
        finally:
            if state is not ReleaseState.RELEASING:
                del releasing[key]
    if state is ReleaseState.RELEASING:
        # An earlier delete request may have been received, so the release is completed even if the
        # slot is occupied again.
        await apply_plan(context.planes, plan_release(key.plane, claim, None, None))
        return Requeue(RELEASE_RECHECK_S)
    return await apply_plan(context.planes, plan_release(key.plane, claim, instance, deployment))


def _deployment_of_claim(claim: ResourceClaim, ref: Ref) -> Ref:
    return Ref(ref.namespace, deployment_of(ref.name, claim.metadata.labels))


async def _get_uncached(cell: CachedClient, kind: KindInfo[T], ref: Ref) -> T | None:
    try:
        return await cell.uncached.get(kind, ref)
    except NotFound:
        return None


def _is_terminating(claim: ResourceClaim) -> bool:
    return claim.is_terminating


def _map_instance(
    single_project: str, client: CachedClient, change: ObjectChange[Any]
) -> Iterable[Key]:
    """Map a deleted instance to the claim of its slot."""
    if change.new is None:
        metadata = change.latest.metadata
        yield from _claim_keys(single_project, client, metadata.namespace, [metadata.name])


def _map_deployment(
    single_project: str, client: CachedClient, change: ObjectChange[Any]
) -> Iterable[Key]:
    """Map a deployment to the claims of the slots that it no longer wants."""
    if change.old is None:
        return
    metadata = change.old.metadata
    numbers = released_slots(change.old, change.new)
    names = [instance_name(metadata.name, number) for number in numbers]
    yield from _claim_keys(single_project, client, metadata.namespace, names)


def released_slots(old: WorkloadDeployment, new: WorkloadDeployment | None) -> range:
    """Return the slots that this update releases.

    A deployment that was terminating before the update has released its slots already.
    """
    before = old.spec.scale_settings.min_replicas
    if new is None:
        return range(before)  # even if released before: this is the last event of the deployment
    if old.is_terminating:
        return range(0)
    return range(0 if new.is_terminating else new.spec.scale_settings.min_replicas, before)


def _claim_keys(
    single_project: str, client: CachedClient, namespace: str, names: Iterable[str]
) -> Iterable[Key]:
    found = client.read_unsynced(NAMESPACE).get(Ref("", namespace))
    location = find_claim_location(client.plane, found, single_project)
    if location is not None:
        yield from (Key(location.plane, claim_ref(location, name)) for name in names)


def controller(single_project: str = "") -> Controller[Context]:
    """Return the release controller.

    ``single_project`` is that of the context, which mapping functions do not receive.
    """
    return Controller(
        name="claim-release",
        role="project",
        reconcile=reconcile_release,
        edges=(
            for_(
                CLAIM,
                update_filter=any_of(new_state(_is_terminating), spec_or_metadata_changed),
            ),
            watches(INSTANCE, partial(_map_instance, single_project), on="cell"),
            watches(DEPLOYMENT, partial(_map_deployment, single_project), on="cell"),
            reads(NAMESPACE, on="cell"),
        ),
        finalizers=(labels.CLAIM_FINALIZER,),
        workers=MANY_WORKERS,
    )


RELEASE_CONTROLLER = controller()


# --- claims that no cell releases

WORK_RECHECK_S = 60.0


async def reconcile_cluster(context: Context, key: Key) -> Outcome:
    hub, cell = context.planes.hub, key.ref.name
    if hub.read(CLUSTER).get(key.ref) is not None:
        return Done()
    plan = _plan_claims(context, labels.SOURCE_CLUSTER, cell, f"cell {cell} has left")
    if plan.actions and await hub.get_uncached(CLUSTER, key.ref) is None:
        return await apply_plan(context.planes, plan)
    return Done()


async def reconcile_namespace(context: Context, key: Key) -> Outcome:
    hub, name = context.planes.hub, key.ref.name
    # A namespace without a source uid in its name is not a hub namespace and exists only on a cell.
    if not source_uid(name) or hub.read(NAMESPACE).get(key.ref) is not None:
        return Done()
    plan = _plan_claims(
        context,
        labels.INSTANCE_NAMESPACE,
        name,
        f"namespace {name} is gone from the hub",
        is_kept=_has_deployment,
    )
    if not plan.actions or hub.read(WORK).refs_by_index(WORKS_BY_NAMESPACE.name, name):
        return Done()
    if await hub.get_uncached(NAMESPACE, key.ref) is not None:
        return Done()
    if any(contains_namespace(work, name) for work in (await hub.uncached.list(WORK)).items):
        return Requeue(WORK_RECHECK_S)
    return await apply_plan(context.planes, plan)


def _plan_claims(
    context: Context,
    label: str,
    value: str,
    reason: str,
    is_kept: Callable[[CachedClient, ResourceClaim], bool] = lambda _project, _claim: False,
) -> Plan:
    """Plan the release of the claims with the label, in all projects, unless they are kept."""
    actions: list[Action] = []
    for plane in context.planes.engaged_planes():
        if plane_role(plane) != "project":
            continue
        project = context.planes.require(plane)
        claims = project.read(CLAIM).list_with_label(label, value)
        orphans = [claim for claim in claims if not is_kept(project, claim)]
        actions += plan_orphaned_claims(plane, orphans, reason).actions
    return Plan(tuple(actions))


def _has_deployment(project: CachedClient, claim: ResourceClaim) -> bool:
    """Return True if the project has the deployment of the claim.

    The hub then gets the namespace again, for example after it was restored from a backup.
    """
    claimed = claimed_instance(claim)
    if claimed is None:
        return False
    ref = Ref(claim.metadata.namespace, deployment_of(claimed[1].name))
    return project.read(DEPLOYMENT).get(ref) is not None


def contains_namespace(work: Work, namespace: str) -> bool:
    """Return True if the Work contains the namespace or an object in it."""
    return namespace in _namespaces_of(work)


def _namespaces_of(work: Work) -> Iterator[str]:
    for manifest in work.spec.workload.manifests:
        metadata = manifest.get("metadata")
        is_namespace = manifest.get("kind") == NAMESPACE.kind
        field = "name" if is_namespace else "namespace"
        name = metadata.get(field) if isinstance(metadata, dict) else ""
        if isinstance(name, str) and name:
            yield name


WORKS_BY_NAMESPACE = Index(WORK, "carried-namespace", _namespaces_of)


def map_namespace(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        yield Key(client.plane, Ref("", change.latest.metadata.name))


def map_work(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        yield from (Key(client.plane, Ref("", name)) for name in _namespaces_of(change.latest))


def map_claim_to_namespace(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map new and terminating claims to the hub namespace of their instance.

    When this process starts, every claim is new to it and may have been orphaned before.
    """
    claim = change.new
    if claim is None or (change.old is not None and not claim.is_terminating):
        return
    if namespace := claim.metadata.labels.get(labels.INSTANCE_NAMESPACE):
        yield Key(HUB, Ref("", namespace))


def map_cluster(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        yield Key(client.plane, Ref("", change.latest.metadata.name))


def map_project_deployment(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted deployment of a project to the hub namespaces of its claims."""
    if change.new is not None:
        return
    ref = ref_of(change.latest)
    for claim in client.read_unsynced(CLAIM).list_in_namespace(ref.namespace):
        claimed = claimed_instance(claim)
        if claimed is not None and deployment_of(claimed[1].name) == ref.name:
            yield Key(HUB, Ref("", claimed[1].namespace))


def map_claim_to_cluster(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map new and terminating claims to the Cluster of their cell.

    When this process starts, every claim is new to it, and its cell may have left before. A claim
    that is being deleted may wait for a cell that has left.
    """
    claim = change.new
    if claim is None or (change.old is not None and not claim.is_terminating):
        return
    if cell := claim.metadata.labels.get(labels.SOURCE_CLUSTER):
        yield Key(HUB, Ref("", cell))


ORPHANED_CLAIM_CONTROLLERS = (
    Controller(
        name="left-claim",
        role="hub",
        reconcile=reconcile_cluster,
        edges=(watches(CLUSTER, map_cluster), watches(CLAIM, map_claim_to_cluster, on="project")),
        finalizers=(labels.CLAIM_FINALIZER,),
        modes=(FEDERATED,),
    ),
    Controller(
        name="orphaned-claim",
        role="hub",
        reconcile=reconcile_namespace,
        edges=(
            watches(NAMESPACE, map_namespace),
            watches(WORK, map_work),
            watches(CLAIM, map_claim_to_namespace, on="project"),
            watches(DEPLOYMENT, map_project_deployment, on="project"),
        ),
        indexes=(WORKS_BY_NAMESPACE,),
        finalizers=(labels.CLAIM_FINALIZER,),
        modes=(FEDERATED,),
    ),
)
