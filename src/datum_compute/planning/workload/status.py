"""The status of a Workload, aggregated from the deployments of its cities.

Rules:
- Counts are added up.
- Available is True if any deployment is available. Otherwise the condition of the worst deployment
  is used.
- A suspended or stopped workload reports this state instead of the conditions of its cities.
- Progressing reports a complete rollout if every city reports one for the current template.
  Otherwise the condition of the worst city is used. It names the cities that wait for their turn.
  After a rollback it is False until the template of the workload changes.
- Ties are broken by placement, then by deployment name, so that equal input gives equal status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import AVAILABLE
from datum_compute.api.compute.instance_type import InstanceType
from datum_compute.api.compute.workload import (
    PROGRESSING,
    CityRollout,
    Placement,
    PlacementFallback,
    PlacementStatus,
    Workload,
    WorkloadRollout,
    WorkloadStatus,
)
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    make_condition,
    with_condition,
)
from datum_compute.api.planes import normalize_city
from datum_compute.planning.platform.instance_types import with_size_notice
from datum_compute.planning.reasons import rank_of
from datum_compute.planning.rollout.status import sum_blocked
from datum_compute.planning.rollout.surge import SURGE_AVAILABLE
from datum_compute.planning.rollout.suspension import (
    NO_CELL,
    deployments_still_running,
    halt_cause,
    halted_value,
    is_deployment_stopped,
)
from datum_compute.planning.workload.fallback import fallback_for, fallback_message
from datum_compute.planning.workload.templates import (
    CurrentTemplates,
    current_templates,
    template_hash,
)

FELL_BACK = "FellBack"  # condition type

# Reasons of Progressing, worst first.
_PROGRESS_ORDER = (
    Reason.PROGRESS_DEADLINE_EXCEEDED,
    Reason.NO_MATCHING_LOCATION,
    Reason.CELL_UNREACHABLE,
    Reason.AMBIGUOUS_SERVING_LOCATION,
    Reason.CELL_DRAINED,
    Reason.ROLLOUT_PAUSED,
    Reason.ROLLING_OUT,
)


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the planner decided for the workload, as its status reports it."""

    fallbacks: Mapping[str, Sequence[PlacementFallback]]  # by placement
    rollout: WorkloadRollout
    halted: Reason | None = None  # why the workload is suspended or stopped


def workload_status(
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    now: str,
    instance_type: InstanceType | None = None,
    decisions: Decisions | None = None,
) -> WorkloadStatus:
    """Return the status of the workload.

    ``instance_type`` is the object of the workload's type, if it exists.
    """
    by_placement = decisions.fallbacks if decisions is not None else {}
    rollout = decisions.rollout if decisions is not None else workload.status.rollout
    ordered = sorted(
        deployments,
        key=lambda deployment: (deployment.spec.placement_name, deployment.metadata.name),
    )
    placements = [
        _placement_status(
            workload,
            name,
            [d for d in ordered if d.spec.placement_name == name],
            by_placement.get(name, ()),
            now,
        )
        for name in sorted(placement.name for placement in workload.spec.placements)
    ]
    generation = workload.metadata.generation
    reason_if_available, reason_if_unreported = (
        Reason.AVAILABLE_PLACEMENT_FOUND,
        Reason.NO_AVAILABLE_PLACEMENTS,
    )
    conditions = workload.status.conditions
    available = _available_condition(
        ordered, reason_if_available, reason_if_unreported, generation, now
    )
    progressing = _progressing_condition(workload, ordered, rollout, now)
    halted = decisions.halted if decisions is not None else None
    if halted is not None:
        value = _halted_available(ordered, halted)
        available = make_condition(AVAILABLE, value, generation=generation, now=now)
        value = ConditionValue(UNKNOWN, halted, halted_value(halted).message)
        progressing = make_condition(PROGRESSING, value, generation=generation, now=now)
    for condition in (available, progressing):
        conditions = with_condition(conditions, condition)
    conditions = with_size_notice(conditions, instance_type, generation=generation, now=now)
    all_fallbacks = [f for name in sorted(by_placement) for f in by_placement[name]]
    conditions = _with_fallback_notice(conditions, all_fallbacks, generation, now)
    conditions = _with_surge_notice(conditions, ordered, generation, now)
    return WorkloadStatus(
        conditions=conditions,
        deployments=len(ordered),
        observed_generation=generation,
        placements=placements,
        rollout=rollout,
        **_sum_counts(workload, workload.spec.placements, ordered),
    )


def _halted_available(deployments: Sequence[WorkloadDeployment], reason: Reason) -> ConditionValue:
    """Return Available of a suspended or stopped workload.

    The reason is Stopping until each reachable cell has confirmed that no instance runs.
    """
    running = sorted({d.spec.city_code for d in deployments_still_running(deployments)})
    if running:
        message = (
            f"Instances in {', '.join(running)} are being stopped, because {halt_cause(reason)}"
        )
        return ConditionValue(FALSE, Reason.STOPPING, message)
    halted = halted_value(reason)
    missing = sorted({d.spec.city_code for d in deployments if not is_deployment_stopped(d)})
    if not missing:
        return halted
    where = ", ".join(missing)
    message = f"{halted.message}; it is not confirmed that the instances in {where} are stopped"
    return ConditionValue(FALSE, reason, message)


def _with_fallback_notice(
    conditions: Sequence[Condition],
    fallbacks: Sequence[PlacementFallback],
    generation: int,
    now: str,
) -> list[Condition]:
    """Add FellBack while replicas of a city run in another city, or should run there.

    Otherwise remove it.
    """
    if not fallbacks:
        return [c for c in conditions if c.type != FELL_BACK]
    stuck = any(f.phase == "Exhausted" for f in fallbacks)
    reason = Reason.FALLBACK_EXHAUSTED if stuck else Reason.FALLBACK_ENGAGED
    value = ConditionValue(TRUE, reason, fallback_message(fallbacks))
    return with_condition(
        conditions, make_condition(FELL_BACK, value, generation=generation, now=now)
    )


def _with_surge_notice(
    conditions: Sequence[Condition],
    deployments: Sequence[WorkloadDeployment],
    generation: int,
    now: str,
) -> list[Condition]:
    """Add SurgeAvailable=False while a city rolls out without surge. Otherwise remove it."""
    messages = [
        f"{deployment.spec.city_code}: {found.message}"
        for deployment in deployments
        if (found := find_condition(deployment.status.conditions, SURGE_AVAILABLE)) is not None
    ]
    if not messages:
        return [c for c in conditions if c.type != SURGE_AVAILABLE]
    value = ConditionValue(FALSE, Reason.SURGE_UNAVAILABLE, "; ".join(messages))
    new = make_condition(SURGE_AVAILABLE, value, generation=generation, now=now)
    return with_condition(conditions, new)


def _placement_status(
    workload: Workload,
    name: str,
    deployments: Sequence[WorkloadDeployment],
    fallbacks: Sequence[PlacementFallback],
    now: str,
) -> PlacementStatus:
    observed = next((p for p in workload.status.placements if p.name == name), None)
    reason_if_available, reason_if_unreported = (
        Reason.AVAILABLE_DEPLOYMENT_FOUND,
        Reason.NO_AVAILABLE_DEPLOYMENTS,
    )
    available = _available_condition(
        deployments, reason_if_available, reason_if_unreported, workload.metadata.generation, now
    )
    return PlacementStatus(
        name=name,
        conditions=with_condition(observed.conditions if observed else [], available),
        fallbacks=list(fallbacks),
        **_sum_counts(
            workload, [p for p in workload.spec.placements if p.name == name], deployments
        ),
    )


def _available_condition(
    deployments: Sequence[WorkloadDeployment],
    reason_if_available: Reason,
    reason_if_unreported: Reason,
    generation: int,
    now: str,
) -> Condition:
    """Return Available: True if any deployment is available, otherwise that of the worst one."""
    found = [c for d in deployments if (c := find_condition(d.status.conditions, AVAILABLE))]
    ready = sum(d.status.ready_replicas for d in deployments)
    wanted = sum(d.status.desired_replicas for d in deployments)
    if any(c.status == TRUE for c in found):
        value = ConditionValue(TRUE, reason_if_available, f"{ready}/{wanted} instances are ready")
    elif found:
        worst = max(found, key=lambda condition: rank_of(condition.reason))
        value = ConditionValue(worst.status, worst.reason, worst.message)
    else:
        value = ConditionValue(FALSE, reason_if_unreported, "No city has reported yet")
    return make_condition(AVAILABLE, value, generation=generation, now=now)


def _progressing_condition(
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    rollout: WorkloadRollout,
    now: str,
) -> Condition:
    """Return Progressing: complete if every city is complete, otherwise that of the worst city."""
    generation = workload.metadata.generation
    if rollout.failed_template_hash:
        value = _rolled_back_value(rollout)
        return make_condition(PROGRESSING, value, generation=generation, now=now)
    current = current_templates(workload)
    waiting = [city for city in rollout.cities if city.state == "Waiting"]
    not_current = {
        (city.placement, city.city): city.state
        for city in rollout.cities
        if city.state in ("Waiting", "Skipped")
    }
    conditions: dict[str, tuple[Condition, str]] = {}
    unreported: list[str] = []
    for deployment in deployments:
        found = find_condition(deployment.status.conditions, PROGRESSING)
        available = find_condition(deployment.status.conditions, AVAILABLE)
        city = deployment.spec.city_code
        slot = (deployment.spec.placement_name, fallback_for(deployment) or city)
        state = not_current.get(slot, "")
        if available is not None and (available.reason in NO_CELL or state == "Skipped"):
            conditions.setdefault(available.reason, (available, city))
        elif state == "Waiting":
            continue
        elif found is None or not _is_about_current_spec(deployment, workload, current):
            unreported.append(city)
        else:
            conditions.setdefault(found.reason, (found, city))
    value = ConditionValue(TRUE, Reason.ROLLOUT_COMPLETE, "Every city is rolled out")
    if waiting and workload.spec.paused:
        value = ConditionValue(
            UNKNOWN, Reason.ROLLOUT_PAUSED, f"Paused before {_city_codes(waiting)}"
        )
    elif waiting:
        value = ConditionValue(TRUE, Reason.ROLLING_OUT, f"Next: {_city_codes(waiting)}")
    elif unreported or not deployments:
        where = ", ".join(sorted(set(unreported))) or "any city"
        value = ConditionValue(UNKNOWN, Reason.AWAITING_PROPAGATION, f"No report yet from {where}")
    for reason in _PROGRESS_ORDER:
        if reason in conditions:
            condition, city = conditions[reason]
            message = f"{city}: {condition.message}"
            if reason == Reason.PROGRESS_DEADLINE_EXCEEDED:
                message += _failure_text(rollout, city)
            if waiting:
                message += f"; waiting: {_city_codes(waiting)}"
            value = ConditionValue(condition.status, reason, message)
            break
    return make_condition(PROGRESSING, value, generation=generation, now=now)


def _city_codes(cities: Sequence[CityRollout]) -> str:
    return ", ".join(dict.fromkeys(city.city for city in cities))


def _failure_text(rollout: WorkloadRollout, city: str) -> str:
    """Return the cause of a failed city, to be appended to a message."""
    failed = (c for c in rollout.cities if c.city == city and c.state == "Failed" and c.message)
    return next((f"; {c.reason}: {c.message}" for c in failed), "")


def _rolled_back_value(rollout: WorkloadRollout) -> ConditionValue:
    failed = [city for city in rollout.cities if city.state == "Failed"]
    causes = "; ".join(f"{city.city}: {city.reason}: {city.message}" for city in failed)
    where = f" in {_city_codes(failed)}" if failed else ""  # the city may have been removed
    message = f"Revision {rollout.failed_revision} failed{where}"
    message += f", and all cities return to revision {rollout.running_revision}"
    message += f"; {causes}" if causes else ""
    return ConditionValue(FALSE, Reason.ROLLED_BACK, message)


def _sum_counts(
    workload: Workload, placements: Sequence[Placement], deployments: Sequence[WorkloadDeployment]
) -> dict[str, Any]:
    """Return the counts of the placements as fields of a status.

    Desired replicas are the sum over the placements. Updated and current replicas count only in
    deployments whose status is about the current template. It may be about an earlier scale, so
    that a change of only the scale leaves them as they are.
    """
    current = current_templates(workload)
    current_reports = [
        d.status for d in deployments if _is_about_current_template(d, workload, current)
    ]
    reported = [d.status for d in deployments]
    return {
        "replicas": sum(s.replicas for s in reported),
        "ready_replicas": sum(s.ready_replicas for s in reported),
        "available_replicas": sum(s.available_or_ready for s in reported),
        "surge_replicas": sum(s.surge_replicas for s in reported),
        "covered_replicas": sum(s.covered_replicas for s in reported),
        "updated_replicas": sum(s.updated_replicas for s in current_reports),
        "current_replicas": sum(s.current_replicas for s in current_reports),
        "desired_replicas": sum(
            p.scale_settings.min_replicas * len(p.city_codes) for p in placements
        ),
        "blocked": sum_blocked(s.blocked for s in reported),
    }


def _is_about_current_spec(
    deployment: WorkloadDeployment, workload: Workload, current: CurrentTemplates
) -> bool:
    """Return True if the status is about the current spec: same city, scale and template."""
    placement = _placement_of(deployment, workload)
    return (
        placement is not None
        and deployment.spec.scale_settings.min_replicas == placement.scale_settings.min_replicas
        and _is_observed(deployment)
        and _is_about_current_template(deployment, workload, current)
    )


def _is_about_current_template(
    deployment: WorkloadDeployment, workload: Workload, current: CurrentTemplates
) -> bool:
    """Return True if the counts of the status refer to the current template of a wanted city."""
    reported = deployment.status.observed_source.template_hash
    if not reported and _is_observed(deployment):
        reported = template_hash(deployment.spec.template)
    return (
        _placement_of(deployment, workload) is not None
        and not deployment.is_terminating
        and reported == current.hash_in(deployment.spec.city_code)
    )


def _is_observed(deployment: WorkloadDeployment) -> bool:
    return deployment.status.observed_generation >= deployment.metadata.generation


def _placement_of(deployment: WorkloadDeployment, workload: Workload) -> Placement | None:
    """Return the placement of the deployment; None if it does not name the city any more."""
    spec = deployment.spec
    city = fallback_for(deployment) or spec.city_code
    return next(
        (
            placement
            for placement in workload.spec.placements
            if placement.name == spec.placement_name
            and city in map(normalize_city, placement.city_codes)
        ),
        None,
    )
