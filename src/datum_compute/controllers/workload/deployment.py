"""Deployment controller: reconciles a WorkloadDeployment on its cell to Instances and a status.

``planning/rollout/status.py`` makes the plan. Before a rollout relies on recorded readiness, this
controller confirms it with the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.server import Server
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, INSTANCE_TYPE, SERVER
from datum_compute.api.meta.objects import Ref, controller_uid, ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
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
from datum_compute.runtime.cache import Index, Lister
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
from datum_compute.runtime.predicates import new_state

# Delays of the debounce for each instance. A pass reads every instance, and every instance causes
# several events while it starts. With delays proportional to the number of instances, passes take
# the same small share of time for ten instances as for a thousand. With OrderedReady every step of
# a rollout waits for a pass, so the delays are shorter.
PARALLEL_PER_INSTANCE = Debounce(idle_s=200e-6, max_s=5e-3)
ORDERED_PER_INSTANCE = Debounce(idle_s=20e-6, max_s=500e-6)
OWNERLESS = "ownerless-instances"
# Fewer instances are debounced like this many, because each status is copied to the hub and to the
# project.
DEBOUNCE_MIN_INSTANCES = 50
# Longer than the time between two status writes of an instance that starts, so that these cause one
# reconcile. A machine becomes ready after the debounce, which therefore does not delay that event.
IDLE_MIN_S = 0.02


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    deployment = client.read(DEPLOYMENT).get(key.ref)
    if deployment is None:
        context.state.confirmed_instances.pop(key, None)
        return Done()
    instances = _instances_of(client, deployment)
    types = client.read(INSTANCE_TYPE)

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
    outcome = await apply_plan(context.planes, plan)
    return replace(outcome, debounce=_debounce(deployment, len(instances)))


async def _find_unobserved(
    context: Context, key: Key, deployment: WorkloadDeployment, instances: Sequence[Instance]
) -> frozenset[str]:
    """Return uids of instances whose recorded readiness the driver has not confirmed.

    Two kinds of instances need a confirmation: replacements recorded as ready, and outdated
    instances recorded as not ready. While this process did not run, a machine may have ended or
    recovered, and a rollout that relies on the record could remove instances that still serve. One
    confirmation per instance is enough, because later changes cause events. The driver is not
    queried if no instance is outdated and there is no surge instance.
    """
    driver, current = context.drivers.get(key.plane), template_hash(deployment.spec.template)
    updated = [i for i in instances if i.spec.controller.template_hash == current]
    is_rolling = len(updated) < len(instances) or deployment.status.surge is not None
    if driver is None or not is_rolling:
        return frozenset()
    recorded = context.state.confirmed_instances.get(key, frozenset())
    confirmed, missing = set[str](), set[str]()
    servers = context.planes.require(key.plane).read(SERVER)
    for instance in filter(is_ready, updated):
        uid = instance.metadata.uid
        if uid in recorded or (not missing and await _is_serving(driver, servers, instance)):
            confirmed.add(uid)
        else:
            missing.add(uid)
    for instance in instances:
        if instance.spec.controller.template_hash == current:
            continue
        uid, server = instance.metadata.uid, servers.get(ref_of(instance))
        if server is None or not needs_confirmation(instance, server):
            continue
        if uid in recorded or await _is_known_down(driver, instance, server):
            confirmed.add(uid)
        else:
            missing.add(uid)
    context.state.confirmed_instances[key] = frozenset(confirmed)
    return frozenset(missing)


async def _is_known_down(driver: Driver, instance: Instance, server: Server) -> bool:
    state = await _observe_deployment(driver, server)
    return not isinstance(state, NotObserved) and confirms_not_ready(instance, state)


async def _is_serving(driver: Driver, servers: Lister[Server], instance: Instance) -> bool:
    server = servers.get(ref_of(instance))
    if server is None:
        return False
    state = await _observe_deployment(driver, server)
    return not isinstance(state, NotObserved) and machine_serves(state)


async def _observe_deployment(driver: Driver, server: Server) -> Observation:
    try:
        return await driver.observe(machine_id_of(server))
    except DriverError:
        return NOT_OBSERVED


def _debounce(deployment: WorkloadDeployment, instances: int) -> Debounce | None:
    """Return the debounce; None after the pass that only adds the finalizer."""
    if labels.WORKLOAD_FINALIZER not in deployment.metadata.finalizers:
        return None
    settings = deployment.spec.scale_settings
    ordered = settings.instance_management_policy == "OrderedReady"
    per_instance = ORDERED_PER_INSTANCE if ordered else PARALLEL_PER_INSTANCE
    count = max(instances, settings.min_replicas, DEBOUNCE_MIN_INSTANCES)
    return Debounce(max(per_instance.idle_s * count, IDLE_MIN_S), per_instance.max_s * count)


def _instances_of(client: CachedClient, deployment: WorkloadDeployment) -> list[Instance]:
    """Return the instances that the deployment owns, and ownerless ones labeled with its name."""
    metadata, found = deployment.metadata, client.read(INSTANCE)
    return [
        *found.list_owned_by(metadata.uid),
        *found.list_by_index(OWNERLESS, str(ref_of(deployment))),
    ]


def index_ownerless(instance: Instance) -> Iterable[str]:
    """Yield the deployment that the label of an ownerless instance names."""
    name = instance.metadata.labels.get(labels.DEPLOYMENT_NAME)
    if name and not controller_uid(instance):
        yield str(Ref(instance.metadata.namespace, name))


def map_ownerless_instance(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map an ownerless instance to the deployment that its label names."""
    metadata = change.latest.metadata
    name = metadata.labels.get(labels.DEPLOYMENT_NAME)
    if name and not controller_uid(change.latest):
        yield Key(client.plane, Ref(metadata.namespace, name))


def is_ownerless(instance: Instance) -> bool:
    return not controller_uid(instance)


CONTROLLER = Controller(
    name="deployment",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(DEPLOYMENT),
        owns(INSTANCE),
        watches(
            INSTANCE,
            map_ownerless_instance,
            update_filter=new_state(is_ownerless),
            create_filter=is_ownerless,
        ),
        reads(INSTANCE_TYPE),
        reads(SERVER),
    ),
    indexes=(Index(INSTANCE, OWNERLESS, index_ownerless),),
    finalizers=(labels.WORKLOAD_FINALIZER,),
)
