"""The plan of a deployment on its cell: finalizer, instances and status.

Rules of the status:
- Available is True if any instance is ready. ReplicasReady is True if all desired instances are
  ready. Otherwise both report the cause with the highest rank (``planning/reasons.py``).
- ``blocked`` counts the desired instances that are not ready, by reason.

Rules of Progressing, the condition of a rollout:
- Progress is a number: instances updated plus instances available, including surge instances,
  minus instances to be removed. A rollout makes a step when the number exceeds all earlier ones of
  the same generation, or when the generation is new. The highest number and the time of the last
  step are kept in the status, so that the deadline survives a restart. An instance that recovers
  after it was lost, or after its readiness was Unknown, is therefore no step.
- Timed waits delay the deadline: the grace period of an instance that is stopping, and
  ``minReadySeconds`` of an instance that has become Ready. The deadline is counted from their end.
  They do not revoke a deadline that has passed.
- Becoming Ready is no step; becoming available is. An image that repeatedly is Ready for a moment
  and exits therefore makes no progress.
- A complete rollout stays complete until the spec changes. An instance that fails later does not
  start a new rollout.
- A suspended or stopped deployment has no deadline. When it resumes, the time of the last step is
  the time of the resumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import (
    REPLICAS_READY,
    ObservedSource,
    SurgeSlots,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.api.compute.instance import AVAILABLE, PROGRAMMED, READY, Instance
from datum_compute.api.compute.workload import PROGRESSING, BlockedReplicas, ReplicaCounts
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    is_true,
    make_condition,
    with_condition,
)
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta.objects import controller_uid, ref_of
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.planes import PlaneName
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import (
    Create,
    Delete,
    Plan,
    Wait,
    add_finalizer,
    drop_finalizer,
)
from datum_compute.planning.quota.claims import InstanceSize, InstanceSizeLookup, recorded_slots
from datum_compute.planning.reasons import (
    NO_INSTANCES,
    QUOTA_DENIED_ON_DEPLOYMENT,
    QUOTA_DENIED_ON_REPLICAS,
    as_deployment_reason,
    as_replicas_ready_reason,
    rank_of,
    worst_cause,
)
from datum_compute.planning.rollout.gates import NETWORK, gate_names
from datum_compute.planning.rollout.instances import observe_surge, plan_slots
from datum_compute.planning.rollout.slots import (
    MinReady,
    Slots,
    is_ready,
    location_of,
    min_ready_seconds,
    slots_of,
    wanted_replicas,
)
from datum_compute.planning.rollout.stopping import grace_left_s, render_stopping, stopping_value
from datum_compute.planning.rollout.surge import Surge, surge_conditions
from datum_compute.planning.rollout.suspension import (
    halt_cause,
    halt_reason,
    halted_value,
    resumed_at,
    resuming_instances,
)
from datum_compute.planning.workload.names import is_same_workload, labeled_workload
from datum_compute.planning.workload.templates import template_hash


def count_blocked_by_reason(
    slots: Slots, wanted: int, halted: Reason | None = None
) -> list[BlockedReplicas]:
    """Return the wanted slots that are not ready, counted by reason.

    Ready and blocked slots together are all wanted slots. ``halted`` is the reason of a suspended
    or stopped deployment, which fills no empty slot.
    """
    causes = [
        halted_value(halted)
        if halted is not None and number not in slots.by_ordinal
        else not_ready_cause(slots.by_ordinal.get(number))
        for number in range(wanted)
        if number not in slots.ready
    ]
    return _count_by_reason((value.reason, 1, value.message) for value in causes)


def sum_blocked(parts: Iterable[Sequence[BlockedReplicas]]) -> list[BlockedReplicas]:
    return _count_by_reason((b.reason, b.replicas, b.message) for blocked in parts for b in blocked)


def _count_by_reason(found: Iterable[tuple[str, int, str]]) -> list[BlockedReplicas]:
    """Sum up replicas by reason, ordered by rank, then by reason.

    Each reason keeps the message of its first occurrence.
    """
    counts: dict[str, int] = {}
    messages: dict[str, str] = {}
    for reason, replicas, message in found:
        counts[reason] = counts.get(reason, 0) + replicas
        messages.setdefault(reason, message)
    ordered = sorted(counts, key=lambda reason: (-rank_of(reason), reason))
    return [
        BlockedReplicas(reason=str(reason), replicas=counts[reason], message=messages[reason])
        for reason in ordered
    ]


def not_ready_cause(instance: Instance | None) -> ConditionValue:
    """Return why a slot is not ready; None as ``instance`` means that the slot is empty."""
    if instance is None:
        return ConditionValue(FALSE, Reason.AWAITING_CREATION, "The instance is not created yet")
    if instance.is_terminating:
        return stopping_value(instance)
    ready = find_condition(instance.status.conditions, READY)
    if ready is None:
        return ConditionValue(FALSE, Reason.PENDING, "The instance has not been observed yet")
    return ConditionValue(ready.status, ready.reason, ready.message)


def summary_cause(slots: Slots, wanted: int) -> ConditionValue:
    """Return the value of Available of a deployment without ready instances.

    It is the cause with the highest rank, with the message of its instance; ties go to the lowest
    ordinal.
    """
    instances = [slots.by_ordinal[number] for number in range(wanted) if number in slots.by_ordinal]
    causes = [_as_deployment_cause(not_ready_cause(instance), instance) for instance in instances]
    worst = worst_cause((NO_INSTANCES, *causes)) or NO_INSTANCES
    if worst.reason != QUOTA_DENIED_ON_DEPLOYMENT:
        return worst
    pending = sum(cause.reason == QUOTA_DENIED_ON_DEPLOYMENT for cause in causes)
    message = f"{pending} of {wanted} desired instances pending quota: {worst.message}"
    return worst._replace(message=message)


def _as_deployment_cause(value: ConditionValue, instance: Instance) -> ConditionValue:
    """Return the cause of an instance as its deployment reports it."""
    if value.reason == Reason.SCHEDULING_GATES_PRESENT and gate_names(instance) == [NETWORK]:
        return ConditionValue(FALSE, Reason.NETWORK_PROVISIONING, "Waiting for the network")
    return ConditionValue(FALSE, as_deployment_reason(value.reason), value.message)


@dataclass(frozen=True, slots=True)
class TimedWait:
    """A wait of a rollout that ends by itself after a known time."""

    # Seconds until the last of the waits ends; 0 if all have ended.
    remaining_s: float = 0.0
    # Seconds since the last wait ended; None if there was no wait, or if one continues.
    overdue_s: float | None = None
    # Message for users while a wait continues; otherwise empty.
    message: str = ""
    # Seconds until the next instance has been Ready for long enough; None if none is waited for.
    available_in_s: float | None = None


NO_TIMED_WAIT = TimedWait()


def timed_waits(instances: Sequence[Instance], min_ready: MinReady) -> TimedWait:
    """Return the wait for instances that are stopping or have not been Ready for long enough."""
    stopping = [
        (instance, left_s)
        for instance in instances
        if instance.is_terminating and (left_s := grace_left_s(instance, min_ready.now)) is not None
    ]
    settling = [
        (instance, left_s)
        for instance in instances
        if (left_s := min_ready.seconds_until_available(instance)) is not None
    ]
    longest_s = max((left_s for _, left_s in (*stopping, *settling)), default=None)
    if longest_s is None:
        return NO_TIMED_WAIT
    if longest_s <= 0:
        return TimedWait(overdue_s=-longest_s)
    slow = [instance for instance, left_s in stopping if left_s > 0]
    if slow:
        message = render_stopping(slow)
    else:
        message = _settling_text([instance for instance, _ in settling], min_ready)
    available_in_s = min((left_s for _, left_s in settling), default=None)
    return TimedWait(remaining_s=longest_s, message=message, available_in_s=available_in_s)


def _settling_text(instances: Sequence[Instance], min_ready: MinReady) -> str:
    if len(instances) == 1:
        subject = f"{instances[0].metadata.name} has"
    else:
        subject = f"{len(instances)} instances have"
    return f"waiting until {subject} been ready for {min_ready.seconds} s"


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """The progress of a rollout, as it is kept in the status."""

    # The highest progress number so far; None if the rollout is complete.
    reached: int | None
    # The time of the last step (RFC 3339).
    at: str


def measure_progress(
    deployment: WorkloadDeployment,
    observed: WorkloadDeploymentStatus,
    now: str,
    *,
    available_surge: int = 0,
) -> RolloutProgress:
    """Return the progress of the rollout, given the counts observed now.

    ``available_surge`` is the number of surge instances that are available.
    """
    before = deployment.status
    is_new = before.observed_generation != deployment.metadata.generation
    reached = _count_progress(observed) + available_surge
    if is_new or before.progressed_at is None:
        step_at = now
    else:
        # Earlier releases recorded only the counts, so the number is computed from them.
        earlier = before.progress_reached
        if earlier is None:
            earlier = _count_progress(before)
        step_at = now if reached > earlier else before.progressed_at
        reached = max(reached, earlier)
    is_over = is_complete(observed) or _was_complete(deployment)
    return RolloutProgress(reached=None if is_over else reached, at=step_at)


def _count_progress(counts: ReplicaCounts) -> int:
    kept = min(counts.updated_replicas, counts.desired_replicas)
    to_be_removed = max(0, counts.replicas - kept)
    return counts.updated_replicas + counts.available_or_ready - to_be_removed


def progressing_condition(
    deployment: WorkloadDeployment,
    observed: WorkloadDeploymentStatus,
    now: str,
    timed: TimedWait = NO_TIMED_WAIT,
) -> Condition:
    """Return Progressing. ``observed`` has the counts and ``progressed_at`` as of now."""
    value = _progressing_value(deployment, observed, now, timed)
    return make_condition(PROGRESSING, value, generation=deployment.metadata.generation, now=now)


def deadline_in_s(
    deployment: WorkloadDeployment,
    observed: WorkloadDeploymentStatus,
    now: str,
    timed: TimedWait = NO_TIMED_WAIT,
) -> float | None:
    """Return the seconds after which a check finds the deadline passed; None without a rollout."""
    condition = find_condition(observed.conditions, PROGRESSING)
    if condition is None or condition.reason != Reason.ROLLING_OUT:
        return None
    return max(1.0, _left_s(deployment, observed, now, timed) + 1.0)


def _progressing_value(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str, timed: TimedWait
) -> ConditionValue:
    generation = deployment.metadata.generation
    if is_complete(observed) or _was_complete(deployment):
        return ConditionValue(
            TRUE, Reason.ROLLOUT_COMPLETE, f"Generation {generation} is rolled out"
        )
    updated = f"{observed.updated_replicas} of {observed.desired_replicas} instances are updated"
    if deployment.spec.paused:
        return ConditionValue(UNKNOWN, Reason.ROLLOUT_PAUSED, f"Paused: {updated}")
    is_late = _left_s(deployment, observed, now, timed) < 0
    if is_late or _is_still_exceeded(deployment, observed):
        allowed = deployment.spec.scale_settings.progress_deadline_seconds
        ready = f"{observed.ready_replicas} are ready"
        if observed.available_or_ready != observed.ready_replicas:
            ready += f", {observed.available_or_ready} are available"
        message = f"No progress for more than {allowed} s: {updated}, {ready}"
        return ConditionValue(FALSE, Reason.PROGRESS_DEADLINE_EXCEEDED, message)
    message = f"{updated}; {timed.message}" if timed.message else updated
    return ConditionValue(TRUE, Reason.ROLLING_OUT, message)


def is_complete(counts: ReplicaCounts) -> bool:
    """Return True if exactly the wanted instances exist, all updated, ready and available.

    Surge instances are removed before a rollout is complete.
    """
    return (
        counts.replicas
        == counts.updated_replicas
        == counts.ready_replicas
        == counts.available_or_ready
        == counts.desired_replicas
    ) and not counts.surge_replicas


def _was_complete(deployment: WorkloadDeployment) -> bool:
    """Return True if the rollout of this generation was reported as complete."""
    return _was_reported(deployment, Reason.ROLLOUT_COMPLETE)


def _is_still_exceeded(deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus) -> bool:
    """Return True if the deadline was reported as exceeded, and no step was made since.

    A timed wait that starts later does not revoke it. Otherwise an image that is Ready for a moment
    and exits would alternate between RollingOut and ProgressDeadlineExceeded.
    """
    return (
        _was_reported(deployment, Reason.PROGRESS_DEADLINE_EXCEEDED)
        and observed.progressed_at == deployment.status.progressed_at
    )


def _was_reported(deployment: WorkloadDeployment, reason: Reason) -> bool:
    """Return True if Progressing is recorded with this reason for the current generation."""
    condition = find_condition(deployment.status.conditions, PROGRESSING)
    return (
        condition is not None
        and condition.reason == reason
        and condition.observed_generation == deployment.metadata.generation
    )


def _left_s(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str, timed: TimedWait
) -> float:
    """Return the seconds until the deadline, negative afterwards.

    The deadline is counted from the last step or from the end of a timed wait, whichever is later.
    """
    allowed = deployment.spec.scale_settings.progress_deadline_seconds
    since_step_s = parse_timestamp(now) - parse_timestamp(observed.progressed_at or now)
    if timed.remaining_s > 0:
        return allowed + timed.remaining_s
    if timed.overdue_s is not None:
        since_step_s = min(since_step_s, timed.overdue_s)
    return allowed - since_step_s


# Upper limit of the delay after a missed event.
RECHECK_S = 60.0
# Requeue delay while the readiness of an instance is not confirmed, because an observation that
# confirms the recorded state causes no event.
OBSERVE_AGAIN_S = 1.0


def _no_size(_instance: Instance) -> InstanceSize | None:
    return None


def plan_deployment(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    now: str,
    size_of: InstanceSizeLookup = _no_size,
    *,
    simulated: bool = False,
    unobserved: frozenset[str] = frozenset(),
) -> Plan:
    """Plan the finalizer, the instances and the status of a deployment.

    ``size_of`` returns the size of an instance for quota. ``simulated`` is True if the cell runs
    the simulated driver. ``unobserved`` are uids of instances whose readiness is not confirmed.
    """
    finalizer_patches = add_finalizer(plane, DEPLOYMENT, deployment, labels.WORKLOAD_FINALIZER)
    if finalizer_patches:
        return Plan(tuple(finalizer_patches))
    if deployment.is_terminating and not instances:
        released = drop_finalizer(plane, DEPLOYMENT, deployment, labels.WORKLOAD_FINALIZER)
        return Plan(tuple(released))
    if earlier := [i for i in instances if _is_of_earlier_workload(deployment, i)]:
        return _plan_removal_of(plane, earlier)
    seconds = min_ready_seconds(deployment, simulated=simulated)
    unobserved |= resuming_instances(deployment, instances, now)
    min_ready = MinReady(seconds, now, unobserved)
    slots = slots_of(deployment.metadata.name, instances, min_ready)
    surge = observe_surge(deployment, slots, now)
    steps = plan_slots(plane, deployment, slots, surge)
    if not deployment.status.observed_generation and _creates_any(steps):
        return steps  # the first status is written together with the first instances
    timed = timed_waits(instances, min_ready)
    observed = _Observed(instances, slots, surge, min_ready, timed)
    status = _build_status(deployment, observed, size_of)
    return Plan(
        (*steps.actions, *plan_status(plane, DEPLOYMENT, deployment, status)),
        requeue_after_s=_requeue_s(deployment, observed, steps, status),
    )


def _is_of_earlier_workload(deployment: WorkloadDeployment, instance: Instance) -> bool:
    """Return True for an ownerless instance of an earlier deployment with the same name.

    Such an instance is left if its deployment was deleted with its finalizer removed by hand.
    """
    uid = deployment.spec.workload_ref.uid
    return not controller_uid(instance) and not is_same_workload(labeled_workload(instance), uid)


def _plan_removal_of(plane: PlaneName, instances: Sequence[Instance]) -> Plan:
    """Delete the instances. Their names are free for those of the deployment when they are gone."""
    reason = "it belongs to an earlier workload"
    deletes = [
        Delete(plane, INSTANCE, ref_of(i), i.metadata.uid, reason)
        for i in instances
        if not i.is_terminating
    ]
    wait = Wait("instances of an earlier workload are being removed")
    return Plan((*deletes, wait), requeue_after_s=RECHECK_S)


@dataclass(frozen=True, slots=True)
class _Observed:
    """The observed instances of a deployment, their slots, and the waits that end by themselves."""

    instances: Sequence[Instance]
    slots: Slots
    surge: Surge
    min_ready: MinReady
    timed: TimedWait

    def without_surge(self) -> list[Instance]:
        """Return the instances that the counts of the status include."""
        if not self.surge.members:
            return list(self.instances)
        names = {self.slots.by_ordinal[n].metadata.name for n in self.surge.members}
        return [i for i in self.instances if i.metadata.name not in names]


def _requeue_s(
    deployment: WorkloadDeployment,
    observed: _Observed,
    steps: Plan,
    status: WorkloadDeploymentStatus,
) -> float | None:
    """Return the delay until the next pass if no event occurs; None if no pass is due.

    A pass is due when an instance becomes available, when a grace period or the deadline ends, when
    a surge instance has waited long enough, when an instance has to be observed again, and
    regularly while the plan waits.
    """
    min_ready, timed = observed.min_ready, observed.timed
    due = [deadline_in_s(deployment, status, min_ready.now, timed), timed.remaining_s or None]
    due.append(timed.available_in_s)
    due += [OBSERVE_AGAIN_S for _ in min_ready.unobserved]
    due += [RECHECK_S for step in steps.actions if isinstance(step, Wait)]
    due.append(observed.surge.requeue_after_s)
    return min((seconds for seconds in due if seconds is not None), default=None)


def _creates_any(steps: Plan) -> bool:
    return any(isinstance(step, Create) and not step.deferred for step in steps.actions)


def deployment_status(
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    now: str,
    *,
    simulated: bool = False,
) -> WorkloadDeploymentStatus:
    min_ready = MinReady(min_ready_seconds(deployment, simulated=simulated), now)
    slots = slots_of(deployment.metadata.name, instances, min_ready)
    surge = observe_surge(deployment, slots, now)
    observed = _Observed(instances, slots, surge, min_ready, timed_waits(instances, min_ready))
    return _build_status(deployment, observed, _no_size)


def _with_blocked_surge(surge: Surge, slots: Slots) -> SurgeSlots | None:
    """Return the record of the surge slots with the causes of those that are not ready."""
    if surge.record is None:
        return None
    causes = [
        not_ready_cause(slots.by_ordinal.get(number))
        for number in sorted(surge.members)
        if number not in slots.ready
    ]
    blocked = _count_by_reason((value.reason, 1, value.message) for value in causes)
    return msgspec.structs.replace(surge.record, blocked=blocked)


def _build_status(
    deployment: WorkloadDeployment, observed: _Observed, size_of: InstanceSizeLookup
) -> WorkloadDeploymentStatus:
    """Return the status of a deployment.

    An instance counts as updated if its observed template hash is current, even if it is not ready.
    """
    slots, surge, min_ready = observed.slots, observed.surge, observed.min_ready
    instances, now = observed.without_surge(), min_ready.now
    halted = None if deployment.is_terminating else halt_reason(deployment.spec)
    current = template_hash(deployment.spec.template)
    updated = [i for i in instances if i.status.controller.observed_template_hash == current]
    ready = [i for i in instances if is_ready(i)]
    wanted = wanted_replicas(deployment)
    counted = WorkloadDeploymentStatus(
        replicas=len(instances),
        updated_replicas=len(updated),
        current_replicas=sum(is_true(i.status.conditions, PROGRAMMED) for i in updated),
        ready_replicas=len(ready),
        available_replicas=sum(min_ready.is_available(i) for i in ready),
        desired_replicas=wanted,
        surge_replicas=len(surge.members),
        covered_replicas=min(max(0, wanted - len(ready)), len(surge.members & slots.ready)),
        blocked=count_blocked_by_reason(slots, wanted, halted),
        observed_generation=deployment.metadata.generation,
        observed_source=_observed_source(deployment, current),
        selector=f"{labels.DEPLOYMENT_NAME}={deployment.metadata.name}",
        location=location_of(deployment),
        endpoints=deployment.status.endpoints,  # the publishing controller writes them
        granted=recorded_slots(deployment, slots.by_ordinal, wanted, size_of),
        surge=_with_blocked_surge(surge, slots),
    )
    progress = measure_progress(deployment, counted, now, available_surge=len(surge.available))
    counted = msgspec.structs.replace(
        counted,
        progressed_at=progress.at,
        progress_reached=progress.reached,
        resumed_at=resumed_at(deployment, now),
    )
    conditions = surge_conditions(deployment, surge, now)
    if halted is not None:
        updates = _halted_conditions(deployment, observed.instances, halted, now)
    else:
        updates = (
            _available_condition(deployment, counted, observed),
            _replicas_ready_condition(deployment, counted, slots, now),
            progressing_condition(deployment, counted, now, observed.timed),
        )
    for condition in updates:
        conditions = with_condition(conditions, condition)
    return msgspec.structs.replace(counted, conditions=conditions)


def _halted_conditions(
    deployment: WorkloadDeployment, instances: Sequence[Instance], reason: Reason, now: str
) -> tuple[Condition, ...]:
    """Return the conditions of a suspended or stopped deployment.

    Available has the reason of the halt as soon as no instance runs. It is Unknown if the driver
    cannot observe an instance. Progressing is Unknown, and no deadline runs.
    """
    causes = [not_ready_cause(instance) for instance in instances]
    unconfirmed = [cause for cause in causes if cause.reason != reason]
    unobserved = [cause for cause in unconfirmed if cause.status == UNKNOWN]
    halted = halted_value(reason)
    if not unconfirmed:
        available = halted
    elif unobserved:
        available = unobserved[0]
    else:
        message = f"{len(unconfirmed)} of {len(instances)} instances are being stopped, because "
        available = ConditionValue(FALSE, Reason.STOPPING, message + halt_cause(reason))
    progressing = ConditionValue(UNKNOWN, reason, halted.message)
    values = {AVAILABLE: available, REPLICAS_READY: halted, PROGRESSING: progressing}
    generation = deployment.metadata.generation
    return tuple(
        make_condition(type_, value, generation=generation, now=now)
        for type_, value in values.items()
    )


def _available_condition(
    deployment: WorkloadDeployment, counted: WorkloadDeploymentStatus, observed: _Observed
) -> Condition:
    """Return the Available condition: True if any instance is ready, also a surge instance.

    It is Unknown if no instance is known to be ready and at least one may be. It does not depend on
    ``minReadySeconds``, unlike ``availableReplicas``.
    """
    slots, now = observed.slots, observed.min_ready.now
    ready, desired = counted.ready_replicas, counted.desired_replicas
    surge = len(observed.surge.members & slots.ready)
    if ready or surge:
        message = f"{ready}/{desired} instances are ready"
        if surge:
            message += f", and {surge} surge instance{'s' * (surge > 1)}"
        value = ConditionValue(TRUE, Reason.STABLE_INSTANCE_FOUND, message)
    elif slots.serving:
        cause = not_ready_cause(slots.by_ordinal[min(slots.serving)])
        value = ConditionValue(UNKNOWN, cause.reason, cause.message)
    else:
        value = summary_cause(slots, desired)
    return make_condition(AVAILABLE, value, generation=deployment.metadata.generation, now=now)


def _replicas_ready_condition(
    deployment: WorkloadDeployment, counted: WorkloadDeploymentStatus, slots: Slots, now: str
) -> Condition:
    """Return the ReplicasReady condition: True if all desired instances are ready.

    Otherwise it reports the cause with the highest rank. It is Unknown instead of False if every
    desired instance may still be serving, because False engages fallback cities. A deployment that
    is being deleted desires no instances, which would make the condition True. It is False instead,
    because the project shows this condition and may still desire instances.
    """
    generation, desired = deployment.metadata.generation, counted.desired_replicas
    if deployment.is_terminating:
        value = ConditionValue(
            FALSE, Reason.REMOVING, "The deployment is being deleted on its cell"
        )
        return make_condition(REPLICAS_READY, value, generation=generation, now=now)
    if not counted.blocked:
        message = f"{desired} of {desired} desired replicas are ready"
        value = ConditionValue(TRUE, Reason.REPLICAS_AVAILABLE, message)
        return make_condition(REPLICAS_READY, value, generation=generation, now=now)
    worst = counted.blocked[0]
    reason = as_replicas_ready_reason(worst.reason)
    if reason == QUOTA_DENIED_ON_REPLICAS:
        message = f"{worst.replicas} of {desired} desired replicas are pending quota"
        value = ConditionValue(FALSE, reason, message)
    else:
        message = f"{worst.replicas} of {desired} desired replicas: {worst.message}"
        may_serve = all(number in slots.serving for number in range(desired))
        value = ConditionValue(UNKNOWN if may_serve else FALSE, reason, message)
    return make_condition(REPLICAS_READY, value, generation=generation, now=now)


def _observed_source(deployment: WorkloadDeployment, current: str) -> ObservedSource:
    """Return the generation and template hash that the federator recorded with the spec.

    Without a federator there is no generation, and ``current`` is the hash of the template.
    """
    annotations = deployment.metadata.annotations
    generation = annotations.get(labels.SOURCE_GENERATION, "")
    return ObservedSource(
        generation=int(generation) if generation.isdecimal() and len(generation) < 19 else 0,
        template_hash=annotations.get(labels.SOURCE_TEMPLATE_HASH, current),
    )
