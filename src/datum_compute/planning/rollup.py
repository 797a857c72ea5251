"""Status from below to above: counts add up, and the worst cause speaks when nothing is ready."""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    decided,
    find_condition,
    with_condition,
)
from datum_compute.api.workload import Placement, PlacementStatus, Workload, WorkloadStatus
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.template import template_hash

AVAILABLE = "Available"

# Which cause speaks for the whole when nothing is available: the highest rank wins.
_RANK = {
    "InstancesProvisioning": 1,
    "NetworkProvisioning": 2,
    "NoMatchingLocation": 2,
    "QuotaNotGranted": 3,
    "ReferencedDataNotReady": 4,
    "ImageUnavailable": 5,
    "InstanceCrashing": 5,
    "ConfigurationError": 5,
    "NetworkNotFound": 6,
    "NetworkFailedToCreate": 7,
}


def workload_status(
    workload: Workload, deployments: Sequence[WorkloadDeployment], now: str
) -> WorkloadStatus:
    ordered = sorted(deployments, key=lambda d: (d.spec.placement_name, d.metadata.name))
    placements = [
        _placement_status(
            workload, name, [d for d in ordered if d.spec.placement_name == name], now
        )
        for name in sorted(placement.name for placement in workload.spec.placements)
    ]
    generation = workload.metadata.generation
    available = _available(
        ordered, "AvailablePlacementFound", "NoAvailablePlacements", generation, now
    )
    return WorkloadStatus(
        conditions=with_condition(workload.status.conditions, available),
        deployments=len(ordered),
        observed_generation=generation,
        placements=placements,
        **_summed(workload, workload.spec.placements, ordered),
    )


def _placement_status(
    workload: Workload, name: str, deployments: Sequence[WorkloadDeployment], now: str
) -> PlacementStatus:
    observed = next((p for p in workload.status.placements if p.name == name), None)
    available = _available(
        deployments,
        "AvailableDeploymentFound",
        "NoAvailableDeployments",
        workload.metadata.generation,
        now,
    )
    return PlacementStatus(
        name=name,
        conditions=with_condition(observed.conditions if observed else [], available),
        **_summed(workload, [p for p in workload.spec.placements if p.name == name], deployments),
    )


def _available(
    deployments: Sequence[WorkloadDeployment], good: str, bad: str, generation: int, now: str
) -> Condition:
    """Available as soon as one deployment is; else the worst deployment's own words."""
    found = [c for d in deployments if (c := find_condition(d.status.conditions, AVAILABLE))]
    ready = sum(d.status.ready_replicas for d in deployments)
    wanted = sum(d.status.desired_replicas for d in deployments)
    if any(c.status == TRUE for c in found):
        verdict = Verdict(TRUE, good, f"{ready}/{wanted} instances are ready")
    elif found:
        worst = max(found, key=lambda c: _RANK.get(c.reason, 0))
        verdict = Verdict(worst.status, worst.reason, worst.message)
    else:
        verdict = Verdict(FALSE, bad, "No city has reported yet")
    return decided(AVAILABLE, verdict, generation=generation, now=now)


def _summed(
    workload: Workload, placements: Sequence[Placement], deployments: Sequence[WorkloadDeployment]
) -> dict[str, int]:
    """Counts that speak about the workload as it is now: desired is what it asks for, and only
    what is known to carry its template counts as updated."""
    current = template_hash(workload.spec.template)
    told = [d.status for d in deployments if _speaks_of(d, current)]
    reported = [d.status for d in deployments]
    return {
        "replicas": sum(s.replicas for s in reported),
        "ready_replicas": sum(s.ready_replicas for s in reported),
        "updated_replicas": sum(s.updated_replicas for s in told),
        "current_replicas": sum(s.current_replicas for s in told),
        "desired_replicas": sum(
            p.scale_settings.min_replicas * len(p.city_codes) for p in placements
        ),
    }


def _speaks_of(deployment: WorkloadDeployment, current: str) -> bool:
    """Whether the deployment's status is about this template and not about an earlier one."""
    status = deployment.status
    if status.observed_source.template_hash:
        return status.observed_source.template_hash == current
    return status.observed_generation >= deployment.metadata.generation and (
        template_hash(deployment.spec.template) == current
    )
