"""ConfigMap or Secret of a project -> its companion on the hub, and the policy that takes that to
the cells of the deployments that refer to it.

Project deployment -> what was found of the ConfigMaps and Secrets it refers to, on record.

Before anything new is recorded the project itself is asked, not a cache: whoever edits a source and
then restarts gets what was edited.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.identity import (
    companion_policy_name,
    encoded_cluster,
    federation_namespace,
)
from datum_compute.api.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE, POLICY, SECRET
from datum_compute.api.meta import KindInfo, Ref, ref_of
from datum_compute.api.plane import member_name
from datum_compute.api.references import references, sources
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.referenced_data import (
    DEPLOYMENTS_BY_SOURCE,
    KINDS,
    observe_sources,
    read_sources,
    unreadable_kinds,
    wakes,
)
from datum_compute.planes.planes import upstream_key
from datum_compute.planning.federation.deployment import hub_namespace_of
from datum_compute.planning.federation.referenced_objects import (
    CompanionState,
    Resolved,
    is_settled,
    plan_companion,
    plan_release,
    plan_resolution,
    referenced_by,
    resolve,
    resolved,
)
from datum_compute.planning.rollout.referenced_data import Held, is_companion
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    for_,
    reads,
    spec_or_metadata_changed,
    watches,
)
from datum_compute.runtime.informer import ObjectChange

COMPANIONS = "companions"


def _reconcile(kind: KindInfo[Any]) -> Callable[[Context, Key], Awaitable[Outcome]]:
    async def reconcile(context: Context, key: Key) -> Outcome:
        view, hub = context.planes.require(key.plane), context.planes.hub
        namespace = view.read(NAMESPACE).get(Ref("", key.ref.namespace))
        value = f"{key.ref.namespace}/{kind.kind}/{key.ref.name}"
        plan = plan_companion(
            kind,
            (key.plane, key.ref),
            namespace,
            view.read(kind).get(key.ref),
            view.read(DEPLOYMENT).indexed(DEPLOYMENTS_BY_SOURCE.name, value),
            _observe_hub(hub, kind, key, namespace.metadata.uid if namespace is not None else ""),
        )
        return await carry_out(context.planes, plan)

    return reconcile


def _observe_hub(hub: CachedClient, kind: KindInfo[Any], key: Key, uid: str) -> CompanionState:
    companions = _companions_of(hub, kind, key)
    if not uid and companions:  # the namespace is gone: its copies say where it went
        target = companions[0].metadata.namespace
    else:
        target = federation_namespace(uid)
    policy = Ref(target, companion_policy_name(kind.kind, key.ref.name))
    return CompanionState(
        namespace=hub.read(NAMESPACE).get(Ref("", target)),
        companions=companions,
        taken=hub.read(kind).get(Ref(target, key.ref.name)),
        policy=hub.read(POLICY).get(policy),
    )


def _companions_of(hub: CachedClient, kind: KindInfo[Any], key: Key) -> list[Held]:
    """By the identity that they carry, in whichever hub namespace they are."""
    cluster = encoded_cluster(member_name(key.plane))
    return [
        companion
        for companion in hub.read(kind).indexed(COMPANIONS, f"{cluster}/{key.ref}")
        if is_companion(companion)
    ]


def identity_of(companion: Held) -> Iterable[str]:
    """Where a copy is found: under the source that it says it is of."""
    marks = companion.metadata.labels
    if is_companion(companion):
        source = Ref(marks.get(labels.UPSTREAM_NAMESPACE, ""), companion.metadata.name)
        yield f"{marks.get(labels.UPSTREAM_CLUSTER, '')}/{source}"


def _from_companion(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    metadata = change.latest.metadata
    key = upstream_key(metadata.labels, metadata.name) if is_companion(change.latest) else None
    return [key] if key else []


def _from_deployment(
    kind: KindInfo[Any],
) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """What it refers to, and what it referred to before."""

    def to_keys(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        if change.old is not None and change.new is not None and _counts_alike(change):
            return
        for deployment in filter(None, (change.old, change.new)):
            for source in sources(references(deployment.spec.template)):
                if source.kind == kind.kind:
                    yield Key(view.plane, Ref(deployment.metadata.namespace, source.name))

    return to_keys


def _from_hub_deployment(
    kind: KindInfo[Any],
) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """A deployment that comes to the hub needs its sources there; they may have gone with the hub
    namespace, when nothing could be made in it."""

    def to_keys(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        if change.old is not None:
            return
        metadata, template = change.latest.metadata, change.latest.spec.template
        for source in sources(references(template)):
            key = upstream_key(metadata.labels, source.name)
            if key is not None and source.kind == kind.kind:
                yield key

    return to_keys


def _counts_alike(change: ObjectChange[Any]) -> bool:
    old, new = change.old, change.new
    assert old is not None, "compared with what was there before"
    assert new is not None, "compared with what is there now"
    return bool(
        (old.spec.template, old.metadata.finalizers, old.is_terminating)
        == (new.spec.template, new.metadata.finalizers, new.is_terminating)
    )


def _from_policy(kind: KindInfo[Any]) -> Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]:
    """A policy of ours that somebody changed is put right."""

    def to_keys(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        policy = change.latest
        if policy.metadata.labels.get(labels.REFERENCED_DATA) != "true":
            return
        home = view.cached(NAMESPACE).get(Ref("", policy.metadata.namespace))
        identity = home.metadata.labels if home is not None else {}
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
            watches(DEPLOYMENT, _from_deployment(kind)),
            watches(kind, _from_companion, on="hub"),
            watches(DEPLOYMENT, _from_hub_deployment(kind), on="hub"),
            watches(POLICY, _from_policy(kind), on="hub"),
            reads(NAMESPACE, on="hub"),
        ),
        indexes=(DEPLOYMENTS_BY_SOURCE, Index(kind, COMPANIONS, identity_of, on="hub")),
        modes=(FEDERATED,),
    )


COPY_CONTROLLERS = tuple(_controller(kind) for kind in (CONFIG_MAP, SECRET))


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    deployment = view.read(DEPLOYMENT).get(key.ref)
    if deployment is None or not _has_data(deployment):
        return Done()
    if deployment.is_terminating:
        plan = plan_release(key.plane, deployment, _held_back_by(context, view, deployment))
    else:
        plan = plan_resolution(key.plane, deployment, await _looked_up(view, deployment))
    return await carry_out(context.planes, plan)


async def _looked_up(view: CachedClient, deployment: WorkloadDeployment) -> Resolved:
    namespace, wanted = deployment.metadata.namespace, references(deployment.spec.template)
    if not unreadable_kinds(view, wanted):
        found = resolve(deployment, observe_sources(view, namespace, wanted))
        if is_settled(deployment, found):
            return found
    return resolve(deployment, await read_sources(view, namespace, wanted))


def _has_data(deployment: WorkloadDeployment) -> bool:
    """It refers to some, or did."""
    held = labels.REFERENCED_DATA_FINALIZER in deployment.metadata.finalizers
    used = held or resolved(deployment) is not None
    return used or bool(references(deployment.spec.template))


def _held_back_by(
    context: Context, view: CachedClient, deployment: WorkloadDeployment
) -> list[str]:
    namespace = view.read(NAMESPACE).get(Ref("", deployment.metadata.namespace))
    target, name = hub_namespace_of(deployment, namespace), str(ref_of(deployment))
    return [
        f"{kind.kind}/{companion.metadata.name}"
        for kind in KINDS.values()
        for companion in context.planes.hub.read(kind).in_namespace(target)
        if is_companion(companion) and name in referenced_by(companion)
    ]


def from_companion(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """The deployments that a copy was there for, and is not any more."""
    if change.old is None or not is_companion(change.old):
        return
    kept = referenced_by(change.new) if change.new is not None else []
    for released in referenced_by(change.old):
        namespace, _, name = released.partition("/")
        key = upstream_key(change.old.metadata.labels, name)
        if key is not None and released not in kept and key.ref.namespace == namespace:
            yield key


REFERENCE_CONTROLLER = Controller(
    name="referenceddata",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(DEPLOYMENT, update_filter=spec_or_metadata_changed),
        reads(NAMESPACE),
        *wakes(DEPLOYMENTS_BY_SOURCE),
        *(watches(kind, from_companion, on="hub") for kind in KINDS.values()),
    ),
    indexes=(DEPLOYMENTS_BY_SOURCE,),
    finalizers=(labels.REFERENCED_DATA_FINALIZER,),
    entitled_only=True,
    modes=(FEDERATED,),
)
