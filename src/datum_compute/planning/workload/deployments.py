"""Which WorkloadDeployments a Workload needs: one for every placement and city."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import ConditionValue, make_condition, with_condition
from datum_compute.api.identity import deployment_name
from datum_compute.api.instance import AVAILABLE
from datum_compute.api.instancetype import InstanceType
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.meta import ObjectMeta, owner_reference
from datum_compute.api.plane import PlaneName
from datum_compute.api.resourceclaim import ResourceClaim
from datum_compute.api.workload import BlockedReplicas, Placement, Workload
from datum_compute.api.workloaddeployment import (
    WorkloadDeployment,
    WorkloadDeploymentSpec,
    WorkloadRef,
)
from datum_compute.api.workloadrevision import WorkloadRevision
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.plan import Action, Create, Plan, Wait, add_finalizer
from datum_compute.planning.quota.workload_claims import (
    EXPECTED_DECISION_S,
    QUOTA_PENDING,
    is_recent_claim,
    plan_workload_claim,
    quota_block_reason,
    release_workload_claim,
)
from datum_compute.planning.workload.deletion import plan_removals, plan_workload_removal
from datum_compute.planning.workload.fallback import Share, city_shares
from datum_compute.planning.workload.revisions import release_revisions
from datum_compute.planning.workload.status import workload_status
from datum_compute.planning.workload.templates import template_in

# What is held is woken by its claim; a missed event costs at most this long.
HELD_S = 60.0

UNWANTED = "no placement asks for it"


@dataclass(frozen=True, slots=True)
class WorkloadObjects:
    """A Workload and the objects of its project that belong to it."""

    workload: Workload
    deployments: Sequence[WorkloadDeployment]
    claim: ResourceClaim | None
    revisions: Sequence[WorkloadRevision]  # only needed to remove the workload
    instance_type: InstanceType | None


def plan_workload_lifecycle(plane: PlaneName, found: WorkloadObjects, now: str) -> Plan:
    """Plan the next steps of a Workload: finalizer, quota claim, then deployments.

    - The finalizer is added first, because it removes everything that follows.
    - A workload without deployments waits for its claim. The claim does not affect a workload
      that has deployments.
    - A new claim has `EXPECTED_DECISION_S` before the workload reports that it waits for quota.
    """
    workload, claim = found.workload, found.claim
    if workload.is_terminating:
        last = (
            *release_workload_claim(plane, workload, claim),
            *release_revisions(plane, workload, found.revisions),
        )
        return plan_workload_removal(plane, workload, found.deployments, now, last)
    guard = add_finalizer(plane, WORKLOAD, workload, labels.WORKLOAD_FINALIZER)
    claimed = plan_workload_claim(plane, workload, claim)
    first = (*guard, *claimed)
    if guard or (claimed and not found.deployments):
        return Plan(first)  # the events of these writes start the next reconcile
    hold = quota_block_reason(workload, claim, found.deployments)
    if hold is QUOTA_PENDING and is_recent_claim(claim, now):
        return Plan(first, requeue_after_s=EXPECTED_DECISION_S)
    rest = plan_workload(plane, workload, found.deployments, now, found.instance_type, hold)
    return replace(rest, actions=(*first, *rest.actions))


def plan_workload(
    plane: PlaneName,
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    now: str,
    instance_type: InstanceType | None = None,
    hold: ConditionValue | None = None,
) -> Plan:
    """``deployments`` are all those that carry this workload's uid; ``instance_type`` is the one
    that it names; ``hold`` says why there may be none yet."""
    if workload.is_terminating:
        return plan_workload_removal(plane, workload, deployments, now)
    guard = add_finalizer(plane, WORKLOAD, workload, labels.WORKLOAD_FINALIZER)
    if guard:
        return Plan(tuple(guard))
    if hold is not None:
        return _plan_held(plane, workload, hold, now)
    shares = _shares(workload, deployments, now)
    observed = {d.metadata.name: d for d in deployments}
    desired = {d.metadata.name: d for d in desired_deployments(workload, shares)}
    unwanted = [d for name, d in sorted(observed.items()) if name not in desired]
    actions = plan_removals(plane, unwanted, UNWANTED)
    for name, deployment in sorted(desired.items()):
        actions += _upsert(plane, deployment, observed.get(name))
    unsaid = not workload.status.observed_generation
    if unsaid and any(isinstance(action, Create) for action in actions):
        return Plan(tuple(actions))  # its first word comes with them
    told = {name: [s.told for s in found if s.told] for name, found in shares.items()}
    status = workload_status(workload, deployments, now, instance_type, told)
    due_s = [s.due_s for found in shares.values() for s in found if s.due_s is not None]
    return Plan(
        (*actions, *plan_status(plane, WORKLOAD, workload, status)),
        requeue_after_s=min(due_s, default=None),
    )


def _plan_held(plane: PlaneName, workload: Workload, hold: ConditionValue, now: str) -> Plan:
    status = workload_status(workload, (), now)
    generation, wanted = workload.metadata.generation, status.desired_replicas
    available = make_condition(AVAILABLE, hold, generation=generation, now=now)
    told = msgspec.structs.replace(
        status,
        conditions=with_condition(status.conditions, available),
        blocked=[BlockedReplicas(reason=hold.reason, replicas=wanted, message=hold.message)],
    )
    report = plan_status(plane, WORKLOAD, workload, told)
    return Plan((*report, Wait(hold.message)), requeue_after_s=HELD_S)


Shares = Mapping[str, Sequence[Share]]  # by placement


def _shares(workload: Workload, deployments: Sequence[WorkloadDeployment], now: str) -> Shares:
    return {
        placement.name: city_shares(workload, placement, deployments, now)
        for placement in workload.spec.placements
    }


def desired_deployments(
    workload: Workload, shares: Shares | None = None
) -> list[WorkloadDeployment]:
    """``shares`` says which cities serve whom; without it each serves itself."""
    shares = shares if shares is not None else _shares(workload, (), "")
    return [
        _deployment(workload, placement, city, "" if city == share.city else share.city)
        for placement in workload.spec.placements
        for share in shares[placement.name]
        for city in share.wanted
    ]


def _deployment(
    workload: Workload, placement: Placement, city: str, stands_for: str
) -> WorkloadDeployment:
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
            annotations={labels.FALLBACK_FOR: stands_for} if stands_for else {},
            owner_references=[owner_reference(workload, WORKLOAD)],
            finalizers=[labels.FEDERATOR_FINALIZER],
        ),
        spec=WorkloadDeploymentSpec(
            workload_ref=WorkloadRef(name=metadata.name, uid=metadata.uid),
            placement_name=placement.name,
            city_code=city,
            template=template_in(workload, city),
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
