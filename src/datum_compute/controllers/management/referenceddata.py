"""Project deployment -> what was found of the ConfigMaps and Secrets it refers to, on record.

Before anything new is recorded the project itself is asked, not a cache: whoever edits a source and
then restarts gets what was edited.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.references import references
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
from datum_compute.planning.federation.referenced_objects import referenced_by
from datum_compute.planning.resolution import (
    Resolved,
    is_settled,
    plan_release,
    plan_resolution,
    resolve,
    resolved,
)
from datum_compute.planning.rollout.referenced_data import is_companion
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


CONTROLLER = Controller(
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
