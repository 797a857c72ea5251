"""How many serving instances a rollout may take out of service now.

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

from datum_compute.api.instance import Instance, ResourceAmounts, Runtime
from datum_compute.api.reasons import Reason
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.rollout.gates import QUOTA, find_quota_denial, gate_names
from datum_compute.planning.rollout.slots import Slots, unavailable_max


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
    asked = _asked(deployment.spec.template.spec.runtime)
    return all(_asked(slots.held[n].spec.runtime) == asked for n in slots.serving if n < wanted)


def _asked(runtime: Runtime) -> tuple[str, ResourceAmounts, tuple[ResourceAmounts, ...]]:
    limits = tuple(c.resources.limits for c in runtime.sandbox.containers)
    return runtime.resources.instance_type, runtime.resources.requests, limits
