"""Surge slots: temporary instances that serve while a rollout replaces the others.

The surge slots of a deployment are the ordinals ``minReplicas`` to ``minReplicas + maxSurge - 1``.

Rules:
- A surge instance is created while a lower slot has an outdated instance that serves. Both
  management policies create all surge instances together, before the first replacement.
- Each surge instance is created once per template, which ``status.surge`` records. A surge instance
  that crashes is not replaced.
- No serving instance is replaced until all surge instances are available. A broken image therefore
  stops the rollout while the old instances serve.
- If the quota claim of a surge instance is denied, or if after ``PATIENCE_S`` its claim is
  undecided or no host has room, the surge instance is removed. If none is left, the rollout
  continues without surge. This is recorded as ``SurgeUnavailable`` first, so that the reason for a
  loss of service is visible.
- A lower slot takes precedence over surge instances for quota, but at least one instance of the
  lower slots has to serve then.
- Surge instances are removed when all lower slots are updated and available. An outdated one, as
  after an undo, is removed first, as soon as enough other instances serve.
- A deployment that is paused, stopped or suspended creates no surge instance. A deployment whose
  instances can sleep has none, because a connection waits until an instance is awake.
- A quota claim of a surge slot is released with its instance (``planning/quota/claims.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from datum_compute.planning.rollout.suspension import halt_reason
from datum_compute.planning.workload.templates import template_hash

SURGE_AVAILABLE = "SurgeAvailable"  # condition type; it exists only while it is False
# How long a surge instance may wait for the decision about its quota, or for a host.
PATIENCE_S = 15
# Requeue delay after a pass that records that a rollout continues without surge.
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

    With ``only_if_unchanged`` it is removed only in the version that was read, which does not
    serve. A newer version may serve.
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
    # No serving instance of a lower slot may be replaced until the surge slots have changed.
    delays_replacement: bool = False
    # It is recorded that no surge instance can run.
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
    lower = _observe_lower_slots(deployment, slots, wanted, quota_waiting, current_hash)
    record = deployment.status.surge
    if record is None and not lower.is_outdated:
        return NO_SURGE
    is_recorded_rollout = record is not None and record.template_hash == current_hash
    recorded = _surge_ordinals(record.ordinals if record else "", wanted)
    created = _surge_ordinals(record.created if record and is_recorded_rollout else "", wanted)
    ordinals = range(wanted, wanted + limit)
    present = {n: slots.by_ordinal[n] for n in ordinals if n in slots.by_ordinal}
    updated = {n for n, i in present.items() if is_current(i, current_hash, spec.template.spec)}
    is_held = spec.paused or halt_reason(spec) is not None
    is_rolling = lower.is_outdated and not is_held
    # After a scale-down in a rollout, instances of former slots are used as surge instances.
    found = {
        number: instance for number, instance in present.items() if is_rolling or number in recorded
    }
    current = {n: i for n, i in found.items() if n in updated and not i.is_terminating}
    to_create: tuple[int, ...] = ()
    if lower.needs_surge and not is_held:
        to_create = tuple(n for n in ordinals if n not in slots.by_ordinal and n not in created)
    created = created | current.keys() | frozenset(to_create)
    refused = _find_refused(current, lower, now)
    available = slots.available & (current.keys() - refused.keys())
    reported = find_condition(deployment.status.conditions, SURGE_AVAILABLE)
    cause = next(iter(refused.values()), "")
    if not cause and is_recorded_rollout and reported is not None:
        cause = reported.message
    is_missing = lower.needs_surge and not is_held and not found and not to_create
    if not cause and is_missing:
        cause = "The rollout continues without surge: its surge instances were deleted"
    continues_without = is_missing and is_recorded_rollout and reported is not None
    outdated = {n: i for n, i in found.items() if n not in current and not i.is_terminating}
    return Surge(
        members=frozenset(found),
        available=available,
        to_create=to_create,
        removals=(
            *current_removals(current, refused, lower),
            *outdated_removals(outdated, slots, lower, is_held=is_held),
        ),
        delays_replacement=lower.is_outdated
        and not continues_without
        and (bool(to_create) or not _is_in_place(found, created, available)),
        continues_without=continues_without,
        unavailable_cause=cause,
        record=SurgeSlots(
            template_hash=current_hash,
            ordinals=format_ordinals(sorted(found.keys() | set(to_create))),
            created=format_ordinals(sorted(created)),
        )
        if found or lower.is_outdated or not lower.is_done
        else None,
        requeue_after_s=_requeue_s(current, refused, now, is_new=bool(cause) and reported is None),
    )


def _surge_ordinals(text: str, wanted: int) -> frozenset[int]:
    """Return the recorded ordinals, except those that became desired by scaling up."""
    return frozenset(number for number in parse_ordinals(text) if number >= wanted)


@dataclass(frozen=True, slots=True)
class _LowerSlots:
    """The slots below the surge slots."""

    is_outdated: bool  # an instance has an older template
    needs_surge: bool  # such an instance serves
    in_service: int
    # How many slots have to be in service during the rollout.
    required: int
    # All are updated and available, except slots that wait for quota.
    is_done: bool
    # The instance of a slot that needs the quota of surge instances, or the empty string.
    short_of_quota: str


def _observe_lower_slots(
    deployment: WorkloadDeployment,
    slots: Slots,
    wanted: int,
    quota_waiting: frozenset[int],
    current_hash: str,
) -> _LowerSlots:
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
    return _LowerSlots(
        is_outdated=is_outdated,
        needs_surge=needs_surge,
        in_service=in_service,
        required=counted - unavailable_max(spec, counted),
        is_done=in_service > 0 and awaited <= (slots.available & updated),
        short_of_quota=short_of_quota if in_service >= max(1, wanted - unavailable) else "",
    )


def _find_refused(
    current: Mapping[int, Instance], lower: _LowerSlots, now: str
) -> Mapping[int, str]:
    """Return the surge instances that are given up, each with the cause."""
    causes = {
        number: f"{lower.short_of_quota} needs the quota"
        if lower.short_of_quota
        else _refusal(instance, now)
        for number, instance in current.items()
    }
    return {
        number: f"The rollout continues without {current[number].metadata.name}: {cause}"
        for number, cause in causes.items()
        if cause
    }


def _refusal(instance: Instance, now: str) -> str:
    """Return why a surge instance gets no machine; empty if it may get one.

    An instance that has failed, for example because of its image, is not refused.
    """
    is_late = _patience_left_s(instance, now) == 0
    if QUOTA in gate_names(instance):
        denial = find_quota_denial(instance.status.conditions)
        if denial is not None:
            return denial.message
        return f"its quota is not decided after {PATIENCE_S} s" if is_late else ""
    ready = find_condition(instance.status.conditions, READY)
    if ready is None or ready.reason != Reason.UNSCHEDULABLE:
        return ""
    return f"no host has room: {ready.message}" if is_late else ""


def _patience_left_s(instance: Instance, now: str) -> float:
    if now == EPOCH:  # the time is unknown
        return PATIENCE_S
    return remaining_s(instance.metadata.creation_timestamp or EPOCH, PATIENCE_S, now)


def current_removals(
    current: Mapping[int, Instance], refused: Mapping[int, str], lower: _LowerSlots
) -> Iterator[SurgeRemoval]:
    for number in sorted(current, reverse=True):
        if number in refused:
            yield SurgeRemoval(number, refused[number], only_if_unchanged=True)
        elif lower.is_done and not lower.is_outdated:
            yield SurgeRemoval(number, "the rollout is complete")


def outdated_removals(
    outdated: Mapping[int, Instance], slots: Slots, lower: _LowerSlots, *, is_held: bool
) -> Iterator[SurgeRemoval]:
    """Yield the removals of outdated surge instances, as far as enough other instances serve."""
    if is_held and lower.is_outdated:
        return
    in_service = lower.in_service + len(outdated.keys() & slots.serving)
    for number in sorted(outdated, reverse=True):
        reason = "surge instance of an older template"
        if number in slots.serving:
            is_deferred = in_service <= lower.required
            yield SurgeRemoval(number, reason, is_deferred=is_deferred)
            in_service -= not is_deferred
        elif number not in slots.unobserved and is_observed_not_ready(outdated[number]):
            yield SurgeRemoval(number, f"{reason} is not ready", only_if_unchanged=True)


def _is_in_place(
    found: Mapping[int, Instance], created: frozenset[int], available: frozenset[int]
) -> bool:
    """Return True if there are surge instances, and no other one is awaited.

    Each is then available, or it is terminating and is not created again for this template.
    """
    return bool(found) and all(
        number in available or (instance.is_terminating and number in created)
        for number, instance in found.items()
    )


def _requeue_s(
    current: Mapping[int, Instance], refused: Mapping[int, str], now: str, *, is_new: bool
) -> float | None:
    """Return when an instance has waited long enough, or when a new record can be acted on."""
    if is_new or refused:
        return CONTINUE_AFTER_S
    left_s = (_patience_left_s(instance, now) for instance in current.values())
    return min((seconds for seconds in left_s if seconds > 0), default=None)


def surge_conditions(deployment: WorkloadDeployment, surge: Surge, now: str) -> list[Condition]:
    """Return the conditions of the deployment with SurgeAvailable, or without it."""
    others = [c for c in deployment.status.conditions if c.type != SURGE_AVAILABLE]
    if not surge.unavailable_cause or surge.record is None:
        return others
    value = ConditionValue(FALSE, Reason.SURGE_UNAVAILABLE, surge.unavailable_cause)
    generation = deployment.metadata.generation
    new = make_condition(SURGE_AVAILABLE, value, generation=generation, now=now)
    return with_condition(deployment.status.conditions, new)
