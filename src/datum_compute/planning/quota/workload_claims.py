"""The quota claim of a Workload: one of ``workloads``, made before anything is made of it.

It lies beside the Workload, is named for it, and goes with it: the finalizer of the Workload takes
it away, since a deletion with ``Orphan`` leaves garbage collection nothing to go by. What an
earlier Workload of the name has left is replaced. A Workload that has no deployment yet waits until
its claim is granted; one that has some is never touched by what becomes of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from datum_compute.api.conditions import FALSE, Verdict, find_condition
from datum_compute.api.kinds import CLAIM, WORKLOAD
from datum_compute.api.meta import ObjectMeta, Ref, owner_reference, ref_of
from datum_compute.api.plane import PlaneName, member_name
from datum_compute.api.quotametrics import WORKLOADS, consumer_of
from datum_compute.api.reasons import QUOTA_DENIED_ON_DEPLOYMENT, Reason
from datum_compute.api.resourceclaim import (
    GRANTED,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceRequest,
)
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.api.workload import Workload
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.plan import Action, Create, Delete
from datum_compute.planning.quota.claims import is_granted

_PREFIX = "workload-"
_NAME_MAX = 253
# Most claims are decided at once: what takes no longer than this is not worth a word.
EXPECTED_DECISION_S = 2.0
QUOTA_PENDING = Verdict(
    FALSE, Reason.PENDING_EVALUATION, "The quota of the workload is not decided yet"
)


def workload_claim_ref(workload: Ref) -> Ref:
    name = f"{_PREFIX}{workload.name}"
    if len(name) > _NAME_MAX:
        digest = hashlib.sha256(workload.name.encode()).hexdigest()[:10]
        name = f"{name[: _NAME_MAX - 11].rstrip('-.')}-{digest}"
    return Ref(workload.namespace, name)


def workload_of_claim(claim: Ref) -> Ref | None:
    """The workload that the name of a claim is made of; None for claims of others."""
    if not claim.name.startswith(_PREFIX):
        return None
    return Ref(claim.namespace, claim.name.removeprefix(_PREFIX))


def plan_workload_claim(
    plane: PlaneName, workload: Workload, claim: ResourceClaim | None
) -> list[Action]:
    """Made when it is missing. One that nobody owns is left over from an earlier workload of the
    name and makes room; one that goes, or that others own, is waited for."""
    if claim is None:
        return [Create(plane, CLAIM, _claim(plane, workload), "a workload counts")]
    if claim.metadata.owner_references or claim.is_terminating:
        return []
    return [_delete(plane, claim, "it was left by an earlier workload of the name")]


def release_workload_claim(
    plane: PlaneName, workload: Workload, claim: ResourceClaim | None
) -> list[Action]:
    """With the workload, whether or not it still says whose it is."""
    if claim is None or claim.is_terminating:
        return []
    if claim.metadata.owner_references and not _is_of(claim, workload):
        return []
    return [_delete(plane, claim, "its workload is going")]


def _delete(plane: PlaneName, claim: ResourceClaim, reason: str) -> Delete:
    """Only as it was seen: by now it may be somebody's."""
    metadata = claim.metadata
    return Delete(plane, CLAIM, ref_of(claim), metadata.uid, reason, metadata.resource_version)


def is_recent_claim(claim: ResourceClaim | None, now: str) -> bool:
    """Whether it is too early to say that its decision is late."""
    made = claim.metadata.creation_timestamp if claim is not None else None
    return made is not None and parse_timestamp(now) - parse_timestamp(made) < EXPECTED_DECISION_S


def quota_block_reason(
    workload: Workload, claim: ResourceClaim | None, deployments: Sequence[WorkloadDeployment]
) -> Verdict | None:
    """Why nothing is made of the workload yet; None if nothing holds it."""
    if deployments or workload.status.deployments:
        return None
    if claim is None:
        return QUOTA_PENDING
    if claim.is_terminating or not _is_of(claim, workload):
        return _leftover(claim)
    if is_granted(claim):
        return None
    denied = find_condition(claim.status.conditions, GRANTED)
    if denied is None or denied.reason == Reason.PENDING_EVALUATION:
        return QUOTA_PENDING
    return Verdict(FALSE, QUOTA_DENIED_ON_DEPLOYMENT, denied.message)


def _is_of(claim: ResourceClaim, workload: Workload) -> bool:
    """An earlier workload of the name may have left one."""
    return any(o.uid == workload.metadata.uid for o in claim.metadata.owner_references)


def _leftover(claim: ResourceClaim) -> Verdict:
    """Why a claim of the workload's own cannot be made."""
    name, metadata = f"ResourceClaim {claim.metadata.name}", claim.metadata
    if metadata.finalizers:
        held = f"{name} is still there, held by {', '.join(metadata.finalizers)}"
        return Verdict(FALSE, Reason.QUOTA_MISCONFIGURED, held)
    if metadata.owner_references and not claim.is_terminating:
        owner = metadata.owner_references[0]
        whose = f"{name} belongs to {owner.kind} {owner.name} (uid {owner.uid})"
        return Verdict(FALSE, Reason.QUOTA_MISCONFIGURED, whose)
    replaced = f"{name} of an earlier workload is being replaced"
    return Verdict(FALSE, Reason.PENDING_EVALUATION, replaced)


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
