"""Which WorkloadDeployments a Workload needs: one for every placement and city."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import Verdict, decided, with_condition
from datum_compute.api.identity import deployment_name, normalized_city
from datum_compute.api.instance import AVAILABLE
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.meta import ObjectMeta, owner_reference, ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.workload import BlockedReplicas, Placement, Workload
from datum_compute.api.workloaddeployment import (
    WorkloadDeployment,
    WorkloadDeploymentSpec,
    WorkloadRef,
)
from datum_compute.planning.actions import (
    Action,
    Delete,
    Plan,
    Wait,
    add_finalizer,
    drop_finalizer,
)
from datum_compute.planning.objects import plan_object, plan_status
from datum_compute.planning.rollup import workload_status

# What is held is woken by its claim; a missed event costs at most this long.
HELD_S = 60.0


def plan_workload(
    plane: PlaneName,
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    now: str,
    hold: Verdict | None = None,
) -> Plan:
    """``deployments`` are all those that carry this workload's uid; ``hold`` says why there may be
    none yet."""
    if workload.is_terminating:
        return _plan_removal(plane, workload, deployments)
    guard = add_finalizer(plane, WORKLOAD, workload, labels.WORKLOAD_FINALIZER)
    if guard:
        return Plan(tuple(guard))
    if hold is not None:
        return _plan_held(plane, workload, hold, now)
    observed = {d.metadata.name: d for d in deployments}
    desired = {d.metadata.name: d for d in desired_deployments(workload)}
    actions = _removals(plane, [d for name, d in sorted(observed.items()) if name not in desired])
    for name, deployment in sorted(desired.items()):
        actions += _upsert(plane, deployment, observed.get(name))
    status = workload_status(workload, deployments, now)
    return Plan((*actions, *plan_status(plane, WORKLOAD, workload, status)))


def _plan_held(plane: PlaneName, workload: Workload, hold: Verdict, now: str) -> Plan:
    status = workload_status(workload, (), now)
    generation, wanted = workload.metadata.generation, status.desired_replicas
    available = decided(AVAILABLE, hold, generation=generation, now=now)
    told = msgspec.structs.replace(
        status,
        conditions=with_condition(status.conditions, available),
        blocked=[BlockedReplicas(reason=hold.reason, replicas=wanted, message=hold.message)],
    )
    report = plan_status(plane, WORKLOAD, workload, told)
    return Plan((*report, Wait(hold.message)), requeue_after_s=HELD_S)


def desired_deployments(workload: Workload) -> list[WorkloadDeployment]:
    return [
        _deployment(workload, placement, normalized_city(city))
        for placement in workload.spec.placements
        for city in placement.city_codes
    ]


def _deployment(workload: Workload, placement: Placement, city: str) -> WorkloadDeployment:
    metadata = workload.metadata
    return WorkloadDeployment(
        metadata=ObjectMeta(
            name=deployment_name(metadata.name, metadata.uid, placement.name, city),
            namespace=metadata.namespace,
            labels={
                labels.WORKLOAD_UID: metadata.uid,
                labels.WORKLOAD_NAME: metadata.name,
                labels.PLACEMENT_NAME: placement.name,
                labels.CITY_CODE: city,
            },
            owner_references=[owner_reference(workload, WORKLOAD)],
            finalizers=[labels.FEDERATOR_FINALIZER],
        ),
        spec=WorkloadDeploymentSpec(
            workload_ref=WorkloadRef(name=metadata.name, uid=metadata.uid),
            placement_name=placement.name,
            city_code=city,
            template=workload.spec.template,
            scale_settings=placement.scale_settings,
            paused=workload.spec.paused,
        ),
    )


def _upsert(
    plane: PlaneName, desired: WorkloadDeployment, observed: WorkloadDeployment | None
) -> list[Action]:
    if observed is not None and observed.is_terminating:
        return [Wait(f"{observed.metadata.name} is being removed before it can come back")]
    if observed is not None:  # the attachment is not the workload's to say
        attachment = observed.spec.network_attachment
        spec = msgspec.structs.replace(desired.spec, network_attachment=attachment)
        desired = msgspec.structs.replace(desired, spec=spec)
    reason = f"placement {desired.spec.placement_name} in {desired.spec.city_code}"
    return plan_object(plane, DEPLOYMENT, desired, observed, reason)


def _removals(plane: PlaneName, deployments: Sequence[WorkloadDeployment]) -> list[Action]:
    return [
        Delete(plane, DEPLOYMENT, ref_of(d), d.metadata.uid, "no placement asks for it")
        for d in deployments
        if not d.is_terminating
    ]


def _plan_removal(
    plane: PlaneName, workload: Workload, deployments: Sequence[WorkloadDeployment]
) -> Plan:
    if not deployments:
        released = drop_finalizer(plane, WORKLOAD, workload, labels.WORKLOAD_FINALIZER)
        return Plan(tuple(released))
    remaining = Wait(f"{len(deployments)} deployments remain")
    return Plan((*_removals(plane, deployments), remaining), requeue_after_s=30)
