"""The WorkloadDeployments of a Workload: one per placement and city.

- A workload without deployments waits for its quota claim before the first ones are created.
- ``fallback.py`` decides in which cities the replicas of each city run.
- ``city_order.py`` decides which template each city gets.
- Deployments in other cities are deleted.
- ``names.py`` decides the names of the deployments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import (
    WorkloadDeployment,
    WorkloadDeploymentSpec,
    WorkloadRef,
)
from datum_compute.api.compute.instance import AVAILABLE, InstanceTemplate
from datum_compute.api.compute.instance_type import InstanceType
from datum_compute.api.compute.workload import BlockedReplicas, Placement, Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.conditions import ConditionValue, make_condition, with_condition
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.meta.objects import ObjectMeta, owner_reference
from datum_compute.api.planes import PlaneName
from datum_compute.api.quota import ResourceClaim
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
from datum_compute.planning.rollout.suspension import workload_halt_reason
from datum_compute.planning.workload.city_order import Assignments, plan_city_templates
from datum_compute.planning.workload.deletion import (
    plan_deployment_deletions,
    plan_workload_deletion,
)
from datum_compute.planning.workload.fallback import assign_cities
from datum_compute.planning.workload.names import (
    NameHolder,
    Place,
    name_places,
    place_of_deployment,
)
from datum_compute.planning.workload.revisions import own_revisions, release_revisions
from datum_compute.planning.workload.status import Decisions, workload_status
from datum_compute.planning.workload.templates import template_in

# The deletion of the other deployment reconciles a workload that waits for a name. This limits the
# delay after a missed event, and while the other deployment is kept.
NAME_RECHECK_S = 30.0
# The event of its claim reconciles a blocked workload. This limits the delay after a missed event.
BLOCKED_RECHECK_S = 60.0

UNWANTED = "no placement includes its city"


@dataclass(frozen=True, slots=True)
class WorkloadObjects:
    """A Workload and the objects of its project that belong to it."""

    workload: Workload
    deployments: Sequence[WorkloadDeployment]
    claim: ResourceClaim | None
    revisions: Sequence[WorkloadRevision]  # only if it is terminating, or ``needs_revisions``
    instance_type: InstanceType | None
    is_suspended: bool = False  # the project is
    # Deployments of other workloads that have a name for a new deployment of this one.
    name_holders: Mapping[str, NameHolder] = field(default_factory=dict)
    enforces_quota: bool = True


def plan_workload_lifecycle(plane: PlaneName, found: WorkloadObjects, now: str) -> Plan:
    """Plan the next steps of a Workload: finalizer, quota claim, then deployments.

    - The finalizer is added first, so that everything created later is deleted with the workload.
    - A workload without deployments waits for its claim. The claim does not affect a workload
      that has deployments. While quota is not enforced, no claim is created.
    - A new claim has `EXPECTED_DECISION_S` before the workload reports that it waits for quota.
    """
    workload, claim = found.workload, found.claim
    if workload.is_terminating:
        dependents = (
            *release_workload_claim(plane, workload, claim),
            *release_revisions(plane, workload, found.revisions),
        )
        return plan_workload_deletion(plane, workload, found.deployments, now, dependents)
    finalizer_patches = add_finalizer(plane, WORKLOAD, workload, labels.WORKLOAD_FINALIZER)
    claim_actions = plan_workload_claim(plane, workload, claim) if found.enforces_quota else []
    first = (*finalizer_patches, *claim_actions)
    if finalizer_patches or (claim_actions and not found.deployments):
        return Plan(first)  # the events of these writes start the next reconcile
    block_reason = None
    if found.enforces_quota:
        block_reason = quota_block_reason(workload, claim, found.deployments)
    if block_reason is QUOTA_PENDING and is_recent_claim(claim, now):
        return Plan(first, requeue_after_s=EXPECTED_DECISION_S)
    if block_reason is not None:
        rest = _plan_blocked(plane, workload, block_reason, now)
    else:
        rest = plan_workload(
            plane,
            workload,
            found.deployments,
            now,
            found.instance_type,
            found.revisions,
            is_suspended=found.is_suspended,
            name_holders=found.name_holders,
        )
    return replace(rest, actions=(*first, *rest.actions))


def plan_workload(
    plane: PlaneName,
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    now: str,
    instance_type: InstanceType | None = None,
    revisions: Sequence[WorkloadRevision] = (),
    *,
    is_suspended: bool = False,
    name_holders: Mapping[str, NameHolder] | None = None,
) -> Plan:
    """Plan the deployments and the status of a Workload.

    ``deployments`` are all deployments with this workload's uid. ``is_suspended`` is True if the
    project is suspended. ``name_holders`` are deployments of other workloads by name.

    A new rollback is recorded in the status first. Otherwise a restart of the controller between
    two cities would start the failed template again.
    """
    if workload.is_terminating:
        return plan_workload_deletion(plane, workload, deployments, now)
    finalizer_patches = add_finalizer(plane, WORKLOAD, workload, labels.WORKLOAD_FINALIZER)
    if finalizer_patches:
        return Plan(tuple(finalizer_patches))
    halted = workload_halt_reason(workload, is_suspended=is_suspended)
    is_halted = halted is not None
    assignments = _assign_all_cities(workload, deployments, now, is_halted=is_halted)
    own = own_revisions(workload, revisions)
    cities = plan_city_templates(workload, assignments, deployments, own, is_halted=is_halted)
    fallbacks = {name: [s.status for s in found if s.status] for name, found in assignments.items()}
    decided = Decisions(fallbacks, cities.rollout, halted)
    status = workload_status(workload, deployments, now, instance_type, decided)
    if cities.is_rollback_new:
        return Plan(tuple(plan_status(plane, WORKLOAD, workload, status)))
    observed = {d.metadata.name: d for d in deployments}
    named = name_places(workload, _places(assignments), deployments, name_holders or {})
    desired = {
        d.metadata.name: d
        for d in desired_deployments(workload, assignments, cities.templates, named.names)
        if place_of_deployment(d) not in named.waiting
    }
    unwanted = [d for name, d in sorted(observed.items()) if name not in desired]
    actions = plan_deployment_deletions(plane, unwanted, UNWANTED)
    actions += [_wait_for_name(named.names[p], holder) for p, holder in named.waiting.items()]
    for name, deployment in sorted(desired.items()):
        spec = msgspec.structs.replace(deployment.spec, suspended=is_suspended)
        wanted = msgspec.structs.replace(deployment, spec=spec)
        actions += _plan_deployment(plane, wanted, observed.get(name))
    is_new = not workload.status.observed_generation
    if is_new and any(isinstance(action, Create) for action in actions):
        return Plan(tuple(actions))  # the next reconcile writes the first status
    due_s = [s.due_s for found in assignments.values() for s in found if s.due_s is not None]
    due_s += [NAME_RECHECK_S] * bool(named.waiting)
    return Plan(
        (*actions, *plan_status(plane, WORKLOAD, workload, status)),
        requeue_after_s=min(due_s, default=None),
    )


def _plan_blocked(
    plane: PlaneName, workload: Workload, block_reason: ConditionValue, now: str
) -> Plan:
    status = workload_status(workload, (), now)
    generation, wanted = workload.metadata.generation, status.desired_replicas
    available = make_condition(AVAILABLE, block_reason, generation=generation, now=now)
    status = msgspec.structs.replace(
        status,
        conditions=with_condition(status.conditions, available),
        blocked=[
            BlockedReplicas(
                reason=block_reason.reason, replicas=wanted, message=block_reason.message
            )
        ],
    )
    report = plan_status(plane, WORKLOAD, workload, status)
    return Plan((*report, Wait(block_reason.message)), requeue_after_s=BLOCKED_RECHECK_S)


def _assign_all_cities(
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    now: str,
    *,
    is_halted: bool = False,
) -> Assignments:
    return {
        placement.name: assign_cities(workload, placement, deployments, now, is_halted=is_halted)
        for placement in workload.spec.placements
    }


def _places(assignments: Assignments) -> list[Place]:
    return [
        Place(placement, city)
        for placement, found in assignments.items()
        for assignment in found
        for city in assignment.wanted
    ]


def _wait_for_name(name: str, holder: NameHolder) -> Wait:
    owner = holder.deployment.spec.workload_ref.name
    return Wait(f"deployment {name} of workload {owner} is being removed")


def desired_deployments(
    workload: Workload,
    assignments: Assignments | None = None,
    templates: Mapping[tuple[str, str], InstanceTemplate] | None = None,
    names: Mapping[Place, str] | None = None,
) -> list[WorkloadDeployment]:
    """Return the deployments of a Workload.

    ``templates`` are the templates by placement and city; by default all cities get the current
    one. Without ``assignments`` no fallback city is used. Without ``names`` the deployments have
    the names that they get if no other deployment has them.
    """
    assignments = assignments if assignments is not None else _assign_all_cities(workload, (), "")
    names = (
        names if names is not None else name_places(workload, _places(assignments), (), {}).names
    )
    found = []
    for placement in workload.spec.placements:
        for assignment in assignments[placement.name]:
            for city in assignment.wanted:
                template = (templates or {}).get((placement.name, city))
                name = names[Place(placement.name, city)]
                deployment = _build_deployment(
                    workload, placement, city, template or template_in(workload, city), name
                )
                if city != assignment.city:
                    marks = {labels.FALLBACK_FOR: assignment.city}
                    metadata = msgspec.structs.replace(deployment.metadata, annotations=marks)
                    deployment = msgspec.structs.replace(deployment, metadata=metadata)
                found.append(deployment)
    return found


def _build_deployment(
    workload: Workload, placement: Placement, city: str, template: InstanceTemplate, name: str
) -> WorkloadDeployment:
    metadata = workload.metadata
    return WorkloadDeployment(
        metadata=ObjectMeta(
            name=name,
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
            template=template,
            scale_settings=placement.scale_settings,
            paused=workload.spec.paused,
            stopped=workload.spec.stopped,
        ),
    )


def _plan_deployment(
    plane: PlaneName, desired: WorkloadDeployment, observed: WorkloadDeployment | None
) -> list[Action]:
    if observed is not None and observed.is_terminating:
        return [Wait(f"{observed.metadata.name} is being removed before it can be recreated")]
    if observed is not None:  # another controller writes the network attachment
        attachment = observed.spec.network_attachment
        spec = msgspec.structs.replace(desired.spec, network_attachment=attachment)
        desired = msgspec.structs.replace(desired, spec=spec)
    reason = f"placement {desired.spec.placement_name} in {desired.spec.city_code}"
    return plan_object(plane, DEPLOYMENT, desired, observed, reason)
