"""Which Instances a deployment creates, recreates and removes, in which order.

These rules hold under both policies:
- A changed template is rolled out by recreating, from the highest ordinal down. At most
  ``maxUnavailable`` of the wanted slots are out of service because of it. A replacement counts as
  out of service until it is available (``planning/rollout/instances.py``).
- Outdated instances that were observed as not ready are replaced first, outside that budget, so
  that a broken template can always be replaced. An instance that was never observed, or not since
  this process started, is replaced only after an observation. An instance whose readiness became
  Unknown counts as serving.
- Instances that are no longer wanted are removed highest first, without waiting for anything.
- Strays (controlled, but without a slot) are removed at once.
- Labels are repaired independently: never skipped, never a step of the rollout.
- A paused deployment replaces no instance; it still fills empty slots and scales down.

``OrderedReady`` fills slots in ascending order, each when all instances below it are Ready; they
need not be available. ``Parallel`` fills all at once. Planned steps that have to wait stay in the
plan as skipped.

How many serving instances a rollout may take out of service now.

``maxUnavailable`` bounds how many of the wanted slots are out of service. An outdated instance is
in service while it serves (Ready is True or became Unknown). A replacement is in service only while
it is available. While any replacement does not exist yet, is not available or has exited, nothing
else is removed, so that a broken release costs one step of the rollout and not the whole city.

A slot that waits for quota counts neither as wanted nor as out of service if the new template
requests the same size. A slot keeps its claim when its instance is replaced, so such a rollout does
not affect the wait. If the slot counted, a rollout at the quota limit could never begin.

A template of another size needs new quota. Then a slot without quota counts as out of service, so
that a template too large for the quota costs ``maxUnavailable`` instances and not all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from datum_compute.api import labels
from datum_compute.api.codec import plain
from datum_compute.api.instance import Instance, ResourceAmounts, Runtime, TemplateSpec
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import controller_uid, owner_reference, ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.reasons import Reason
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.plan import Action, Create, Delete, Patch, Plan, Wait
from datum_compute.planning.rollout.gates import QUOTA, find_quota_denial, gate_names
from datum_compute.planning.rollout.slots import (
    WITHOUT_DELAY,
    MinReady,
    Slots,
    is_observed_not_ready,
    new_instance,
    platform_labels,
    shared_labels,
    slots_of,
    unavailable_max,
)
from datum_compute.planning.rollout.stopping import grace_period_s
from datum_compute.planning.workload.templates import template_hash


def rollout_budget(
    deployment: WorkloadDeployment,
    slots: Slots,
    wanted: int,
    quota_waiting: frozenset[int],
    updated_ordinals: frozenset[int],
) -> int:
    """Return how many more instances may be removed; zero or less means none.

    ``quota_waiting`` is the result of ``quota_waiters()``. ``updated_ordinals`` are the slots whose
    instance has the current template.
    """
    empty = frozenset(number for number in range(wanted) if number not in slots.held)
    if has_unavailable_replacement(slots, (updated_ordinals | empty) - quota_waiting):
        return 0
    allowed = unavailable_max(deployment.spec.scale_settings, wanted - len(quota_waiting))
    unavailable = out_of_service(slots, wanted, updated_ordinals) - len(quota_waiting)
    return allowed - unavailable


def has_unavailable_replacement(slots: Slots, replacements: frozenset[int]) -> bool:
    return not replacements <= slots.available


def out_of_service(slots: Slots, wanted: int, updated_ordinals: frozenset[int]) -> int:
    """Count the wanted slots that have neither an outdated instance that serves nor an updated
    instance that is available."""
    in_service = (slots.serving - updated_ordinals) | (slots.available & updated_ordinals)
    return wanted - sum(number < wanted for number in in_service)


def quota_waiters(deployment: WorkloadDeployment, slots: Slots, wanted: int) -> frozenset[int]:
    """The wanted slots that are out of service for want of quota and through nobody's fault. One
    that comes only after a lower one is ready waits with that."""
    refused = frozenset(n for n in range(wanted) if _is_refused(slots.held.get(n)))
    if not refused or not _keeps_size(deployment, slots, wanted):
        return frozenset()
    if deployment.spec.scale_settings.instance_management_policy != "OrderedReady":
        return refused
    behind = (n for n in range(min(refused), wanted) if n not in slots.held)
    return refused.union(behind)


def can_return(deployment: WorkloadDeployment, number: int, waiting: frozenset[int]) -> bool:
    """Whether a slot would be filled again; in order it is not while a lower one has no quota."""
    ordered = deployment.spec.scale_settings.instance_management_policy == "OrderedReady"
    return not ordered or not waiting or number < min(waiting)


def _is_refused(instance: Instance | None) -> bool:
    """Return True if the instance has no machine, never had one, and its quota is exceeded.

    A quota that was granted stays granted.
    """
    if instance is None or not instance.spec.controller.scheduling_gates:
        return False  # the usual case, checked for each instance in each pass
    if instance.is_terminating or QUOTA not in gate_names(instance):
        return False
    denial = find_quota_denial(instance.status.conditions)
    return denial is not None and denial.reason == Reason.QUOTA_EXCEEDED


def _keeps_size(deployment: WorkloadDeployment, slots: Slots, wanted: int) -> bool:
    """Whether what serves asks for the size that the template asks for."""
    asked = _asked_budget(deployment.spec.template.spec.runtime)
    return all(
        _asked_budget(slots.held[n].spec.runtime) == asked for n in slots.serving if n < wanted
    )


def _asked_budget(runtime: Runtime) -> tuple[str, ResourceAmounts, tuple[ResourceAmounts, ...]]:
    limits = tuple(c.resources.limits for c in runtime.sandbox.containers)
    return runtime.resources.instance_type, runtime.resources.requests, limits


Step = Create | Delete | Wait
_asked = attrgetter(*TemplateSpec.__struct_fields__)


@dataclass(frozen=True, slots=True)
class _Slate:
    """What the wanted slots need, before the budget decides how much of it may happen now.

    ``broken`` and ``drifted`` begin with the highest ordinal, ``filling`` with the lowest.
    ``stranded`` are drifted too, but would not come back if they were removed. ``settling`` are
    replacements that are ready and not yet available. ``updated`` are the ordinals whose instance
    has the current template.
    """

    broken: tuple[Step, ...]
    filling: tuple[Step, ...]
    drifted: tuple[Step, ...]
    stranded: tuple[Step, ...]
    settling: tuple[Step, ...]
    updated: frozenset[int]


def wanted_replicas(deployment: WorkloadDeployment) -> int:
    return 0 if deployment.is_terminating else deployment.spec.scale_settings.min_replicas


def plan_instances(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    min_ready: MinReady = WITHOUT_DELAY,
) -> Plan:
    """``instances`` are all that the deployment controls, terminating ones included."""
    return plan_slots(plane, deployment, slots_of(deployment.metadata.name, instances, min_ready))


def plan_slots(plane: PlaneName, deployment: WorkloadDeployment, slots: Slots) -> Plan:
    wanted = wanted_replicas(deployment)
    waiting = quota_waiters(deployment, slots, wanted)
    slate = _slate(plane, deployment, slots, wanted, waiting)
    ordered = deployment.spec.scale_settings.instance_management_policy == "OrderedReady"
    budget = rollout_budget(deployment, slots, wanted, waiting, slate.updated)
    actions: list[Action] = [*_strays(plane, slots)]
    actions += _surplus(plane, slots, wanted, ordered=ordered)
    if deployment.spec.paused:
        actions += _begun([*slate.filling], 1 if ordered else None)
        actions += _begun([*slate.broken, *slate.drifted, *slate.stranded], 0)
    elif ordered:
        actions += _begun([*slate.broken, *slate.filling], 1)
        actions += _rollout(slate, budget)
        actions += _begun(slate.stranded, 0)
    else:
        actions += (*slate.broken, *slate.filling)
        actions += _rollout(slate, budget)
    return Plan((*actions, *_repairs(plane, deployment, slots)))


def _rollout(slate: _Slate, budget: int) -> list[Step]:
    """Replace drifted instances within the budget. Settling replacements matter only to them."""
    waits = slate.settling if slate.drifted else ()
    return [*waits, *_begun(slate.drifted, budget)]


def _slate(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    slots: Slots,
    wanted: int,
    waiting: frozenset[int],
) -> _Slate:
    broken: list[Step] = []
    filling: list[Step] = []
    drifted: list[Step] = []
    stranded: list[Step] = []
    settling: list[Step] = []
    updated: set[int] = set()
    template = deployment.spec.template
    current = template_hash(template)
    for number in range(wanted):
        instance = slots.held.get(number)
        if instance is None:
            new = new_instance(deployment, number, current)
            filling.append(Create(plane, INSTANCE, new, f"slot {number} is empty"))
        elif instance.is_terminating:
            filling.append(_wait_for_stop(instance))
        elif is_current(instance, current, template.spec):
            updated.add(number)
            if number not in slots.ready:
                filling.append(Wait(_unready_text(instance, slots, number)))
            elif number not in slots.available:
                settling.append(Wait(f"{instance.metadata.name} is ready but not yet available"))
        elif number in slots.serving:
            returns = can_return(deployment, number, waiting)
            rolled = drifted if returns else stranded
            rolled.insert(0, _delete(plane, instance, "of an older template"))
        elif number in slots.unobserved or not is_observed_not_ready(instance):
            filling.append(Wait(f"{instance.metadata.name} has not been observed yet"))
        else:
            broken.insert(0, _delete_unready(plane, instance))
            if deployment.spec.paused:
                filling.append(Wait(f"{instance.metadata.name} is not ready"))
    return _Slate(
        broken=tuple(broken),
        filling=tuple(filling),
        drifted=tuple(drifted),
        stranded=tuple(stranded),
        settling=tuple(settling),
        updated=frozenset(updated),
    )


def _unready_text(instance: Instance, slots: Slots, number: int) -> str:
    state = "is not known to be ready" if number in slots.serving else "is not ready"
    return f"{instance.metadata.name} {state}"


def is_current(instance: Instance, current: str, template: TemplateSpec) -> bool:
    """By hash, and by what it really asks for: a spec edited by hand is drift as well."""
    same_hash = instance.spec.controller.template_hash == current
    return same_hash and bool(_asked(instance.spec) == _asked(template))


def _wait_for_stop(instance: Instance) -> Wait:
    grace_s = grace_period_s(instance)
    return Wait(f"{instance.metadata.name} is stopping, which takes up to {grace_s} s")


def _begun(steps: Sequence[Step], allowed: int | None) -> list[Step]:
    """The first ``allowed`` steps (None: all), the rest marked as skipped."""
    if allowed is None:
        return list(steps)
    allowed = max(0, allowed)
    return [*steps[:allowed], *(replace(step, deferred=True) for step in steps[allowed:])]


def _strays(plane: PlaneName, slots: Slots) -> list[Step]:
    """Only what the deployment controls: an object of nobody's is somebody's mistake, not ours."""
    return [
        _delete(plane, instance, "it stands in no slot")
        for instance in slots.strays
        if controller_uid(instance) and not instance.is_terminating
    ]


def _surplus(plane: PlaneName, slots: Slots, wanted: int, *, ordered: bool) -> list[Step]:
    """An instance that is already terminating does not delay the others."""
    surplus = [slots.held[number] for number in reversed(slots.held) if number >= wanted]
    deletes = [_delete(plane, i, "no longer wanted") for i in surplus if not i.is_terminating]
    waits = [_wait_for_stop(i) for i in surplus if i.is_terminating]
    return [*_begun(deletes, 1 if ordered else None), *waits]


def _repairs(plane: PlaneName, deployment: WorkloadDeployment, slots: Slots) -> list[Action]:
    """Labels and owners that somebody removed. Neither touches what runs."""
    actions: list[Action] = []
    shared = shared_labels(deployment).items()
    for number, instance in slots.held.items():
        if instance.is_terminating:
            continue
        if not controller_uid(instance):
            actions.append(_adopt(plane, deployment, instance))
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


def _adopt(plane: PlaneName, deployment: WorkloadDeployment, instance: Instance) -> Patch:
    """An instance of ours whose owner somebody removed would outlive its deployment."""
    owner = owner_reference(deployment, DEPLOYMENT)
    metadata = {
        "uid": instance.metadata.uid,
        "resourceVersion": instance.metadata.resource_version,
        "ownerReferences": plain([*instance.metadata.owner_references, owner]),
    }
    return Patch(plane, INSTANCE, ref_of(instance), {"metadata": metadata}, "it lost its owner")


def _delete(plane: PlaneName, instance: Instance, reason: str) -> Delete:
    return Delete(plane, INSTANCE, ref_of(instance), instance.metadata.uid, reason)


def _delete_unready(plane: PlaneName, instance: Instance) -> Delete:
    """Delete the instance only if it is unchanged since it was read: it may have become ready."""
    delete = _delete(plane, instance, "not ready and of an older template")
    return replace(delete, version=instance.metadata.resource_version)
