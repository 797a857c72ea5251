"""Plan the Instances of a deployment: which to create, recreate and remove, and in which order.

A slot is one ordinal of the deployment. The wanted slots are those below the replica count.

Rules of both management policies, ``OrderedReady`` and ``Parallel``:
- A changed template is rolled out by recreating instances, from the highest ordinal down. At most
  ``maxUnavailable`` of the wanted slots are out of service because of it.
- Outdated instances that were observed as not ready are replaced first, and the limit does not
  apply to them, so that a broken template can always be replaced. An instance that no driver has
  observed since this process started is replaced only after an observation. An instance whose
  readiness became Unknown counts as serving.
- Instances that are no longer wanted are removed, the highest ordinal first. Their removal does not
  wait for other instances.
- Unslotted instances (controlled by the deployment, but without an ordinal) are removed without
  delay.
- Labels are repaired in every pass. A repair is not a step of the rollout.
- A paused deployment replaces no instance. It still fills empty slots and scales down.
- A suspended or stopped deployment creates, replaces and removes no instance (``suspension.py``).
- Surge instances are additional ones, which exist only during a rollout. Their rules are in
  ``surge.py``. Neither management policy applies to them.

``OrderedReady`` fills slots in ascending order, each when all instances below it are Ready; they
need not be available. ``Parallel`` fills all together. Planned steps that have to wait are part of
the plan and marked as deferred.

Rules of the disruption budget, which limits how many serving instances a rollout may remove now:
- A surge instance that is available adds one to the budget.
- An outdated instance is in service while it serves: its Ready condition is True or became Unknown.
  A replacement is in service only while it is available.
- While any replacement does not exist yet, is not available or has exited, no other instance is
  removed. A broken release therefore costs one step of the rollout and not the whole city.
- A slot that waits for quota counts neither as wanted nor as out of service if the new template
  requests the same size. A slot keeps its claim when its instance is replaced, so such a rollout
  does not affect the wait. If the slot counted, a rollout at the quota limit could never start.
- A template of another size needs new quota. Then a slot without quota counts as out of service, so
  that a template too large for the quota costs ``maxUnavailable`` instances and not all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance, ResourceAmounts, Runtime
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import controller_uid, owner_reference, ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.planning.plan import Action, Create, Delete, Patch, Plan, Wait
from datum_compute.planning.rollout.gates import is_quota_exceeded
from datum_compute.planning.rollout.slots import (
    WITHOUT_DELAY,
    MinReady,
    Slots,
    is_current,
    is_observed_not_ready,
    new_instance,
    platform_labels,
    shared_labels,
    slots_of,
    wanted_replicas,
)
from datum_compute.planning.rollout.stopping import grace_period_s
from datum_compute.planning.rollout.surge import NO_SURGE, Surge, find_surge, unavailable_max
from datum_compute.planning.rollout.suspension import halt_cause, halt_reason
from datum_compute.planning.workload.templates import template_hash


def rollout_budget(
    deployment: WorkloadDeployment,
    slots: Slots,
    wanted: int,
    quota_waiting: frozenset[int],
    updated_ordinals: frozenset[int],
    surge: Surge = NO_SURGE,
) -> int:
    """Return how many more instances may be removed; zero or less means none.

    ``quota_waiting`` is the result of ``slots_waiting_for_quota()``. ``updated_ordinals`` are the
    slots whose instance has the current template.
    """
    empty = frozenset(number for number in range(wanted) if number not in slots.by_ordinal)
    if has_unavailable_replacement(slots, (updated_ordinals | empty) - quota_waiting):
        return 0
    if surge.delays_replacement:
        return 0
    allowed = unavailable_max(
        deployment.spec,
        wanted - len(quota_waiting),
        without_surge=surge.continues_without,
    )
    unavailable = out_of_service(slots, wanted, updated_ordinals) - len(quota_waiting)
    return allowed - unavailable + len(surge.available)


def has_unavailable_replacement(slots: Slots, replacements: frozenset[int]) -> bool:
    return not replacements <= slots.available


def out_of_service(slots: Slots, wanted: int, updated_ordinals: frozenset[int]) -> int:
    """Return the number of wanted slots that are out of service.

    Such a slot has neither an outdated instance that serves nor an updated instance that is
    available.
    """
    in_service = (slots.serving - updated_ordinals) | (slots.available & updated_ordinals)
    return wanted - sum(number < wanted for number in in_service)


def slots_waiting_for_quota(
    deployment: WorkloadDeployment, slots: Slots, wanted: int
) -> frozenset[int]:
    """Return the wanted slots that are out of service only because quota is missing.

    With ``OrderedReady``, empty slots above such a slot wait with it.
    """
    exceeded = frozenset(n for n in range(wanted) if is_quota_exceeded(slots.by_ordinal.get(n)))
    if not exceeded or not _is_size_unchanged(deployment, slots, wanted):
        return frozenset()
    if deployment.spec.scale_settings.instance_management_policy != "OrderedReady":
        return exceeded
    waiting_above = (n for n in range(min(exceeded), wanted) if n not in slots.by_ordinal)
    return exceeded.union(waiting_above)


def can_be_recreated(deployment: WorkloadDeployment, number: int, waiting: frozenset[int]) -> bool:
    """Return True if the slot could be filled immediately after its instance is removed.

    With ``OrderedReady`` a slot is not filled while a lower slot waits for quota. ``waiting`` are
    the slots that wait for quota.
    """
    ordered = deployment.spec.scale_settings.instance_management_policy == "OrderedReady"
    return not ordered or not waiting or number < min(waiting)


def _is_size_unchanged(deployment: WorkloadDeployment, slots: Slots, wanted: int) -> bool:
    """Return True if all wanted instances that serve have the size that the template requests."""
    requested = _requested_size(deployment.spec.template.spec.runtime)
    return all(
        _requested_size(slots.by_ordinal[n].spec.runtime) == requested
        for n in slots.serving
        if n < wanted
    )


def _requested_size(runtime: Runtime) -> tuple[str, ResourceAmounts, tuple[ResourceAmounts, ...]]:
    limits = tuple(c.resources.limits for c in runtime.sandbox.containers)
    return runtime.resources.instance_type, runtime.resources.requests, limits


Step = Create | Delete | Wait


@dataclass(frozen=True, slots=True)
class RolloutSteps:
    """The steps that the wanted slots need, before the budget limits them.

    ``unready_old`` deletes outdated instances that are not ready, ``outdated`` those that serve.
    ``outdated_blocked`` deletes outdated instances that could not be recreated immediately. These
    three start with the highest ordinal. ``to_fill`` fills empty slots or waits for instances, from
    the lowest ordinal. ``settling`` waits for replacements that are ready, but not yet available.
    ``updated`` are the ordinals whose instance has the current template.
    """

    unready_old: tuple[Step, ...]
    to_fill: tuple[Step, ...]
    outdated: tuple[Step, ...]
    outdated_blocked: tuple[Step, ...]
    settling: tuple[Step, ...]
    updated: frozenset[int]


def plan_instances(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    min_ready: MinReady = WITHOUT_DELAY,
) -> Plan:
    """Plan the instances of a deployment.

    ``instances`` are all that the deployment controls, including terminating ones.
    """
    slots = slots_of(deployment.metadata.name, instances, min_ready)
    return plan_slots(plane, deployment, slots, observe_surge(deployment, slots, min_ready.now))


def observe_surge(deployment: WorkloadDeployment, slots: Slots, now: str) -> Surge:
    wanted = wanted_replicas(deployment)
    return find_surge(deployment, slots, slots_waiting_for_quota(deployment, slots, wanted), now)


def plan_slots(
    plane: PlaneName, deployment: WorkloadDeployment, slots: Slots, surge: Surge = NO_SURGE
) -> Plan:
    """Plan the instances of a deployment that are assigned to ``slots``."""
    wanted = wanted_replicas(deployment)
    halt = [] if deployment.is_terminating else _plan_halt(plane, deployment, slots)
    if halt_reason(deployment.spec) is not None and not deployment.is_terminating:
        return Plan((*halt, *_repair_metadata(plane, deployment, slots)))
    waiting = slots_waiting_for_quota(deployment, slots, wanted)
    steps = _collect_steps(plane, deployment, slots, wanted, waiting)
    ordered = deployment.spec.scale_settings.instance_management_policy == "OrderedReady"
    budget = rollout_budget(deployment, slots, wanted, waiting, steps.updated, surge)
    actions: list[Action] = [*_delete_unslotted(plane, slots)]
    actions += _delete_surplus(plane, slots, wanted, surge, ordered=ordered)
    actions += _surge_steps(plane, deployment, slots, surge)
    if deployment.spec.paused:
        actions += _limit_steps([*steps.to_fill], 1 if ordered else None)
        actions += _limit_steps([*steps.unready_old, *steps.outdated, *steps.outdated_blocked], 0)
    elif ordered:
        actions += _limit_steps([*steps.unready_old, *steps.to_fill], 1)
        actions += _replace_outdated(steps, budget)
        actions += _limit_steps(steps.outdated_blocked, 0)
    else:
        actions += (*steps.unready_old, *steps.to_fill)
        actions += _replace_outdated(steps, budget)
    return Plan((*actions, *halt, *_repair_metadata(plane, deployment, slots)))


def _plan_halt(plane: PlaneName, deployment: WorkloadDeployment, slots: Slots) -> list[Action]:
    """Copy ``suspended`` and ``stopped`` to the instances that have another value."""
    spec = deployment.spec
    actions: list[Action] = []
    for instance in slots.by_ordinal.values():
        control = instance.spec.controller
        if (control.suspended, control.stopped) == (spec.suspended, spec.stopped):
            continue
        if instance.is_terminating or not controller_uid(instance):
            continue
        halted = {"suspended": spec.suspended, "stopped": spec.stopped}
        patch = {"metadata": {"uid": instance.metadata.uid}, "spec": {"controller": halted}}
        reason = halt_reason(spec)
        text = f"it is halted: {halt_cause(reason)}" if reason else "it is no longer halted"
        actions.append(Patch(plane, INSTANCE, ref_of(instance), patch, text))
    return actions


def _replace_outdated(steps: RolloutSteps, budget: int) -> list[Step]:
    """Return the replacements of outdated instances, those beyond the budget as deferred.

    Waits for settling replacements are listed only if there are outdated instances.
    """
    waits = steps.settling if steps.outdated else ()
    return [*waits, *_limit_steps(steps.outdated, budget)]


def _collect_steps(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    slots: Slots,
    wanted: int,
    waiting: frozenset[int],
) -> RolloutSteps:
    unready_old: list[Step] = []
    to_fill: list[Step] = []
    outdated: list[Step] = []
    outdated_blocked: list[Step] = []
    settling: list[Step] = []
    updated: set[int] = set()
    template = deployment.spec.template
    current = template_hash(template)
    for number in range(wanted):
        instance = slots.by_ordinal.get(number)
        if instance is None:
            new = new_instance(deployment, number, current)
            to_fill.append(Create(plane, INSTANCE, new, f"slot {number} is empty"))
        elif instance.is_terminating:
            to_fill.append(_wait_for_stop(instance))
        elif is_current(instance, current, template.spec):
            updated.add(number)
            if number not in slots.ready:
                to_fill.append(Wait(_unready_text(instance, slots, number)))
            elif number not in slots.available:
                settling.append(Wait(f"{instance.metadata.name} is ready but not yet available"))
        elif number in slots.serving:
            is_recreated = can_be_recreated(deployment, number, waiting)
            target = outdated if is_recreated else outdated_blocked
            target.insert(0, _delete_instance(plane, instance, "of an older template"))
        elif number in slots.unobserved or not is_observed_not_ready(instance):
            to_fill.append(Wait(f"{instance.metadata.name} has not been observed yet"))
        else:
            unready_old.insert(0, _delete_unready(plane, instance))
            if deployment.spec.paused:
                to_fill.append(Wait(f"{instance.metadata.name} is not ready"))
    return RolloutSteps(
        unready_old=tuple(unready_old),
        to_fill=tuple(to_fill),
        outdated=tuple(outdated),
        outdated_blocked=tuple(outdated_blocked),
        settling=tuple(settling),
        updated=frozenset(updated),
    )


def _unready_text(instance: Instance, slots: Slots, number: int) -> str:
    state = "is not known to be ready" if number in slots.serving else "is not ready"
    return f"{instance.metadata.name} {state}"


def _wait_for_stop(instance: Instance) -> Wait:
    grace_s = grace_period_s(instance)
    return Wait(f"{instance.metadata.name} is stopping, which takes up to {grace_s} s")


def _limit_steps(steps: Sequence[Step], allowed: int | None) -> list[Step]:
    """Mark all steps after the first ``allowed`` as deferred. None means no limit."""
    if allowed is None:
        return list(steps)
    allowed = max(0, allowed)
    return [*steps[:allowed], *(replace(step, deferred=True) for step in steps[allowed:])]


def _delete_unslotted(plane: PlaneName, slots: Slots) -> list[Step]:
    """Delete unslotted instances that the deployment controls. Keep those without an owner."""
    return [
        _delete_instance(plane, instance, "its name matches no replica slot")
        for instance in slots.unslotted
        if controller_uid(instance) and not instance.is_terminating
    ]


def _surge_steps(
    plane: PlaneName, deployment: WorkloadDeployment, slots: Slots, surge: Surge
) -> list[Step]:
    """Create, remove and wait for surge instances."""
    current = template_hash(deployment.spec.template)
    steps: list[Step] = []
    for number in surge.to_create:
        new = new_instance(deployment, number, current)
        steps.append(Create(plane, INSTANCE, new, f"surge slot {number} is empty"))
    for removal in surge.removals:
        instance = slots.by_ordinal[removal.ordinal]
        delete = _delete_instance(plane, instance, removal.reason)
        if removal.only_if_unchanged:
            delete = replace(delete, version=instance.metadata.resource_version)
        steps.append(replace(delete, deferred=removal.is_deferred))
    for number in sorted(surge.members - surge.available):
        instance = slots.by_ordinal[number]
        if instance.is_terminating:
            steps.append(_wait_for_stop(instance))
        elif number not in surge.removed_ordinals:
            steps.append(Wait(f"{instance.metadata.name} is not available"))
    return steps


def _delete_surplus(
    plane: PlaneName, slots: Slots, wanted: int, surge: Surge, *, ordered: bool
) -> list[Step]:
    """Delete instances of slots that are no longer wanted.

    An instance that is already terminating does not delay the others.
    """
    surplus = [
        slots.by_ordinal[number]
        for number in reversed(slots.by_ordinal)
        if number >= wanted and number not in surge.members
    ]
    deletes = [
        _delete_instance(plane, i, "no longer wanted") for i in surplus if not i.is_terminating
    ]
    waits = [_wait_for_stop(i) for i in surplus if i.is_terminating]
    return [*_limit_steps(deletes, 1 if ordered else None), *waits]


def _repair_metadata(
    plane: PlaneName, deployment: WorkloadDeployment, slots: Slots
) -> list[Action]:
    """Restore labels and owners that were removed. The machines are not affected."""
    actions: list[Action] = []
    shared = shared_labels(deployment).items()
    for number, instance in slots.by_ordinal.items():
        if instance.is_terminating:
            continue
        if not controller_uid(instance):
            actions.append(_adopt_instance(plane, deployment, instance))
        observed = instance.metadata.labels
        if shared <= observed.items() and observed.get(labels.INSTANCE_INDEX) == str(number):
            continue
        wanted = platform_labels(deployment, number)
        wrong = {label: value for label, value in wanted.items() if observed.get(label) != value}
        if wrong:
            uid = instance.metadata.uid
            reason = f"labels are missing or wrong: {', '.join(sorted(wrong))}"
            patch = {"metadata": {"uid": uid, "labels": wrong}}
            actions.append(Patch(plane, INSTANCE, ref_of(instance), patch, reason))
    return actions


def _adopt_instance(plane: PlaneName, deployment: WorkloadDeployment, instance: Instance) -> Patch:
    """Restore the owner of an instance, so that the instance is deleted with its deployment."""
    owner = owner_reference(deployment, DEPLOYMENT)
    metadata = {
        "uid": instance.metadata.uid,
        "resourceVersion": instance.metadata.resource_version,
        "ownerReferences": to_json([*instance.metadata.owner_references, owner]),
    }
    return Patch(
        plane, INSTANCE, ref_of(instance), {"metadata": metadata}, "its owner reference is missing"
    )


def _delete_instance(plane: PlaneName, instance: Instance, reason: str) -> Delete:
    return Delete(plane, INSTANCE, ref_of(instance), instance.metadata.uid, reason)


def _delete_unready(plane: PlaneName, instance: Instance) -> Delete:
    """Delete the instance only if it is unchanged since it was read: it may have become ready."""
    delete = _delete_instance(plane, instance, "not ready and of an older template")
    return replace(delete, version=instance.metadata.resource_version)
