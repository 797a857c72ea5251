"""A deployment on its cell: guard, instances and status."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    Verdict,
    decided,
    is_true,
    with_condition,
)
from datum_compute.api.instance import AVAILABLE, PROGRAMMED, Instance
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.plane import PlaneName
from datum_compute.api.reasons import (
    QUOTA_DENIED_ON_REPLICAS,
    Reason,
    as_replicas_ready_reason,
)
from datum_compute.api.workloaddeployment import (
    REPLICAS_READY,
    ObservedSource,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.planning.apply import plan_status
from datum_compute.planning.availability import MinReady, min_ready_seconds
from datum_compute.planning.blocking import blocked_slots, cause_of, worst_cause
from datum_compute.planning.grantedslots import SizeOf, recorded_slots
from datum_compute.planning.newinstance import location_of
from datum_compute.planning.plan import Create, Plan, Wait, add_finalizer, drop_finalizer
from datum_compute.planning.progress import (
    TimedWait,
    deadline_in_s,
    measure_progress,
    progressing,
    timed_waits,
)
from datum_compute.planning.rollout.instances import plan_slots, wanted_replicas
from datum_compute.planning.rollout.slots import Slots, is_ready, slots_of
from datum_compute.planning.sizing import Size
from datum_compute.planning.template import template_hash

# A missed event costs at most this long.
RECHECK_S = 60.0
# An observation that confirms the recorded state causes no event, so the plan is computed again.
OBSERVE_AGAIN_S = 1.0


def _of_unknown_size(_instance: Instance) -> Size | None:
    return None


def plan_deployment(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    now: str,
    size_of: SizeOf = _of_unknown_size,
    *,
    simulated: bool = False,
    unobserved: frozenset[str] = frozenset(),
) -> Plan:
    """``size_of`` returns the size of an instance for quota; ``simulated``: the cell runs the
    simulated driver; ``unobserved`` are uids of instances whose readiness is not confirmed."""
    guard = add_finalizer(plane, DEPLOYMENT, deployment, labels.WORKLOAD_FINALIZER)
    if guard:
        return Plan(tuple(guard))
    if deployment.is_terminating and not instances:
        released = drop_finalizer(plane, DEPLOYMENT, deployment, labels.WORKLOAD_FINALIZER)
        return Plan(tuple(released))
    seconds = min_ready_seconds(deployment, simulated=simulated)
    min_ready = MinReady(seconds, now, unobserved)
    slots = slots_of(deployment.metadata.name, instances, min_ready)
    steps = plan_slots(plane, deployment, slots)
    if not deployment.status.observed_generation and _makes_any(steps):
        return steps  # the first status is written together with the first instances
    timed = timed_waits(instances, min_ready)
    status = _status(deployment, instances, slots, min_ready, timed, size_of)
    return Plan(
        (*steps.actions, *plan_status(plane, DEPLOYMENT, deployment, status)),
        requeue_after_s=_requeue_s(deployment, instances, steps, status, min_ready, timed),
    )


def _requeue_s(
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    steps: Plan,
    status: WorkloadDeploymentStatus,
    min_ready: MinReady,
    timed: TimedWait,
) -> float | None:
    """Return when the next pass is due without an event: when an instance becomes available, or
    when a grace period or the deadline passes."""
    due = [deadline_in_s(deployment, status, min_ready.now, timed), timed.remaining_s or None]
    due += [min_ready.seconds_until_available(instance) for instance in instances]
    due += [OBSERVE_AGAIN_S for _ in min_ready.unobserved]
    due += [RECHECK_S for step in steps.actions if isinstance(step, Wait)]
    return min((seconds for seconds in due if seconds is not None), default=None)


def _makes_any(steps: Plan) -> bool:
    return any(isinstance(step, Create) and not step.skipped for step in steps.actions)


def deployment_status(
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    now: str,
    *,
    simulated: bool = False,
) -> WorkloadDeploymentStatus:
    min_ready = MinReady(min_ready_seconds(deployment, simulated=simulated), now)
    slots = slots_of(deployment.metadata.name, instances, min_ready)
    timed = timed_waits(instances, min_ready)
    return _status(deployment, instances, slots, min_ready, timed, _of_unknown_size)


def _status(
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    slots: Slots,
    min_ready: MinReady,
    timed: TimedWait,
    size_of: SizeOf,
) -> WorkloadDeploymentStatus:
    """Counts and conditions; updated follows the observed hash, ready or not."""
    now = min_ready.now
    current = template_hash(deployment.spec.template)
    updated = [i for i in instances if i.status.controller.observed_template_hash == current]
    wanted = wanted_replicas(deployment)
    counted = WorkloadDeploymentStatus(
        replicas=len(instances),
        updated_replicas=len(updated),
        current_replicas=sum(is_true(i.status.conditions, PROGRAMMED) for i in updated),
        ready_replicas=sum(is_ready(i) for i in instances),
        available_replicas=sum(min_ready.is_available(i) for i in instances),
        desired_replicas=wanted,
        blocked=blocked_slots(slots, wanted),
        observed_generation=deployment.metadata.generation,
        observed_source=_source(deployment),
        selector=f"{labels.DEPLOYMENT_NAME}={deployment.metadata.name}",
        location=location_of(deployment),
        endpoints=deployment.status.endpoints,  # the publishing controller writes them
        granted=recorded_slots(deployment, slots.held, wanted, size_of),
    )
    progress = measure_progress(deployment, counted, now)
    counted = msgspec.structs.replace(
        counted, progressed_at=progress.at, progress_reached=progress.reached
    )
    conditions = deployment.status.conditions
    for condition in (
        _available(deployment, counted, slots, now),
        _replicas_ready(deployment, counted, slots, now),
        progressing(deployment, counted, now, timed),
    ):
        conditions = with_condition(conditions, condition)
    return msgspec.structs.replace(counted, conditions=conditions)


def _available(
    deployment: WorkloadDeployment, counted: WorkloadDeploymentStatus, slots: Slots, now: str
) -> Condition:
    """Return the Available condition: True if any instance is ready.

    It is Unknown if no instance is known to be ready and at least one may be. It does not depend on
    ``minReadySeconds``, unlike ``availableReplicas``.
    """
    ready, desired = counted.ready_replicas, counted.desired_replicas
    if ready:
        message = f"{ready}/{desired} instances are ready"
        verdict = Verdict(TRUE, Reason.STABLE_INSTANCE_FOUND, message)
    elif slots.serving:
        cause = cause_of(slots.held[min(slots.serving)])
        verdict = Verdict(UNKNOWN, cause.reason, cause.message)
    else:
        verdict = Verdict(FALSE, *worst_cause(slots, desired))
    return decided(AVAILABLE, verdict, generation=deployment.metadata.generation, now=now)


def _replicas_ready(
    deployment: WorkloadDeployment, counted: WorkloadDeploymentStatus, slots: Slots, now: str
) -> Condition:
    """Return the ReplicasReady condition: True if all desired instances are ready.

    Otherwise it has the worst cause of those that are not. It is Unknown if all of those may be
    ready, because fallback cities and users act on False. A deployment that is being deleted is
    never ready: it desires no instances, and the project that mirrors this status may still do.
    """
    generation, desired = deployment.metadata.generation, counted.desired_replicas
    if deployment.is_terminating:
        verdict = Verdict(FALSE, Reason.REMOVING, "The deployment is being deleted on its cell")
        return decided(REPLICAS_READY, verdict, generation=generation, now=now)
    if not counted.blocked:
        message = f"{desired} of {desired} desired replicas are ready"
        verdict = Verdict(TRUE, Reason.REPLICAS_AVAILABLE, message)
        return decided(REPLICAS_READY, verdict, generation=generation, now=now)
    worst = counted.blocked[0]
    reason = as_replicas_ready_reason(worst.reason)
    if reason == QUOTA_DENIED_ON_REPLICAS:
        message = f"{worst.replicas} of {desired} desired replicas are pending quota"
        verdict = Verdict(FALSE, reason, message)
    else:
        message = f"{worst.replicas} of {desired} desired replicas: {worst.message}"
        may_serve = all(number in slots.serving for number in range(desired))
        verdict = Verdict(UNKNOWN if may_serve else FALSE, reason, message)
    return decided(REPLICAS_READY, verdict, generation=generation, now=now)


def _source(deployment: WorkloadDeployment) -> ObservedSource:
    """What the federator stamped on the spec that this status is about."""
    annotations = deployment.metadata.annotations
    generation = annotations.get(labels.SOURCE_GENERATION, "")
    return ObservedSource(
        generation=int(generation) if generation.isdecimal() and len(generation) < 19 else 0,
        template_hash=annotations.get(labels.SOURCE_TEMPLATE_HASH, ""),
    )
