"""Status from below to above: counts add up, and the worst cause speaks when nothing is ready."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    decided,
    find_condition,
    with_condition,
)
from datum_compute.api.workload import (
    PlacementStatus,
    ReplicaCounts,
    Workload,
    WorkloadStatus,
)
from datum_compute.api.workloaddeployment import WorkloadDeployment

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
        **_summed(d.status for d in ordered),
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
        **_summed(d.status for d in deployments),
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


def _summed(counts: Iterable[ReplicaCounts]) -> dict[str, int]:
    listed = list(counts)
    names = ReplicaCounts.__struct_fields__
    return {name: sum(getattr(c, name) for c in listed) for name in names}
