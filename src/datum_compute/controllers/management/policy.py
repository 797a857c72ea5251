"""Hub namespace of a project -> the policies that route what lies in it to its cities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import CLUSTER_POLICY, DEPLOYMENT, NAMESPACE, POLICY
from datum_compute.api.meta import Ref
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.policies import plan_policies
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    for_,
    spec_or_metadata_changed,
    watches,
)
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    hub = context.planes.require(key.plane)
    namespace = hub.read(NAMESPACE).get(key.ref)
    if namespace is None or labels.UPSTREAM_CLUSTER not in namespace.metadata.labels:
        return Done()
    name = namespace.metadata.name
    plan = plan_policies(
        namespace,
        hub.read(DEPLOYMENT).in_namespace(name),
        hub.read(POLICY).in_namespace(name),
        hub.read(CLUSTER_POLICY).get(Ref("", name)),
    )
    return await carry_out(context.planes, plan)


def to_namespace(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """The hub namespace that a deployment or policy lies in."""
    yield Key(view.plane, Ref("", change.latest.metadata.namespace))


def to_namespace_of_same_name(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(view.plane, Ref("", change.latest.metadata.name))


CONTROLLER = Controller(
    name="policy",
    role="hub",
    reconcile=reconcile,
    edges=(
        for_(NAMESPACE),
        watches(DEPLOYMENT, to_namespace, update_filter=spec_or_metadata_changed),
        watches(POLICY, to_namespace),
        watches(CLUSTER_POLICY, to_namespace_of_same_name),
    ),
)
