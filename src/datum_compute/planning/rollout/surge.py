"""Surge slots: temporary instances that serve while a rollout replaces the desired ones.

The desired slots of a deployment are the ordinals below ``minReplicas``. Its surge slots are the
ordinals ``minReplicas`` to ``minReplicas + maxSurge - 1``.

Rules:
- Surge instances are created while a desired slot has an outdated instance that serves. Both
  management policies create all of them together, before the first replacement.
- Each surge instance is created only once per template, so one that crashes is not created again.
  ``status.surge`` records the template and the created ordinals.
- No serving instance of a desired slot is replaced until all surge instances are available. If the
  new image is broken, the old instances therefore keep serving.
- A surge instance is removed if its quota claim is denied, or if after ``SURGE_WAIT_MAX_S`` its
  claim is undecided or no host has room for it. If no surge instance is left, the rollout continues
  without surge. The status first records this as ``SurgeUnavailable``, so that users see the reason
  before the service is interrupted.
- If the quota does not suffice for a desired slot and the surge instances, the surge instances are
  removed, provided that enough desired slots serve, at least one.
- Surge instances are removed when all desired slots are updated and available. Surge instances of
  an older template, as after an undo, are removed as soon as enough other instances serve.
- A deployment that is paused, stopped or suspended creates no surge instance. A deployment whose
  instances can sleep has none, because a connection waits until an instance is awake.
- A quota claim of a surge slot is released with its instance (``planning/quota/claims.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from datum_compute.api.compute.deployment import (
    SurgeSlots,
    WorkloadDeployment,
    WorkloadDeploymentSpec,
)
from datum_compute.api.compute.instance import READY, Instance
from datum_compute.api.conditions import (
    EPOCH,
    FALSE,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    make_condition,
    with_condition,
)
from datum_compute.api.meta.timestamps import remaining_s
from datum_compute.planning.quota.claims import format_ordinals, parse_ordinals
from datum_compute.planning.rollout.gates import (
    QUOTA,
    find_quota_denial,
    gate_names,
    is_quota_exceeded,
)
from datum_compute.planning.rollout.slots import (
    Slots,
    is_current,
    is_observed_not_ready,
    wanted_replicas,
)
from datum_compute.planning.rollout.suspension import halt_reason, resumed_at
from datum_compute.planning.workload.templates import template_hash

SURGE_AVAILABLE = "SurgeAvailable"  # condition type; it exists only while it is False
# How long a rollout waits until the quota of a surge instance is decided and it has a host.
SURGE_WAIT_MAX_S = 15
# Requeue delay after the status has recorded that a rollout continues without surge.
CONTINUE_AFTER_S = 0.1


def surge_max(spec: WorkloadDeploymentSpec) -> int:
    """Return the number of surge slots. A percentage is rounded up."""
    replicas, limit = spec.scale_settings.min_replicas, spec.scale_settings.max_surge
    if spec.template.spec.scale_to_zero is not None:
        return 0
    if limit is None:
        return 1 if replicas == 1 else 0
    if isinstance(limit, str):
        return -(-replicas * int(limit.removesuffix("%")) // 100)
    return limit


def unavailable_max(
    spec: WorkloadDeploymentSpec, wanted: int, *, without_surge: bool = False
) -> int:
    """Return how many of the wanted instances a rollout may have out of service.

    A percentage is rounded down. Without surge it is at least one, because otherwise a rollout
    could never proceed. ``without_surge`` is True if no surge instance can run.
    """
    has_surge = surge_max(spec) > 0
    limit = spec.scale_settings.unavailable_limit
    if limit is None:
        limit = 0 if has_surge else 1
    if isinstance(limit, str):
        limit = wanted * int(limit.removesuffix("%")) // 100
    return limit if has_surge and not without_surge else max(1, limit)


@dataclass(frozen=True, slots=True)
class SurgeRemoval:
    """A surge instance to remove, now or, if ``is_deferred``, when enough other instances serve.

    With ``only_if_unchanged`` it is removed only in the version that was read: this version does
    not serve, but a newer one may.
    """

    ordinal: int
    reason: str
    is_deferred: bool = False
    only_if_unchanged: bool = False


@dataclass(frozen=True, slots=True)
class Surge:
    """The surge slots of a deployment, and what they need now."""

    # Slots with a surge instance, also a terminating one.
    members: frozenset[int] = frozenset()
    # Members whose instance has the current template and is available.
    available: frozenset[int] = frozenset()
    to_create: tuple[int, ...] = ()
    removals: tuple[SurgeRemoval, ...] = ()
    # The rollout waits for surge instances, and replaces no serving instance of a desired slot.
    delays_replacement: bool = False
    # The status has recorded that no surge instance can run, so the rollout continues without.
    continues_without: bool = False
    # Why surge instances are missing; empty if none is.
    unavailable_cause: str = ""
    # The new value of ``status.surge``.
    record: SurgeSlots | None = None
    requeue_after_s: float | None = None

    @property
    def removed_ordinals(self) -> frozenset[int]:
        return frozenset(removal.ordinal for removal in self.removals)


NO_SURGE = Surge()


def find_surge(
    deployment: WorkloadDeployment, slots: Slots, quota_waiting: frozenset[int], now: str
) -> Surge:
    """Return the surge slots of a deployment.

    ``quota_waiting`` is the result of ``slots_waiting_for_quota()``.
    """
    spec, wanted = deployment.spec, wanted_replicas(deployment)
    limit = surge_max(spec) if wanted else 0
    if not limit:
        return NO_SURGE
    current_hash = template_hash(spec.template)
    desired = _observe_desired_slots(deployment, slots, wanted, quota_waiting, current_hash)
    record = deployment.status.surge
    if record is None and not desired.is_outdated:
        return NO_SURGE
    # ``record`` may be of an earlier rollout, with another template.
    is_recorded_rollout = record is not None and record.template_hash == current_hash
    recorded = _surge_ordinals(record.ordinals if record else "", wanted)
    created = _surge_ordinals(record.created if record and is_recorded_rollout else "", wanted)
    ordinals = range(wanted, wanted + limit)
    in_surge_slots = {n: slots.by_ordinal[n] for n in ordinals if n in slots.by_ordinal}
    updated = {
        n for n, i in in_surge_slots.items() if is_current(i, current_hash, spec.template.spec)
    }
    is_halted = halt_reason(spec) is not None
    can_proceed = not spec.paused and not is_halted
    is_rolling = desired.is_outdated and can_proceed
    # During a rollout every instance in a surge slot counts, also one that a scale-down left there.
    members = {
        number: instance
        for number, instance in in_surge_slots.items()
        if is_rolling or number in recorded
    }
    # Members with the current template.
    current = {n: i for n, i in members.items() if n in updated and not i.is_terminating}
    to_create: tuple[int, ...] = ()
    if desired.needs_surge and can_proceed:
        to_create = tuple(n for n in ordinals if n not in slots.by_ordinal and n not in created)
    created = created | current.keys() | frozenset(to_create)
    resumed = resumed_at(deployment, now)
    wait_left_s = {n: _wait_left_s(i, resumed, now) for n, i in current.items()}
    not_awaited = {} if is_halted else _find_not_awaited(current, desired, wait_left_s)
    available = slots.available & (current.keys() - not_awaited.keys())
    reported = find_condition(deployment.status.conditions, SURGE_AVAILABLE)
    cause = next(iter(not_awaited.values()), "")
    if not cause and is_recorded_rollout and reported is not None:
        cause = reported.message
    is_missing = desired.needs_surge and can_proceed and not members and not to_create
    if not cause and is_missing:
        cause = "The rollout continues without surge: its surge instances were deleted"
    continues_without = is_missing and is_recorded_rollout and reported is not None
    outdated = {n: i for n, i in members.items() if n not in current and not i.is_terminating}
    return Surge(
        members=frozenset(members),
        available=available,
        to_create=to_create,
        removals=(
            *current_removals(current, not_awaited, desired),
            *outdated_removals(outdated, slots, desired, can_proceed=can_proceed),
        ),
        delays_replacement=desired.is_outdated
        and not continues_without
        and (bool(to_create) or not _are_all_available(members, created, available)),
        continues_without=continues_without,
        unavailable_cause=cause,
        record=SurgeSlots(
            template_hash=current_hash,
            ordinals=format_ordinals(sorted(members.keys() | set(to_create))),
            created=format_ordinals(sorted(created)),
        )
        if members or desired.is_outdated or not desired.is_done
        else None,
        requeue_after_s=_requeue_s(
            wait_left_s.values(),
            has_new_record=bool(not_awaited) or (bool(cause) and reported is None),
        ),
    )


def _surge_ordinals(text: str, wanted: int) -> frozenset[int]:
    """Return the recorded ordinals, except those that became desired by scaling up."""
    return frozenset(number for number in parse_ordinals(text) if number >= wanted)


@dataclass(frozen=True, slots=True)
class _DesiredSlots:
    """The slots below ``minReplicas``."""

    is_outdated: bool  # at least one instance has an older template
    needs_surge: bool  # at least one instance of an older template serves
    in_service: int  # number of slots whose instance serves
    # How many slots have to be in service during the rollout.
    required_in_service: int
    # All slots are updated and available, except those that wait for quota.
    is_done: bool
    # Name of an updated instance that lacks quota and is to get that of the surge instances. Empty
    # if there is none, or if the surge instances have to stay in service.
    short_of_quota: str


def _observe_desired_slots(
    deployment: WorkloadDeployment,
    slots: Slots,
    wanted: int,
    quota_waiting: frozenset[int],
    current_hash: str,
) -> _DesiredSlots:
    spec = deployment.spec
    is_outdated = needs_surge = False
    updated: set[int] = set()
    short_of_quota = ""
    for number in range(wanted):
        instance = slots.by_ordinal.get(number)
        if instance is None:
            continue
        if is_current(instance, current_hash, spec.template.spec):
            updated.add(number)
            if is_quota_exceeded(instance):
                short_of_quota = short_of_quota or instance.metadata.name
            continue
        is_outdated = True
        needs_surge = needs_surge or number in slots.serving
    in_service = sum(
        number < wanted for number in (slots.serving - updated) | (slots.available & updated)
    )
    counted = wanted - len(quota_waiting)
    unavailable = unavailable_max(spec, counted, without_surge=True)
    awaited = frozenset(range(wanted)) - quota_waiting
    return _DesiredSlots(
        is_outdated=is_outdated,
        needs_surge=needs_surge,
        in_service=in_service,
        required_in_service=counted - unavailable_max(spec, counted),
        is_done=in_service > 0 and awaited <= (slots.available & updated),
        short_of_quota=short_of_quota if in_service >= max(1, wanted - unavailable) else "",
    )


def _find_not_awaited(
    current: Mapping[int, Instance],
    desired: _DesiredSlots,
    wait_left_s: Mapping[int, float],
) -> Mapping[int, str]:
    """Return the surge instances that the rollout does not wait for, each with the message."""
    causes = {
        number: f"{desired.short_of_quota} needs the quota"
        if desired.short_of_quota
        else _cause_not_to_wait(instance, is_late=wait_left_s[number] == 0)
        for number, instance in current.items()
    }
    return {
        number: f"The rollout continues without {current[number].metadata.name}: {cause}"
        for number, cause in causes.items()
        if cause
    }


def _cause_not_to_wait(instance: Instance, *, is_late: bool) -> str:
    """Return why the rollout does not wait for a surge instance; empty if it does.

    It does not wait if quota or room on a host is missing. If the instance fails for another cause,
    such as its image, the rollout waits, so that the old instances keep serving.
    """
    if QUOTA in gate_names(instance):
        denial = find_quota_denial(instance.status.conditions)
        if denial is not None:
            return denial.message
        return f"its quota is not decided after {SURGE_WAIT_MAX_S} s" if is_late else ""
    ready = find_condition(instance.status.conditions, READY)
    if ready is None or ready.reason != Reason.UNSCHEDULABLE:
        return ""
    return f"no host has room: {ready.message}" if is_late else ""


def _wait_left_s(instance: Instance, resumed: str | None, now: str) -> float:
    """Return how long the rollout still waits for quota and a host of a surge instance.

    The wait starts again at ``resumed``, because an instance that was stopped needs a host again.
    """
    if now == EPOCH:  # the time is unknown
        return SURGE_WAIT_MAX_S
    starts = (instance.metadata.creation_timestamp or EPOCH, resumed or EPOCH)
    return max(remaining_s(start, SURGE_WAIT_MAX_S, now) for start in starts)


def current_removals(
    current: Mapping[int, Instance], not_awaited: Mapping[int, str], desired: _DesiredSlots
) -> Iterator[SurgeRemoval]:
    for number in sorted(current, reverse=True):
        if number in not_awaited:
            yield SurgeRemoval(number, not_awaited[number], only_if_unchanged=True)
        elif desired.is_done and not desired.is_outdated:
            yield SurgeRemoval(number, "the rollout is complete")


def outdated_removals(
    outdated: Mapping[int, Instance], slots: Slots, desired: _DesiredSlots, *, can_proceed: bool
) -> Iterator[SurgeRemoval]:
    """Yield the removals of outdated surge instances, deferred unless enough others serve.

    ``can_proceed`` is False while the deployment is paused, stopped or suspended.
    """
    if desired.is_outdated and not can_proceed:
        return
    in_service = desired.in_service + len(outdated.keys() & slots.serving)
    for number in sorted(outdated, reverse=True):
        reason = "surge instance of an older template"
        if number in slots.serving:
            is_deferred = in_service <= desired.required_in_service
            yield SurgeRemoval(number, reason, is_deferred=is_deferred)
            in_service -= not is_deferred
        elif number not in slots.unobserved and is_observed_not_ready(outdated[number]):
            yield SurgeRemoval(number, f"{reason} is not ready", only_if_unchanged=True)


def _are_all_available(
    found: Mapping[int, Instance], created: frozenset[int], available: frozenset[int]
) -> bool:
    """Return True if surge instances exist and all of them are available.

    An instance that is terminating and not created again for this template does not count.
    """
    return bool(found) and all(
        number in available or (instance.is_terminating and number in created)
        for number, instance in found.items()
    )


def _requeue_s(wait_left_s: Iterable[float], *, has_new_record: bool) -> float | None:
    """Return the delay until the first wait ends, or until after a new record in the status."""
    if has_new_record:
        return CONTINUE_AFTER_S
    return min((seconds for seconds in wait_left_s if seconds > 0), default=None)


def surge_conditions(deployment: WorkloadDeployment, surge: Surge, now: str) -> list[Condition]:
    """Return the conditions of the deployment with SurgeAvailable, or without it."""
    others = [c for c in deployment.status.conditions if c.type != SURGE_AVAILABLE]
    if not surge.unavailable_cause or surge.record is None:
        return others
    value = ConditionValue(FALSE, Reason.SURGE_UNAVAILABLE, surge.unavailable_cause)
    generation = deployment.metadata.generation
    new = make_condition(SURGE_AVAILABLE, value, generation=generation, now=now)
    return with_condition(deployment.status.conditions, new)
