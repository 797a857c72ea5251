"""Status from below to above: counts add up, and the worst cause speaks when nothing is ready.

Ties are broken by placement, then by deployment name, so that equal worlds give equal statuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    Verdict,
    decided,
    find_condition,
    with_condition,
)
from datum_compute.api.identity import normalized_city
from datum_compute.api.instance import AVAILABLE
from datum_compute.api.instancetype import InstanceType
from datum_compute.api.reasons import DEPLOYMENT_RANK, Reason
from datum_compute.api.workload import (
    PROGRESSING,
    Placement,
    PlacementFallback,
    PlacementStatus,
    Workload,
    WorkloadStatus,
)
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.platform.instance_types import with_size_notice
from datum_compute.planning.rollout.status import blocked_sum
from datum_compute.planning.workload.fallback import fallback_message, stands_for
from datum_compute.planning.workload.templates import (
    CurrentTemplates,
    current_templates,
    template_hash,
)

FELL_BACK = "FellBack"  # the condition of a workload
Fallbacks = Mapping[str, Sequence[PlacementFallback]]  # by placement

# What a whole says about its rollout, by what its worst part says.
_PROGRESS_ORDER = (
    Reason.PROGRESS_DEADLINE_EXCEEDED,
    Reason.NO_MATCHING_LOCATION,
    Reason.CELL_UNREACHABLE,
    Reason.AMBIGUOUS_SERVING_LOCATION,
    Reason.CELL_DRAINED,
    Reason.ROLLOUT_PAUSED,
    Reason.ROLLING_OUT,
)
# Why a city has nothing that could be rolled out.
_NOT_PLACED = (
    Reason.NO_MATCHING_LOCATION,
    Reason.AMBIGUOUS_SERVING_LOCATION,
    Reason.CELL_DRAINED,
)


def workload_status(
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    now: str,
    instance_type: InstanceType | None = None,
    fallbacks: Fallbacks | None = None,
) -> WorkloadStatus:
    """``instance_type`` is the one that the workload names, if there is an object of it;
    ``fallbacks`` says of each placement which cities' shares are elsewhere."""
    told = fallbacks or {}
    ordered = sorted(deployments, key=lambda d: (d.spec.placement_name, d.metadata.name))
    placements = [
        _placement_status(
            workload,
            name,
            [d for d in ordered if d.spec.placement_name == name],
            told.get(name, ()),
            now,
        )
        for name in sorted(placement.name for placement in workload.spec.placements)
    ]
    generation = workload.metadata.generation
    good, bad = Reason.AVAILABLE_PLACEMENT_FOUND, Reason.NO_AVAILABLE_PLACEMENTS
    conditions = workload.status.conditions
    for condition in (
        _available(ordered, good, bad, generation, now),
        _progressing(workload, ordered, now),
    ):
        conditions = with_condition(conditions, condition)
    conditions = with_size_notice(conditions, instance_type, generation=generation, now=now)
    elsewhere = [f for name in sorted(told) for f in told[name]]
    conditions = _with_fallback_notice(conditions, elsewhere, generation, now)
    return WorkloadStatus(
        conditions=conditions,
        deployments=len(ordered),
        observed_generation=generation,
        placements=placements,
        **_summed(workload, workload.spec.placements, ordered),
    )


def _with_fallback_notice(
    conditions: Sequence[Condition], told: Sequence[PlacementFallback], generation: int, now: str
) -> list[Condition]:
    """One that is there only while the share of a city runs elsewhere, or should."""
    if not told:
        return [c for c in conditions if c.type != FELL_BACK]
    stuck = any(f.phase == "Exhausted" for f in told)
    reason = Reason.FALLBACK_EXHAUSTED if stuck else Reason.FALLBACK_ENGAGED
    verdict = Verdict(TRUE, reason, fallback_message(told))
    return with_condition(conditions, decided(FELL_BACK, verdict, generation=generation, now=now))


def _placement_status(
    workload: Workload,
    name: str,
    deployments: Sequence[WorkloadDeployment],
    fallbacks: Sequence[PlacementFallback],
    now: str,
) -> PlacementStatus:
    observed = next((p for p in workload.status.placements if p.name == name), None)
    good, bad = Reason.AVAILABLE_DEPLOYMENT_FOUND, Reason.NO_AVAILABLE_DEPLOYMENTS
    available = _available(deployments, good, bad, workload.metadata.generation, now)
    return PlacementStatus(
        name=name,
        conditions=with_condition(observed.conditions if observed else [], available),
        fallbacks=list(fallbacks),
        **_summed(workload, [p for p in workload.spec.placements if p.name == name], deployments),
    )


def _available(
    deployments: Sequence[WorkloadDeployment], good: Reason, bad: Reason, generation: int, now: str
) -> Condition:
    """Available as soon as one deployment is; else the worst deployment's own words."""
    found = [c for d in deployments if (c := find_condition(d.status.conditions, AVAILABLE))]
    ready = sum(d.status.ready_replicas for d in deployments)
    wanted = sum(d.status.desired_replicas for d in deployments)
    if any(c.status == TRUE for c in found):
        verdict = Verdict(TRUE, good, f"{ready}/{wanted} instances are ready")
    elif found:
        worst = max(found, key=lambda c: DEPLOYMENT_RANK.get(c.reason, 0))
        verdict = Verdict(worst.status, worst.reason, worst.message)
    else:
        verdict = Verdict(FALSE, bad, "No city has reported yet")
    return decided(AVAILABLE, verdict, generation=generation, now=now)


def _progressing(
    workload: Workload, deployments: Sequence[WorkloadDeployment], now: str
) -> Condition:
    """Complete when every city says so of the current template; else what the worst city says."""
    generation, current = workload.metadata.generation, current_templates(workload)
    words: dict[str, tuple[Condition, str]] = {}
    silent: list[str] = []
    for deployment in deployments:
        found = find_condition(deployment.status.conditions, PROGRESSING)
        available = find_condition(deployment.status.conditions, AVAILABLE)
        if available is not None and available.reason in _NOT_PLACED:
            words.setdefault(available.reason, (available, deployment.spec.city_code))
        elif found is None or not _speaks_of(deployment, workload, current):
            silent.append(deployment.spec.city_code)
        else:
            words.setdefault(found.reason, (found, deployment.spec.city_code))
    verdict = Verdict(TRUE, Reason.ROLLOUT_COMPLETE, "Every city is rolled out")
    if silent or not deployments:
        where = ", ".join(sorted(set(silent))) or "any city"
        verdict = Verdict(UNKNOWN, Reason.AWAITING_PROPAGATION, f"No news yet from {where}")
    for reason in _PROGRESS_ORDER:
        if reason in words:
            condition, city = words[reason]
            verdict = Verdict(condition.status, reason, f"{city}: {condition.message}")
            break
    return decided(PROGRESSING, verdict, generation=generation, now=now)


def _summed(
    workload: Workload, placements: Sequence[Placement], deployments: Sequence[WorkloadDeployment]
) -> dict[str, Any]:
    """Counts that speak about the workload as it is now: desired is what it asks for, and only
    what is known to follow its newest spec, in a city it asks for, counts as updated."""
    current = current_templates(workload)
    told = [d.status for d in deployments if _speaks_of(d, workload, current)]
    reported = [d.status for d in deployments]
    return {
        "replicas": sum(s.replicas for s in reported),
        "ready_replicas": sum(s.ready_replicas for s in reported),
        "available_replicas": sum(s.available_or_ready for s in reported),
        "updated_replicas": sum(s.updated_replicas for s in told),
        "current_replicas": sum(s.current_replicas for s in told),
        "desired_replicas": sum(
            p.scale_settings.min_replicas * len(p.city_codes) for p in placements
        ),
        "blocked": blocked_sum(s.blocked for s in reported),
    }


def _speaks_of(
    deployment: WorkloadDeployment, workload: Workload, current: CurrentTemplates
) -> bool:
    """Whether the deployment's status is about what the workload asks for now: a city that it is
    to run in, the newest scale, this template."""
    status, spec = deployment.status, deployment.spec
    asked = any(
        placement.name == spec.placement_name
        and (stands_for(deployment) or spec.city_code) in map(normalized_city, placement.city_codes)
        and spec.scale_settings.min_replicas == placement.scale_settings.min_replicas
        for placement in workload.spec.placements
    )
    return (
        asked
        and not deployment.is_terminating
        and status.observed_generation >= deployment.metadata.generation
        and (status.observed_source.template_hash or template_hash(spec.template))
        == current.hash_in(spec.city_code)
    )
