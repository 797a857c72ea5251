"""Rank of the reasons why an Instance, WorkloadDeployment or Workload is not available.

- If several causes apply, the one with the highest rank is reported. Among causes of equal rank it
  is the first. Callers pass causes in a fixed order: instances by ordinal, deployments by placement
  and name.
- A WorkloadDeployment reports the reason and message of its worst Instance, and a Workload those of
  its worst deployment. Only reasons that the API names differently on a deployment are replaced
  (``as_deployment_reason``).
- A reason that is not in the table has rank 0, such as the steps of a normal start and the reasons
  of other providers.
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.api.conditions import FALSE, ConditionValue, Reason

RANK: dict[str, int] = {
    # No cell can be chosen.
    Reason.AMBIGUOUS_SERVING_LOCATION: 8,
    # The network cannot be set up.
    Reason.NETWORK_FAILED_TO_CREATE: 7,
    # The network does not exist, or the current state is unknown.
    Reason.NETWORK_NOT_FOUND: 6,
    Reason.CELL_UNREACHABLE: 6,
    Reason.NOT_OBSERVED: 6,
    # The instance cannot run with this template, or its program has ended.
    Reason.IMAGE_UNAVAILABLE: 5,
    Reason.REGISTRY_UNREACHABLE: 5,
    Reason.INSTANCE_CRASHING: 5,
    Reason.CONFIGURATION_ERROR: 5,
    Reason.STOPPED: 5,
    Reason.SOURCE_NOT_FOUND: 5,
    Reason.SOURCE_UNAUTHORIZED: 5,
    Reason.SOURCE_TOO_LARGE: 5,
    Reason.SOURCE_NAME_TOO_LONG: 5,
    Reason.SOURCE_NAME_RESERVED: 5,
    # Referenced ConfigMaps and Secrets, or the first report of a cell.
    Reason.REFERENCED_DATA_NOT_READY: 4,
    Reason.AWAITING_PROPAGATION: 4,
    Reason.RESOLVING: 4,
    # Quota.
    Reason.PENDING_QUOTA: 3,
    Reason.QUOTA_NOT_GRANTED: 3,
    # The machine of the instance does not serve yet, or no cell accepts the deployment.
    Reason.NETWORK_PROVISIONING: 2,
    Reason.NO_MATCHING_LOCATION: 2,
    Reason.CELL_DRAINED: 2,
    Reason.SCHEDULING_GATES_PRESENT: 2,
    Reason.UNSCHEDULABLE: 2,
    Reason.NOT_READY: 2,
    Reason.PROVISIONING: 1,
    # Reported only if no other reason applies: summaries, and steps that wait for another object.
    Reason.PENDING_PROGRAMMING: -1,
    Reason.REMOVING: -1,
    Reason.INSTANCES_PROVISIONING: -2,
    Reason.AWAITING_CREATION: -2,
    Reason.PENDING: -3,
}

# Available of a deployment whose instances report no cause.
NO_INSTANCES = ConditionValue(FALSE, Reason.INSTANCES_PROVISIONING, "No instances available yet")

# A denied quota claim has a different reason on each kind of object, as the API defines.
# QuotaGranted of an Instance has the reason of the denied claim (``as_quota_granted_reason``).
QUOTA_DENIED_ON_INSTANCE = Reason.PENDING_QUOTA  # Ready, Programmed, Available
QUOTA_DENIED_ON_DEPLOYMENT = Reason.QUOTA_NOT_GRANTED  # Available; also of a Workload
QUOTA_DENIED_ON_REPLICAS = Reason.QUOTA_EXCEEDED  # ReplicasReady of a WorkloadDeployment
QUOTA_DENIED = frozenset(
    {QUOTA_DENIED_ON_INSTANCE, QUOTA_DENIED_ON_DEPLOYMENT, QUOTA_DENIED_ON_REPLICAS}
)
# Reasons of QuotaGranted if the project has less quota than the instance needs.
TOO_LITTLE_QUOTA = frozenset({Reason.QUOTA_EXCEEDED, Reason.QUOTA_NO_BUDGET})

# The Available reason of a deployment by the Ready reason of its instance, if the two differ.
_DEPLOYMENT_REASONS: dict[str, Reason] = {
    QUOTA_DENIED_ON_INSTANCE: QUOTA_DENIED_ON_DEPLOYMENT,
    Reason.AWAITING_PROPAGATION: Reason.REFERENCED_DATA_NOT_READY,
    Reason.RESOLVING: Reason.REFERENCED_DATA_NOT_READY,
}


def rank_of(reason: str) -> int:
    return RANK.get(reason, 0)


def worst_cause(causes: Iterable[ConditionValue]) -> ConditionValue | None:
    """Return the first cause of the highest rank; None if there are no causes."""
    return max(causes, key=lambda cause: rank_of(cause.reason), default=None)


def as_quota_granted_reason(claim_reason: str) -> Reason:
    """Return the reason of QuotaGranted for the reason of a denied claim."""
    if claim_reason in (Reason.VALIDATION_FAILED, Reason.QUOTA_NO_BUDGET):
        return Reason(claim_reason)
    return Reason.QUOTA_EXCEEDED


def as_deployment_reason(instance_reason: str) -> str:
    """Return the Available reason of a deployment for the Ready reason of one of its instances."""
    return _DEPLOYMENT_REASONS.get(instance_reason, instance_reason)


def as_replicas_ready_reason(instance_reason: str) -> str:
    """Return the ReplicasReady reason of a deployment for the Ready reason of an instance."""
    if instance_reason == QUOTA_DENIED_ON_INSTANCE:
        return QUOTA_DENIED_ON_REPLICAS
    return instance_reason
