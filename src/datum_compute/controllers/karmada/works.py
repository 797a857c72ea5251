"""Works of the embedded hub: from binding to Work, and from Work to the copy on its cell.

The rules are in planning/karmada/bindings.py and planning/karmada/works.py. One controller per kind
writes a Work for each cluster of a binding, and aggregates the status of the Works. The execution
controller writes the copy on the cell and reports its status. It releases a deleted Work only after
a live read from the cell confirms that the copy is gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import is_true
from datum_compute.api.karmada import Work
from datum_compute.api.kinds import (
    CLUSTER,
    CONFIG_MAP,
    DEPLOYMENT,
    NAMESPACE,
    SECRET,
    WORK,
    kind_of,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.planes import (
    HUB,
    PlaneName,
    cell_plane,
    execution_namespace,
    member_name,
    work_name,
)
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.federation.unreachable import same_reachability
from datum_compute.planning.karmada.bindings import (
    binding_kind,
    binding_name,
    plan_unbound_works,
    plan_works,
)
from datum_compute.planning.karmada.works import (
    RECHECK_S,
    is_copy_of,
    plan_execution,
    plan_orphaned_copies,
    plan_unreachable_cell,
)
from datum_compute.planning.plan import Delete, Plan, drop_finalizer
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Edge,
    Key,
    Outcome,
    Requeue,
    Terminal,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange

# Retry after a live read has contradicted the cache.
UNBOUND_RECHECK_S = 1.0


def _reconcile(kind: KindInfo[Any]) -> Callable[[Context, Key], Awaitable[Outcome]]:
    async def reconcile(context: Context, key: Key) -> Outcome:
        hub = context.planes.require(key.plane)
        binding = hub.read(binding_kind(kind)).get(key.ref)
        if binding is None:
            return await _remove_unbound_works(context, kind, key)
        if binding.spec.resource.kind != kind.kind:
            return Done()
        resource = binding.spec.resource
        template = hub.read(kind).get(Ref(resource.namespace, resource.name))
        works = _works_of(hub, kind, binding.metadata.uid, Ref(resource.namespace, resource.name))
        plan = plan_works(kind, binding, template, works, context.now())
        return await apply_plan(context.planes, plan)

    return reconcile


async def _remove_unbound_works(context: Context, kind: KindInfo[Any], key: Key) -> Outcome:
    """Delete the Works of an object that has no binding and does not exist.

    Live reads confirm both, because absence from a cache proves nothing. While the object exists,
    its Works stay, and its new binding adopts them.
    """
    hub, name = context.planes.require(key.plane), key.ref.name.removesuffix(binding_name(kind, ""))
    resource = Ref(key.ref.namespace, name)
    plan = plan_unbound_works(_works_named(hub, kind, resource))
    if not plan.actions or hub.read(kind).get(resource) is not None:
        return Done()
    found = [
        await hub.get_uncached(binding_kind(kind), key.ref),
        await hub.get_uncached(kind, resource),
    ]
    if any(found):
        return Requeue(UNBOUND_RECHECK_S)
    return await apply_plan(context.planes, plan)


def _works_of(hub: CachedClient, kind: KindInfo[Any], binding_uid: str, ref: Ref) -> list[Work]:
    """Find the Works by label, and by name in case a label was removed."""
    labeled = hub.read(WORK).list_with_label(labels.BINDING_ID, binding_uid)
    by_ref = {ref_of(work): work for work in (*labeled, *_works_named(hub, kind, ref))}
    return [by_ref[ref] for ref in sorted(by_ref)]


def _works_named(hub: CachedClient, kind: KindInfo[Any], ref: Ref) -> list[Work]:
    works, name = hub.read(WORK), work_name(kind, ref)
    named = (
        works.get(Ref(execution_namespace(cluster.metadata.name), name))
        for cluster in hub.read(CLUSTER).all()
    )
    return [work for work in named if work is not None]


def _map_template(
    kind: KindInfo[Any],
) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    def to_keys(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        metadata = change.latest.metadata
        yield Key(client.plane, Ref(metadata.namespace, binding_name(kind, metadata.name)))

    return to_keys


def _map_work(kind: KindInfo[Any]) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    def to_keys(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        manifest = change.latest.spec.workload.manifests[0]
        if manifest.get("kind") == kind.kind:
            metadata = manifest["metadata"]
            name = binding_name(kind, metadata["name"])
            yield Key(client.plane, Ref(metadata.get("namespace", ""), name))

    return to_keys


def _map_binding_of_kind(
    kind: KindInfo[Any],
) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """Return a function that maps a binding to itself if its object is of this kind."""

    def to_keys(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        if change.latest.spec.resource.kind == kind.kind:
            yield Key(client.plane, ref_of(change.latest))

    return to_keys


def _controller(kind: KindInfo[Any]) -> Controller[Context]:
    return Controller(
        name=f"work-{kind.plural}",
        role="hub",
        reconcile=_reconcile(kind),
        edges=(
            Edge(binding_kind(kind), _map_binding_of_kind(kind), is_primary=True),
            watches(kind, _map_template(kind)),
            watches(WORK, _map_work(kind)),
            reads(CLUSTER),
        ),
        finalizers=(labels.BINDING_FINALIZER,),
    )


WORK_CONTROLLERS = tuple(_controller(kind) for kind in (NAMESPACE, DEPLOYMENT, CONFIG_MAP, SECRET))


ENGAGE_RECHECK_S = 2.0
# Kinds that a cell receives, except namespaces.
_COPIED: tuple[KindInfo[Any], ...] = (DEPLOYMENT, CONFIG_MAP, SECRET)


async def reconcile(context: Context, key: Key) -> Outcome:
    hub = context.planes.require(key.plane)
    work = hub.read(WORK).get(key.ref)
    if work is None:
        return await _remove_orphans(context, key)
    manifest = work.spec.workload.manifests[0]
    kind = kind_of(manifest["apiVersion"], manifest["kind"])
    if kind is None:
        return Terminal(
            f"{manifest['apiVersion']} {manifest['kind']} is not a kind that cells serve"
        )
    cell = _cell_of(key)
    client = context.planes.get(cell)
    if client is None and _is_cell_ready(hub, cell):
        return Requeue(ENGAGE_RECHECK_S)
    if client is None:
        return await apply_plan(context.planes, plan_unreachable_cell(work, cell, context.now()))
    ref = Ref(manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"])
    copy = await _observe_copy(work, client, kind, ref)
    if work.is_terminating and (copy is None or not is_copy_of(copy, kind, work)):
        return await _release_work(context, work, client, kind, ref)
    missing = "" if copy is not None else _missing_namespace(hub, client, key, ref.namespace)
    plan = plan_execution(cell, work, kind, copy, context.now(), missing_namespace=missing)
    return await apply_plan(context.planes, plan)


async def _observe_copy(
    work: Work, client: CachedClient, kind: KindInfo[Any], ref: Ref
) -> ApiObject | None:
    """Return the cell's object with the name in the manifest.

    If the Work has a reported status and the cache has no object, the object is read live before
    the status is cleared, because the cache may be stale after a relist.
    """
    copy: ApiObject | None = client.read(kind).get(ref)
    if copy is None and work.status.manifest_statuses and not work.is_terminating:
        return await client.get_uncached(kind, ref)
    return copy


def _missing_namespace(hub: CachedClient, client: CachedClient, key: Key, name: str) -> str:
    """Return the name of the namespace if the cell does not have it, otherwise an empty string.

    A namespace whose Work is terminating counts as missing: the cell is about to delete it with
    everything in it.
    """
    if not name:
        return ""
    is_there = client.read(NAMESPACE).get(Ref("", name)) is not None
    work = hub.read(WORK).get(Ref(key.ref.namespace, work_name(NAMESPACE, Ref("", name))))
    return "" if is_there and not (work is not None and work.is_terminating) else name


def _is_cell_ready(hub: CachedClient, cell: PlaneName) -> bool:
    """Return True if the hub reports the cell as Ready.

    A new process engages its cells one by one, so a cell without a client may be reachable.
    """
    cluster = hub.read(CLUSTER).get(Ref("", member_name(cell)))
    return cluster is not None and is_true(cluster.status.conditions, "Ready")


async def _release_work(
    context: Context, work: Work, client: CachedClient, kind: KindInfo[Any], ref: Ref
) -> Outcome:
    """Release the Work once a live read confirms that the copy is gone.

    Another object of the same name is not deleted and does not delay the release.
    """
    copy = await client.get_uncached(kind, ref)
    if copy is not None and is_copy_of(copy, kind, work):
        return Requeue(1)
    release = drop_finalizer(HUB, WORK, work, labels.EXECUTION_FINALIZER)
    return await apply_plan(context.planes, Plan(tuple(release)))


async def _remove_orphans(context: Context, key: Key) -> Outcome:
    """Delete copies whose Work is gone, which a live read from the hub confirms.

    A create request may arrive at the cell after its Work was released.
    """
    client = context.planes.get(_cell_of(key))
    if client is None:
        return Done()
    orphans = [
        action
        for kind in _COPIED
        for action in plan_orphaned_copies(
            client.plane, key.ref, kind, client.read(kind).list_with_label(labels.MANAGED, "true")
        ).actions
    ]
    namespaces = plan_orphaned_copies(
        client.plane,
        key.ref,
        NAMESPACE,
        client.read(NAMESPACE).list_with_label(labels.MANAGED, "true"),
    ).actions
    if (
        not (orphans or namespaces)
        or await context.planes.hub.get_uncached(WORK, key.ref) is not None
    ):
        return Done()
    for action in namespaces:
        if isinstance(action, Delete) and not await _is_abandoned(context, client, action.ref):
            return Requeue(RECHECK_S)
    return await apply_plan(context.planes, Plan((*orphans, *namespaces)))


async def _is_abandoned(context: Context, client: CachedClient, ref: Ref) -> bool:
    """Return True if live reads find neither the namespace on the hub nor a deployment on the cell.

    Deleting a namespace deletes its contents, so a missing Work alone is not sufficient.
    """
    if await context.planes.hub.get_uncached(NAMESPACE, ref) is not None:
        return False
    return not (await client.uncached.list(DEPLOYMENT, namespace=ref.name)).items


def _cell_of(key: Key) -> PlaneName:
    return cell_plane(key.ref.namespace.removeprefix(execution_namespace("")))


def map_copy(kind: KindInfo[Any]) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """Return a function that maps a copy to its Work.

    The name of the Work is derived from that of the copy. If the annotations name another Work, the
    copy is mapped to that Work as well, because a Work written by hand may have any name.
    """

    def to_keys(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        if not any(
            _is_marked_as_copy(seen) for seen in (change.old, change.new) if seen is not None
        ):
            return
        namespace = execution_namespace(member_name(client.plane))
        name = work_name(kind, ref_of(change.latest))
        yield Key(HUB, Ref(namespace, name))
        annotated_name = change.latest.metadata.annotations.get(labels.WORK_NAME, name)
        if annotated_name != name:
            yield Key(HUB, Ref(namespace, annotated_name))

    return to_keys


def map_cluster(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a Cluster that became Ready to its Works, so that they are retried immediately."""
    if change.old is None or same_reachability(change.old, change.new) or change.new is None:
        return
    if is_true(change.new.status.conditions, "Ready"):
        namespace = execution_namespace(change.new.metadata.name)
        for work in client.read_unsynced(WORK).list_in_namespace(namespace):
            yield Key(client.plane, ref_of(work))


def _is_marked_as_copy(copy: ApiObject) -> bool:
    metadata = copy.metadata
    return labels.MANAGED in metadata.labels or labels.WORK_NAME in metadata.annotations


def _source_namespaces(work: Work) -> Iterable[str]:
    """Yield the namespace of the object in a Work.

    Works of all projects for a cell are in one namespace. This index separates them for fairness.
    """
    for manifest in work.spec.workload.manifests[:1]:
        metadata = manifest.get("metadata", {})
        yield metadata.get("namespace") or metadata.get("name", "")


_BY_SOURCE = Index(WORK, "source-namespace", _source_namespaces)


def _by_cell(key: Key) -> str:
    return key.ref.namespace


EXECUTION_CONTROLLER = Controller(
    name="execution",
    role="hub",
    reconcile=reconcile,
    edges=(
        for_(WORK),
        watches(CLUSTER, map_cluster),
        *(watches(kind, map_copy(kind), on="cell") for kind in (NAMESPACE, *_COPIED)),
    ),
    indexes=(_BY_SOURCE,),
    finalizers=(labels.EXECUTION_FINALIZER,),
    flow_index=_BY_SOURCE.name,
    lane=_by_cell,  # one unreachable cell does not delay the others
)
