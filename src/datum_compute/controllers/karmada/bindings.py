"""Schedules the objects of the hub: writes the binding of an object from policies and clusters.

The rules are in planning/karmada/bindings.py.

A binding is created only after a live read of its object. If the cache missed the deletion of the
object, the binding would otherwise be created repeatedly and deleted by garbage collection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import Condition, find_condition
from datum_compute.api.kinds import (
    CLUSTER,
    CLUSTER_POLICY,
    CONFIG_MAP,
    DEPLOYMENT,
    NAMESPACE,
    POLICY,
    SECRET,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.karmada.bindings import (
    SCHEDULED,
    AnyBinding,
    Policy,
    binding_kind,
    binding_name,
    plan_binding,
    selects,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Edge,
    Key,
    Outcome,
    Requeue,
    for_,
    owns,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import any_of, spec_or_metadata_changed, value_changed

# Kinds that are propagated from the hub to cells. Objects of the kinds in MARKED are propagated
# only if they have the label REFERENCED_DATA.
PROPAGATED: tuple[KindInfo[Any], ...] = (NAMESPACE, DEPLOYMENT, CONFIG_MAP, SECRET)
MARKED: tuple[KindInfo[Any], ...] = (CONFIG_MAP, SECRET)
# Retry after a live read has contradicted the cache.
RECHECK_S = 1.0


def _reconcile(kind: KindInfo[Any]) -> Callable[[Context, Key], Awaitable[Outcome]]:
    async def reconcile(context: Context, key: Key) -> Outcome:
        hub = context.planes.require(key.plane)
        template = hub.read(kind).get(key.ref)
        if template is None:
            return Done()
        binding = hub.read(binding_kind(kind)).get(
            Ref(key.ref.namespace, binding_name(kind, key.ref.name))
        )
        policies = _in_order_of_precedence(hub, key.ref.namespace)
        clusters = hub.read(CLUSTER).all()
        plan = plan_binding(kind, template, policies, clusters, binding, context.now())
        if binding is None and plan.actions and not await _exists(hub, kind, template):
            hub.mark_stale(kind)
            return Requeue(RECHECK_S)
        return await apply_plan(context.planes, plan)

    return reconcile


async def _exists(hub: CachedClient, kind: KindInfo[Any], template: ApiObject) -> bool:
    found = await hub.get_uncached(kind, ref_of(template))
    return found is not None and found.metadata.uid == template.metadata.uid


def _in_order_of_precedence(hub: CachedClient, namespace: str) -> list[Policy]:
    """Return the policies of the namespace, then those of the whole hub, each ordered by name."""
    near = sorted(hub.read(POLICY).list_in_namespace(namespace), key=ref_of) if namespace else []
    far = sorted(hub.read(CLUSTER_POLICY).all(), key=ref_of)
    return [*near, *far]


def _map_cluster_to_all(
    kind: KindInfo[Any],
) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """Return a function that maps a Cluster to every object."""

    def to_keys(client: CachedClient, _change: ObjectChange[Any]) -> Iterable[Key]:
        for obj in _propagated_objects(client, kind):
            yield Key(client.plane, ref_of(obj))

    return to_keys


def _propagated_objects(client: CachedClient, kind: KindInfo[Any]) -> list[ApiObject]:
    cached = client.read_unsynced(kind)
    return (
        cached.list_with_label(labels.REFERENCED_DATA, "true") if kind in MARKED else cached.all()
    )


def _map_marked_object(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.latest.metadata.labels.get(labels.REFERENCED_DATA) == "true":
        yield Key(client.plane, ref_of(change.latest))


def _map_policy_to_selected(
    kind: KindInfo[Any],
) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """Return a function that maps a policy to the objects that it selects or selected.

    A policy in a namespace selects only objects of that namespace.
    """

    def to_keys(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        policies = [policy for policy in (change.old, change.new) if policy is not None]
        namespace = change.latest.metadata.namespace
        found = (
            client.read_unsynced(kind).list_in_namespace(namespace)
            if namespace
            else _propagated_objects(client, kind)
        )
        for obj in found:
            if any(selects(policy, kind, obj) for policy in policies):
                yield Key(client.plane, ref_of(obj))

    return to_keys


def _scheduled_condition(binding: AnyBinding) -> Condition | None:
    return find_condition(binding.status.conditions, SCHEDULED)


# The reports of cells are in the status of a binding too, and do not affect its scheduling.
_SCHEDULING_CHANGED = any_of(value_changed(_scheduled_condition), spec_or_metadata_changed)


def _primary_edge(kind: KindInfo[Any]) -> Edge:
    """Return the edge of the scheduled kind. Its status does not affect scheduling."""
    if kind in MARKED:
        return Edge(
            kind, _map_marked_object, is_primary=True, update_filter=spec_or_metadata_changed
        )
    return for_(kind, update_filter=spec_or_metadata_changed)


def _controller(kind: KindInfo[Any]) -> Controller[Context]:
    placed = _map_policy_to_selected(kind)
    return Controller(
        name=f"binding-{kind.plural}",
        role="hub",
        reconcile=_reconcile(kind),
        edges=(
            _primary_edge(kind),
            owns(binding_kind(kind), update_filter=_SCHEDULING_CHANGED),
            # Probes update the status of a Cluster often. It does not affect scheduling.
            watches(CLUSTER, _map_cluster_to_all(kind), update_filter=spec_or_metadata_changed),
            # Marked objects are scheduled by a policy of their namespace.
            reads(CLUSTER_POLICY)
            if kind in MARKED
            else watches(CLUSTER_POLICY, placed, update_filter=spec_or_metadata_changed),
            watches(POLICY, placed, update_filter=spec_or_metadata_changed),
        ),
    )


CONTROLLERS = tuple(_controller(kind) for kind in PROPAGATED)
