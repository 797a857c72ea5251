"""The quota claim of a Workload: one of ``workloads``, made before anything is made of it.

It lies beside the Workload, is named for it, and goes with it. A Workload that has no deployment
yet waits until it is granted; one that has some is never touched by what becomes of its claim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from datum_compute.api.conditions import FALSE, Verdict, find_condition
from datum_compute.api.kinds import CLAIM, WORKLOAD
from datum_compute.api.meta import ObjectMeta, Ref, owner_reference
from datum_compute.api.plane import PlaneName, member_name
from datum_compute.api.quotametrics import WORKLOADS, consumer_of
from datum_compute.api.reasons import Reason
from datum_compute.api.resourceclaim import (
    GRANTED,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceRequest,
)
from datum_compute.api.workload import Workload
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.actions import Action, Create
from datum_compute.planning.claims import is_granted

_PREFIX = "workload-"
_NAME_MAX = 253
UNDECIDED = Verdict(FALSE, Reason.QUOTA_NOT_GRANTED, "The quota of the workload is not decided yet")


def workload_claim_ref(workload: Ref) -> Ref:
    name = f"{_PREFIX}{workload.name}"
    if len(name) > _NAME_MAX:
        digest = hashlib.sha256(workload.name.encode()).hexdigest()[:10]
        name = f"{name[: _NAME_MAX - 11].rstrip('-.')}-{digest}"
    return Ref(workload.namespace, name)


def plan_workload_claim(
    plane: PlaneName, workload: Workload, claim: ResourceClaim | None
) -> list[Action]:
    """Made when it is missing; one that goes is waited for."""
    if claim is not None:
        return []
    return [Create(plane, CLAIM, _claim(plane, workload), "a workload counts")]


def quota_hold(
    workload: Workload, claim: ResourceClaim | None, deployments: Sequence[WorkloadDeployment]
) -> Verdict | None:
    """Why nothing is made of the workload yet; None if nothing holds it."""
    if deployments or workload.status.deployments:
        return None
    if claim is None or not _is_of(claim, workload):
        return UNDECIDED
    if is_granted(claim):
        return None
    denied = find_condition(claim.status.conditions, GRANTED)
    if denied is None or denied.reason == Reason.PENDING_EVALUATION:
        return UNDECIDED
    return Verdict(FALSE, Reason.QUOTA_NOT_GRANTED, denied.message)


def _is_of(claim: ResourceClaim, workload: Workload) -> bool:
    """An earlier workload of the name may have left one that is still going."""
    return any(o.uid == workload.metadata.uid for o in claim.metadata.owner_references)


def _claim(plane: PlaneName, workload: Workload) -> ResourceClaim:
    consumer = consumer_of(member_name(plane))
    ref = workload_claim_ref(Ref(workload.metadata.namespace, workload.metadata.name))
    return ResourceClaim(
        metadata=ObjectMeta(
            name=ref.name,
            namespace=ref.namespace,
            owner_references=[owner_reference(workload, WORKLOAD)],
        ),
        spec=ResourceClaimSpec(
            consumer_ref=consumer,
            resource_ref=consumer,
            requests=[ResourceRequest(resource_type=WORKLOADS.resource_type, amount=1)],
        ),
    )
