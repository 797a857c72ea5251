"""Binding -> one Work for each target cell, and what the cells report back to the object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.identity import execution_namespace
from datum_compute.api.kinds import CLUSTER, CONFIG_MAP, DEPLOYMENT, NAMESPACE, SECRET, WORK
from datum_compute.api.meta import KindInfo, Ref, ref_of
from datum_compute.api.work import Work
from datum_compute.api.workname import work_name
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.karmada.bindings import (
    binding_kind,
    binding_name,
    plan_unbound_works,
    plan_works,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Edge,
    Key,
    Outcome,
    Requeue,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange

# Retry after a live read has contradicted the cache.
RECHECK_S = 1.0


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
        return await carry_out(context.planes, plan)

    return reconcile


async def _remove_unbound_works(context: Context, kind: KindInfo[Any], key: Key) -> Outcome:
    """Read binding and object live: absence from a cache is no reason to remove a Work. While the
    object exists, its new binding adopts the Works."""
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
        return Requeue(RECHECK_S)
    return await carry_out(context.planes, plan)


def _works_of(hub: CachedClient, kind: KindInfo[Any], binding_uid: str, ref: Ref) -> list[Work]:
    """By label and by name: a Work that lost its label is still the only one of that name."""
    labelled = hub.read(WORK).with_label(labels.BINDING_ID, binding_uid)
    by_ref = {ref_of(work): work for work in (*labelled, *_works_named(hub, kind, ref))}
    return [by_ref[ref] for ref in sorted(by_ref)]


def _works_named(hub: CachedClient, kind: KindInfo[Any], ref: Ref) -> list[Work]:
    works, name = hub.read(WORK), work_name(kind, ref)
    named = (
        works.get(Ref(execution_namespace(cluster.metadata.name), name))
        for cluster in hub.read(CLUSTER).all()
    )
    return [work for work in named if work is not None]


def _from_template(
    kind: KindInfo[Any],
) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    def to_keys(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        metadata = change.latest.metadata
        yield Key(view.plane, Ref(metadata.namespace, binding_name(kind, metadata.name)))

    return to_keys


def _from_work(kind: KindInfo[Any]) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    def to_keys(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        manifest = change.latest.spec.workload.manifests[0]
        if manifest.get("kind") == kind.kind:
            metadata = manifest["metadata"]
            name = binding_name(kind, metadata["name"])
            yield Key(view.plane, Ref(metadata.get("namespace", ""), name))

    return to_keys


def _own_binding(kind: KindInfo[Any]) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """Those of other kinds are other controllers' business."""

    def to_keys(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        if change.latest.spec.resource.kind == kind.kind:
            yield Key(view.plane, ref_of(change.latest))

    return to_keys


def _controller(kind: KindInfo[Any]) -> Controller[Context]:
    return Controller(
        name=f"work-{kind.plural}",
        role="hub",
        reconcile=_reconcile(kind),
        edges=(
            Edge(binding_kind(kind), _own_binding(kind), is_primary=True),
            watches(kind, _from_template(kind)),
            watches(WORK, _from_work(kind)),
            reads(CLUSTER),
        ),
        finalizers=(labels.BINDING_FINALIZER,),
    )


CONTROLLERS = tuple(_controller(kind) for kind in (NAMESPACE, DEPLOYMENT, CONFIG_MAP, SECRET))
