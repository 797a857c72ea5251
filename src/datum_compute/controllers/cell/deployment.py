"""WorkloadDeployment on its cell -> ordered Instances, and their counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from datum_compute.api import labels
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import Ref, controller_uid, ref_of
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.deployment import plan_deployment
from datum_compute.runtime.controller import Controller, for_, owns, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome, Pause
from datum_compute.runtime.view import View

# A pass looks at every instance, and every instance wakes it several times on its way. So a pass
# waits for more of them to do so, and the longer the more instances there are; what that costs in
# all is the same small share for ten and for a thousand. One that moves in order has each step
# wait for a pass, and moves little at a time: its passes wait less.
PARALLEL = Pause(quiet_s=100e-6, most_s=5e-3)
ORDERED = Pause(quiet_s=20e-6, most_s=500e-6)


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.need(key.plane)
    deployment = view.read(DEPLOYMENT).get(key.ref)
    if deployment is None:
        return Done()
    instances = _instances_of(view, deployment)
    plan = plan_deployment(key.plane, deployment, instances, context.now())
    outcome = await carry_out(context.planes, plan)
    return replace(outcome, pause=_pause(deployment, len(instances)))


def _pause(deployment: WorkloadDeployment, instances: int) -> Pause:
    settings = deployment.spec.scale_settings
    each = ORDERED if settings.instance_management_policy == "OrderedReady" else PARALLEL
    many = max(instances, settings.min_replicas)
    return Pause(each.quiet_s * many, each.most_s * many)


def _instances_of(view: View, deployment: WorkloadDeployment) -> list[Instance]:
    """Those it owns, and those of its name that have lost their owner."""
    metadata, found = deployment.metadata, view.read(INSTANCE)
    named = found.labelled(labels.DEPLOYMENT_NAME, metadata.name)
    lost = [
        i for i in named if i.metadata.namespace == metadata.namespace and not controller_uid(i)
    ]
    return sorted([*found.owned_by(metadata.uid), *lost], key=ref_of)


def from_instance(view: View, change: Change[Any]) -> Iterable[Key]:
    """By label, for an instance that has lost its owner."""
    metadata = change.latest.metadata
    name = metadata.labels.get(labels.DEPLOYMENT_NAME)
    if name and not controller_uid(change.latest):
        yield Key(view.plane, Ref(metadata.namespace, name))


CONTROLLER = Controller(
    name="deployment",
    role="cell",
    reconcile=reconcile,
    edges=(for_(DEPLOYMENT), owns(INSTANCE), watches(INSTANCE, from_instance)),
    finalizers=(labels.WORKLOAD_FINALIZER,),
)
