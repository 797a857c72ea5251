"""WorkloadDeployment on its cell -> ordered Instances, and their counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, INSTANCE_TYPE, SERVER
from datum_compute.api.meta import Ref, controller_uid, ref_of
from datum_compute.api.server import Server
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.drivers.driver import (
    NOT_OBSERVED,
    Driver,
    DriverError,
    NotObserved,
    Observation,
)
from datum_compute.planning.quota.claims import InstanceSize, size_of
from datum_compute.planning.rollout.machine import (
    confirms_not_ready,
    machine_id_of,
    machine_serves,
    needs_confirmation,
)
from datum_compute.planning.rollout.slots import is_ready
from datum_compute.planning.rollout.status import plan_deployment
from datum_compute.planning.workload.templates import template_hash
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
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange

# A pass looks at every instance, and every instance wakes it several times on its way. So a pass
# waits for more of them to do so, and the longer the more instances there are; what that costs in
# all is the same small share for ten and for a thousand. One that moves in order has each step
# wait for a pass, and moves little at a time: its passes wait less. Few instances are not reported
# step by step either: each report goes through the hub to the project.
PARALLEL = Debounce(idle_s=100e-6, max_s=5e-3)
ORDERED = Debounce(idle_s=20e-6, max_s=500e-6)
LOST = "lost-instances"
FEWEST = 50  # a pause is at least as long as for so many
# An instance that comes up says something more often than that.
SHORTEST_S = 0.02


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    deployment = view.read(DEPLOYMENT).get(key.ref)
    if deployment is None:
        context.state.confirmed_instances.pop(key, None)
        return Done()
    instances = _instances_of(view, deployment)
    types = view.read(INSTANCE_TYPE)

    def size(instance: Instance) -> InstanceSize | None:
        return size_of(instance.spec.runtime, lambda name: types.get(Ref("", name)))

    driver = context.drivers.get(key.plane)
    plan = plan_deployment(
        key.plane,
        deployment,
        instances,
        context.now(),
        size,
        simulated=driver is not None and driver.is_simulated,
        unobserved=await _find_unobserved(context, key, deployment, instances),
    )
    outcome = await carry_out(context.planes, plan)
    return replace(outcome, debounce=_pause(deployment, len(instances)))


async def _find_unobserved(
    context: Context, key: Key, deployment: WorkloadDeployment, instances: Sequence[Instance]
) -> frozenset[str]:
    """Return uids of instances whose recorded readiness the driver has not confirmed.

    These are replacements recorded as ready and outdated instances recorded as not ready. After a
    restart the machine may have ended or recovered since it was recorded. A rollout that relied on
    the record would remove the instances that still serve. One confirmation is enough, because
    later changes cause events. The driver is not asked if no instance is outdated.
    """
    driver, current = context.drivers.get(key.plane), template_hash(deployment.spec.template)
    updated = [i for i in instances if i.spec.controller.template_hash == current]
    if driver is None or len(updated) == len(instances):
        return frozenset()
    known = context.state.confirmed_instances.get(key, frozenset())
    confirmed, missing = set[str](), set[str]()
    servers = context.planes.require(key.plane).read(SERVER)
    for instance in filter(is_ready, updated):
        uid, server = instance.metadata.uid, servers.get(ref_of(instance))
        if uid in known or (not missing and server and await _is_serving(driver, server)):
            confirmed.add(uid)
        else:
            missing.add(uid)
    for instance in instances:
        uid, server = instance.metadata.uid, servers.get(ref_of(instance))
        is_outdated = instance.spec.controller.template_hash != current
        if server is None or not is_outdated or not needs_confirmation(instance, server):
            continue
        if uid in known or await _is_known_down(driver, instance, server):
            confirmed.add(uid)
        else:
            missing.add(uid)
    context.state.confirmed_instances[key] = frozenset(confirmed)
    return frozenset(missing)


async def _is_known_down(driver: Driver, instance: Instance, server: Server) -> bool:
    state = await _observe(driver, server)
    return not isinstance(state, NotObserved) and confirms_not_ready(instance, state)


async def _is_serving(driver: Driver, server: Server) -> bool:
    state = await _observe(driver, server)
    return not isinstance(state, NotObserved) and machine_serves(state)


async def _observe(driver: Driver, server: Server) -> Observation:
    try:
        return await driver.observe(machine_id_of(server))
    except DriverError:
        return NOT_OBSERVED


def _pause(deployment: WorkloadDeployment, instances: int) -> Debounce | None:
    """None after the pass that only put a guard on it."""
    if labels.WORKLOAD_FINALIZER not in deployment.metadata.finalizers:
        return None
    settings = deployment.spec.scale_settings
    each = ORDERED if settings.instance_management_policy == "OrderedReady" else PARALLEL
    many = max(instances, settings.min_replicas, FEWEST)
    quiet_s = each.idle_s * many
    return Debounce(max(quiet_s, SHORTEST_S) if each is PARALLEL else quiet_s, each.max_s * many)


def _instances_of(view: CachedClient, deployment: WorkloadDeployment) -> list[Instance]:
    """Those it owns, and those of its name that have lost their owner."""
    metadata, found = deployment.metadata, view.read(INSTANCE)
    return [*found.owned_by(metadata.uid), *found.indexed(LOST, str(ref_of(deployment)))]


def named_by_lost(instance: Instance) -> Iterable[str]:
    """The deployment of an instance that nobody owns."""
    name = instance.metadata.labels.get(labels.DEPLOYMENT_NAME)
    if name and not controller_uid(instance):
        yield str(Ref(instance.metadata.namespace, name))


def from_lost(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """By label, for an instance that has lost its owner."""
    metadata = change.latest.metadata
    name = metadata.labels.get(labels.DEPLOYMENT_NAME)
    if name and not controller_uid(change.latest):
        yield Key(view.plane, Ref(metadata.namespace, name))


def is_lost(instance: Instance) -> bool:
    return not controller_uid(instance)


CONTROLLER = Controller(
    name="deployment",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(DEPLOYMENT),
        owns(INSTANCE),
        watches(
            INSTANCE, from_lost, update_filter=lambda _old, new: is_lost(new), create_filter=is_lost
        ),
        reads(INSTANCE_TYPE),
        reads(SERVER),
    ),
    indexes=(Index(INSTANCE, LOST, named_by_lost),),
    finalizers=(labels.WORKLOAD_FINALIZER,),
)
