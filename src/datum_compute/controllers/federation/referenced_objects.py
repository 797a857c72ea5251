"""Copies ConfigMaps and Secrets that deployments refer to, and records their versions.

The rules are in planning/federation/referenced_objects.py. One controller per kind writes the copy
on the hub and the policy that propagates it. Another one resolves the references of a deployment
and annotates the result. It reads the sources live before it records a new result, so that a
restart directly after an edit uses the edited version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.referenced_data import references, sources
from datum_compute.api.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE, POLICY, SECRET
from datum_compute.api.meta.objects import KindInfo, Ref, ref_of
from datum_compute.api.planes import (
    encode_cluster_label,
    federation_namespace,
    member_name,
    source_copy_policy_name,
)
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.controllers.referenced_data import (
    DEPLOYMENTS_BY_SOURCE,
    KINDS,
    observe_sources,
    read_sources,
    source_edges,
    unreadable_kinds,
)
from datum_compute.planes.planes import upstream_key
from datum_compute.planning.federation.deployment import hub_namespace_of
from datum_compute.planning.federation.referenced_objects import (
    SourceCopyState,
    SourceResolution,
    is_same_resolution,
    plan_release,
    plan_resolution,
    plan_source_copy,
    recorded_resolution,
    referring_deployments,
    resolve_sources,
)
from datum_compute.planning.rollout.referenced_data import SourceObject, has_copy_label
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import spec_or_metadata_changed

SOURCE_COPIES = "source-copies"


def _reconcile(kind: KindInfo[Any]) -> Callable[[Context, Key], Awaitable[Outcome]]:
    async def reconcile(context: Context, key: Key) -> Outcome:
        client, hub = context.planes.require(key.plane), context.planes.hub
        namespace = client.read(NAMESPACE).get(Ref("", key.ref.namespace))
        value = f"{key.ref.namespace}/{kind.kind}/{key.ref.name}"
        plan = plan_source_copy(
            kind,
            (key.plane, key.ref),
            namespace,
            client.read(kind).get(key.ref),
            client.read(DEPLOYMENT).list_by_index(DEPLOYMENTS_BY_SOURCE.name, value),
            _observe_hub(hub, kind, key, namespace.metadata.uid if namespace is not None else ""),
        )
        return await apply_plan(context.planes, plan)

    return reconcile


def _observe_hub(hub: CachedClient, kind: KindInfo[Any], key: Key, uid: str) -> SourceCopyState:
    copies = _find_copies(hub, kind, key)
    target = federation_namespace(uid)
    if not uid and copies:
        # The project namespace is gone. Its copies are still in its hub namespace.
        target = copies[0].metadata.namespace
    policy = Ref(target, source_copy_policy_name(kind.kind, key.ref.name))
    return SourceCopyState(
        namespace=hub.read(NAMESPACE).get(Ref("", target)),
        copies=copies,
        existing_at_target=hub.read(kind).get(Ref(target, key.ref.name)),
        policy=hub.read(POLICY).get(policy),
    )


def _find_copies(hub: CachedClient, kind: KindInfo[Any], key: Key) -> list[SourceObject]:
    """Find the copies by the identity in their labels, in any hub namespace."""
    cluster = encode_cluster_label(member_name(key.plane))
    return [
        copy
        for copy in hub.read(kind).list_by_index(SOURCE_COPIES, f"{cluster}/{key.ref}")
        if has_copy_label(copy)
    ]


def labeled_source(copy: SourceObject) -> Iterable[str]:
    """Yield the source that the labels of a copy name."""
    marks = copy.metadata.labels
    if has_copy_label(copy):
        source = Ref(marks.get(labels.UPSTREAM_NAMESPACE, ""), copy.metadata.name)
        yield f"{marks.get(labels.UPSTREAM_CLUSTER, '')}/{source}"


def _map_source_copy(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    metadata = change.latest.metadata
    key = upstream_key(metadata.labels, metadata.name) if has_copy_label(change.latest) else None
    return [key] if key else []


def _map_deployment(
    kind: KindInfo[Any],
) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """Return a function that maps a deployment to its sources, now and before the change."""

    def to_keys(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        if change.old is not None and change.new is not None and _same_references(change):
            return
        for deployment in filter(None, (change.old, change.new)):
            for source in sources(references(deployment.spec.template)):
                if source.kind == kind.kind:
                    yield Key(client.plane, Ref(deployment.metadata.namespace, source.name))

    return to_keys


def _map_hub_deployment(
    kind: KindInfo[Any],
) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """Return a function that maps a new hub deployment to its sources.

    Their copies may have been deleted with an earlier hub namespace.
    """

    def to_keys(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        if change.old is not None:
            return
        metadata, template = change.latest.metadata, change.latest.spec.template
        for source in sources(references(template)):
            key = upstream_key(metadata.labels, source.name)
            if key is not None and source.kind == kind.kind:
                yield key

    return to_keys


def _same_references(change: ObjectChange[Any]) -> bool:
    old, new = change.old, change.new
    assert old is not None
    assert new is not None
    return bool(
        (old.spec.template, old.metadata.finalizers, old.is_terminating)
        == (new.spec.template, new.metadata.finalizers, new.is_terminating)
    )


def _map_policy(kind: KindInfo[Any]) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """Return a function that maps a policy to the source of its copy, to revert edits."""

    def to_keys(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        policy = change.latest
        if policy.metadata.labels.get(labels.REFERENCED_DATA) != "true":
            return
        hub_namespace_object = client.read_unsynced(NAMESPACE).get(
            Ref("", policy.metadata.namespace)
        )
        identity = hub_namespace_object.metadata.labels if hub_namespace_object is not None else {}
        for selector in policy.spec.resource_selectors:
            key = upstream_key(identity, selector.name)
            if key is not None and selector.kind == kind.kind:
                yield key

    return to_keys


def _controller(kind: KindInfo[Any]) -> Controller[Context]:
    return Controller(
        name=f"companion-{kind.plural}",
        role="project",
        reconcile=_reconcile(kind),
        edges=(
            for_(kind),
            reads(NAMESPACE),
            watches(DEPLOYMENT, _map_deployment(kind)),
            watches(kind, _map_source_copy, on="hub"),
            watches(DEPLOYMENT, _map_hub_deployment(kind), on="hub"),
            watches(POLICY, _map_policy(kind), on="hub"),
            reads(NAMESPACE, on="hub"),
        ),
        indexes=(DEPLOYMENTS_BY_SOURCE, Index(kind, SOURCE_COPIES, labeled_source, on="hub")),
        modes=(FEDERATED,),
    )


SOURCE_COPY_CONTROLLERS = tuple(_controller(kind) for kind in (CONFIG_MAP, SECRET))


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    deployment = client.read(DEPLOYMENT).get(key.ref)
    if deployment is None or not _has_data(deployment):
        return Done()
    if deployment.is_terminating:
        plan = plan_release(key.plane, deployment, _remaining_copies(context, client, deployment))
    else:
        plan = plan_resolution(key.plane, deployment, await _resolve_references(client, deployment))
    return await apply_plan(context.planes, plan)


async def _resolve_references(
    client: CachedClient, deployment: WorkloadDeployment
) -> SourceResolution:
    namespace, wanted = deployment.metadata.namespace, references(deployment.spec.template)
    if not unreadable_kinds(client, wanted):
        found = resolve_sources(deployment, observe_sources(client, namespace, wanted))
        if is_same_resolution(deployment, found):
            return found
    return resolve_sources(deployment, await read_sources(client, namespace, wanted))


def _has_data(deployment: WorkloadDeployment) -> bool:
    """Return True if the deployment refers to sources, or did."""
    held = labels.REFERENCED_DATA_FINALIZER in deployment.metadata.finalizers
    is_used = held or recorded_resolution(deployment) is not None
    return is_used or bool(references(deployment.spec.template))


def _remaining_copies(
    context: Context, client: CachedClient, deployment: WorkloadDeployment
) -> list[str]:
    namespace = client.read(NAMESPACE).get(Ref("", deployment.metadata.namespace))
    target, name = hub_namespace_of(deployment, namespace), str(ref_of(deployment))
    return [
        f"{kind.kind}/{copy.metadata.name}"
        for kind in KINDS.values()
        for copy in context.planes.hub.read(kind).list_in_namespace(target)
        if has_copy_label(copy) and name in referring_deployments(copy)
    ]


def map_source_copy(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a copy to the deployments that it no longer lists."""
    if change.old is None or not has_copy_label(change.old):
        return
    kept = referring_deployments(change.new) if change.new is not None else []
    for released in referring_deployments(change.old):
        namespace, _, name = released.partition("/")
        key = upstream_key(change.old.metadata.labels, name)
        if key is not None and released not in kept and key.ref.namespace == namespace:
            yield key


SOURCE_RESOLUTION_CONTROLLER = Controller(
    name="referenceddata",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(DEPLOYMENT, update_filter=spec_or_metadata_changed),
        reads(NAMESPACE),
        *source_edges(DEPLOYMENTS_BY_SOURCE),
        *(watches(kind, map_source_copy, on="hub") for kind in KINDS.values()),
    ),
    indexes=(DEPLOYMENTS_BY_SOURCE,),
    finalizers=(labels.REFERENCED_DATA_FINALIZER,),
    entitled_only=True,
    modes=(FEDERATED,),
)
