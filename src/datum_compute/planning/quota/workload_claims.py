"""The quota claim of a Workload: one unit of ``workloads``, claimed before the first deployment.

- The claim is in the namespace of the Workload and is named after it.
- The claim is deleted before the finalizer of the Workload is removed, because garbage collection
  would keep it after a deletion with ``Orphan``. A claim that an earlier Workload of the same name
  left is replaced.
- A Workload without deployments waits until its claim is granted. The claim does not affect a
  Workload that has deployments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import FALSE, ConditionValue, Reason, find_condition
from datum_compute.api.kinds import CLAIM, WORKLOAD
from datum_compute.api.meta.objects import ObjectMeta, Ref, owner_reference, ref_of
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.planes import PlaneName, member_name
from datum_compute.api.quota import (
    GRANTED,
    WORKLOADS,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceRequest,
    consumer_of,
)
from datum_compute.planning.plan import Action, Create, Delete
from datum_compute.planning.quota.claims import is_granted
from datum_compute.planning.reasons import QUOTA_DENIED_ON_DEPLOYMENT

_PREFIX = "workload-"
_NAME_MAX = 253
# Most claims are decided immediately. A pending decision is not reported before this time.
EXPECTED_DECISION_S = 2.0
QUOTA_PENDING = ConditionValue(FALSE, Reason.PENDING_EVALUATION, "Waiting for the quota decision")


def workload_claim_ref(workload: Ref) -> Ref:
    name = f"{_PREFIX}{workload.name}"
    if len(name) > _NAME_MAX:
        digest = hashlib.sha256(workload.name.encode()).hexdigest()[:10]
        name = f"{name[: _NAME_MAX - 11].rstrip('-.')}-{digest}"
    return Ref(workload.namespace, name)


def workload_of_claim(claim: Ref) -> Ref | None:
    """Return the workload whose claim has this name; None for other claims."""
    if not claim.name.startswith(_PREFIX):
        return None
    return Ref(claim.namespace, claim.name.removeprefix(_PREFIX))


def plan_workload_claim(
    plane: PlaneName, workload: Workload, claim: ResourceClaim | None
) -> list[Action]:
    """Create the claim if it is missing.

    A claim without an owner was left by an earlier workload of the same name and is deleted. A
    terminating claim and a claim with an owner are not changed.
    """
    if claim is None:
        return [Create(plane, CLAIM, _build_claim(plane, workload), "claim of a workload")]
    if claim.metadata.owner_references or claim.is_terminating:
        return []
    return [_delete_claim(plane, claim, "left by an earlier workload of the name")]


def release_workload_claim(
    plane: PlaneName, workload: Workload, claim: ResourceClaim | None
) -> list[Action]:
    """Delete the claim of a workload, even if its owner reference was removed."""
    if claim is None or claim.is_terminating:
        return []
    if claim.metadata.owner_references and not _is_owned_by(claim, workload):
        return []
    return [_delete_claim(plane, claim, "its workload is deleted")]


def _delete_claim(plane: PlaneName, claim: ResourceClaim, reason: str) -> Delete:
    """Delete the observed version only, because another writer may have become its owner."""
    metadata = claim.metadata
    return Delete(plane, CLAIM, ref_of(claim), metadata.uid, reason, metadata.resource_version)


def is_recent_claim(claim: ResourceClaim | None, now: str) -> bool:
    """Return True if the claim is so new that its decision is not overdue."""
    created = claim.metadata.creation_timestamp if claim is not None else None
    return (
        created is not None
        and parse_timestamp(now) - parse_timestamp(created) < EXPECTED_DECISION_S
    )


def quota_block_reason(
    workload: Workload, claim: ResourceClaim | None, deployments: Sequence[WorkloadDeployment]
) -> ConditionValue | None:
    """Return why no deployment may be created yet; None if deployments may be created."""
    if deployments or workload.status.deployments:
        return None
    if claim is None:
        return QUOTA_PENDING
    if claim.is_terminating or not _is_owned_by(claim, workload):
        return _leftover_claim_reason(claim)
    if is_granted(claim):
        return None
    denied = find_condition(claim.status.conditions, GRANTED)
    if denied is None or denied.reason == Reason.PENDING_EVALUATION:
        return QUOTA_PENDING
    return ConditionValue(FALSE, QUOTA_DENIED_ON_DEPLOYMENT, denied.message)


def _is_owned_by(claim: ResourceClaim, workload: Workload) -> bool:
    """Return False for a claim that an earlier workload of the name left."""
    return any(o.uid == workload.metadata.uid for o in claim.metadata.owner_references)


def _leftover_claim_reason(claim: ResourceClaim) -> ConditionValue:
    """Return why the workload cannot create its own claim."""
    name, metadata = f"ResourceClaim {claim.metadata.name}", claim.metadata
    if metadata.finalizers:
        message = f"{name} is waiting for its finalizers: {', '.join(metadata.finalizers)}"
        return ConditionValue(FALSE, Reason.QUOTA_MISCONFIGURED, message)
    if metadata.owner_references and not claim.is_terminating:
        owner = metadata.owner_references[0]
        message = f"{name} belongs to {owner.kind} {owner.name} (uid {owner.uid})"
        return ConditionValue(FALSE, Reason.QUOTA_MISCONFIGURED, message)
    message = f"{name} of an earlier workload is being replaced"
    return ConditionValue(FALSE, Reason.PENDING_EVALUATION, message)


def _build_claim(plane: PlaneName, workload: Workload) -> ResourceClaim:
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
