"""A deployment on its cell: guard, instances and status."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    decided,
    is_true,
    with_condition,
)
from datum_compute.api.instance import AVAILABLE, PROGRAMMED, Instance
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.plane import PlaneName
from datum_compute.api.reasons import Reason
from datum_compute.api.workloaddeployment import (
    ObservedSource,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.planning.actions import Create, Plan, Wait, add_finalizer, drop_finalizer
from datum_compute.planning.blocking import blocked_slots, worst_cause
from datum_compute.planning.grantedslots import SizeOf, recorded_slots
from datum_compute.planning.instances import plan_slots, wanted_replicas
from datum_compute.planning.newinstance import location_of
from datum_compute.planning.objects import plan_status
from datum_compute.planning.ordinals import Slots, is_ready, slots_of
from datum_compute.planning.progress import deadline_in_s, progressed_at, progressing
from datum_compute.planning.sizing import Size
from datum_compute.planning.template import template_hash

REPLICAS_READY = "ReplicasReady"
# A missed event costs at most this long.
RECHECK_S = 60.0

_QUOTA = (Reason.PENDING_QUOTA, Reason.QUOTA_EXCEEDED)


def _of_unknown_size(_instance: Instance) -> Size | None:
    return None


def plan_deployment(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    now: str,
    size_of: SizeOf = _of_unknown_size,
) -> Plan:
    """``size_of`` says what an instance counts as for quota."""
    guard = add_finalizer(plane, DEPLOYMENT, deployment, labels.WORKLOAD_FINALIZER)
    if guard:
        return Plan(tuple(guard))
    if deployment.is_terminating and not instances:
        released = drop_finalizer(plane, DEPLOYMENT, deployment, labels.WORKLOAD_FINALIZER)
        return Plan(tuple(released))
    slots = slots_of(deployment.metadata.name, instances)
    steps = plan_slots(plane, deployment, slots)
    if not deployment.status.observed_generation and _makes_any(steps):
        return steps  # its first word comes with them
    status = _status(deployment, instances, slots, now, size_of)
    waits = any(isinstance(step, Wait) for step in steps.actions)
    due = [RECHECK_S] if waits else []
    deadline = deadline_in_s(deployment, status, now)
    return Plan(
        (*steps.actions, *plan_status(plane, DEPLOYMENT, deployment, status)),
        requeue_after_s=min([*due, *([] if deadline is None else [deadline])], default=None),
    )


def _makes_any(steps: Plan) -> bool:
    return any(isinstance(step, Create) and not step.skipped for step in steps.actions)


def deployment_status(
    deployment: WorkloadDeployment, instances: Sequence[Instance], now: str
) -> WorkloadDeploymentStatus:
    slots = slots_of(deployment.metadata.name, instances)
    return _status(deployment, instances, slots, now, _of_unknown_size)


def _status(
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    slots: Slots,
    now: str,
    size_of: SizeOf,
) -> WorkloadDeploymentStatus:
    """Counts and conditions; updated follows the observed hash, ready or not."""
    current = template_hash(deployment.spec.template)
    updated = [i for i in instances if i.status.controller.observed_template_hash == current]
    wanted = wanted_replicas(deployment)
    counted = WorkloadDeploymentStatus(
        replicas=len(instances),
        updated_replicas=len(updated),
        current_replicas=sum(is_true(i.status.conditions, PROGRAMMED) for i in updated),
        ready_replicas=sum(is_ready(i) for i in instances),
        desired_replicas=wanted,
        blocked=blocked_slots(slots, wanted),
        observed_generation=deployment.metadata.generation,
        observed_source=_source(deployment),
        selector=f"{labels.DEPLOYMENT_NAME}={deployment.metadata.name}",
        location=location_of(deployment),
        endpoints=deployment.status.endpoints,  # of whoever publishes its ports
        granted=recorded_slots(deployment, slots.held, wanted, size_of),
    )
    stepped = progressed_at(deployment, counted, now)
    counted = msgspec.structs.replace(counted, progressed_at=stepped)
    conditions = deployment.status.conditions
    for condition in (
        _available(deployment, counted, slots, now),
        _replicas_ready(deployment, counted, now),
        progressing(deployment, counted, now),
    ):
        conditions = with_condition(conditions, condition)
    return msgspec.structs.replace(counted, conditions=conditions)


def _available(
    deployment: WorkloadDeployment, counted: WorkloadDeploymentStatus, slots: Slots, now: str
) -> Condition:
    ready, desired = counted.ready_replicas, counted.desired_replicas
    if ready:
        message = f"{ready}/{desired} instances are ready"
        verdict = Verdict(TRUE, Reason.STABLE_INSTANCE_FOUND, message)
    else:
        verdict = Verdict(FALSE, *worst_cause(slots, desired))
    return decided(AVAILABLE, verdict, generation=deployment.metadata.generation, now=now)


def _replicas_ready(
    deployment: WorkloadDeployment, counted: WorkloadDeploymentStatus, now: str
) -> Condition:
    """All that is wanted is ready, or what holds back the rest: one that is ready hides nothing."""
    generation, desired = deployment.metadata.generation, counted.desired_replicas
    if not counted.blocked:
        message = f"{desired} of {desired} desired replicas are ready"
        verdict = Verdict(TRUE, Reason.REPLICAS_AVAILABLE, message)
        return decided(REPLICAS_READY, verdict, generation=generation, now=now)
    worst = counted.blocked[0]
    if worst.reason in _QUOTA:
        message = f"{worst.replicas} of {desired} desired replicas are pending quota"
        verdict = Verdict(FALSE, Reason.QUOTA_EXCEEDED, message)
    else:
        message = f"{worst.replicas} of {desired} desired replicas: {worst.message}"
        verdict = Verdict(FALSE, worst.reason, message)
    return decided(REPLICAS_READY, verdict, generation=generation, now=now)


def _source(deployment: WorkloadDeployment) -> ObservedSource:
    """What the federator stamped on the spec that this status is about."""
    annotations = deployment.metadata.annotations
    generation = annotations.get(labels.SOURCE_GENERATION, "")
    return ObservedSource(
        generation=int(generation) if generation.isdecimal() and len(generation) < 19 else 0,
        template_hash=annotations.get(labels.SOURCE_TEMPLATE_HASH, ""),
    )
