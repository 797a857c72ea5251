"""Conditions of objects: each has one writer, and its transition time changes only with its status.

Write all conditions of an object that changed in one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, Literal, NamedTuple

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import doc, map_by

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"
ConditionStatus = Literal["True", "False", "Unknown"]

# lastTransitionTime of a condition that no controller has decided yet.
EPOCH = "1970-01-01T00:00:00Z"


class Condition(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Observed state of one aspect of an object."""

    type: Annotated[str, doc("Type of the condition. A list contains each type once.")]
    status: Annotated[ConditionStatus, doc("Status of the condition.")]
    reason: Annotated[str, doc("One-word cause of the status in CamelCase, for programs.")]
    message: Annotated[str, doc("Cause of the status in words, for people.")] = ""
    last_transition_time: Annotated[str, doc("Time when the status last changed (RFC 3339).")] = (
        EPOCH
    )
    observed_generation: Annotated[int, doc("Generation that this condition describes.")] = 0


Conditions = Annotated[
    list[Condition], map_by("type"), doc("Observed state of the object, one entry for each aspect.")
]


class ConditionValue(NamedTuple):
    """The status, reason and message of one condition, without type and time."""

    status: ConditionStatus
    reason: str
    message: str


def unknown_conditions(*types: str) -> list[Condition]:
    """Return the conditions of a new object that no controller has observed yet."""
    return [
        Condition(type=type_, status=UNKNOWN, reason="Pending", message="Not observed yet")
        for type_ in types
    ]


def make_condition(type_: str, value: ConditionValue, *, generation: int, now: str) -> Condition:
    """Return the condition with this value, set now for an object at `generation`."""
    return Condition(
        type=type_,
        status=value.status,
        reason=value.reason,
        message=value.message,
        last_transition_time=now,
        observed_generation=generation,
    )


def find_condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    for condition in conditions:  # called very often: a loop is twice as fast as next()
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    found = find_condition(conditions, type_)
    return found is not None and found.status == TRUE


def with_condition(conditions: Sequence[Condition], new: Condition) -> list[Condition]:
    """Return the list with ``new``. The transition time is kept if the status is unchanged."""
    old = find_condition(conditions, new.type)
    if old is not None and old.status == new.status:
        new = Condition(
            type=new.type,
            status=new.status,
            reason=new.reason,
            message=new.message,
            last_transition_time=old.last_transition_time,
            observed_generation=new.observed_generation,
        )
    if old is None:
        return [*conditions, new]
    return [new if c.type == new.type else c for c in conditions]


def set_conditions(
    conditions: Sequence[Condition],
    values: Mapping[str, ConditionValue],
    *,
    generation: int,
    now: str,
) -> list[Condition]:
    """Return the conditions with a value for each type in ``values``."""
    updated = list(conditions)
    for type_, value in values.items():
        updated = with_condition(
            updated, make_condition(type_, value, generation=generation, now=now)
        )
    return updated


# --- Reasons of the conditions of Workloads, WorkloadDeployments, Instances and Servers
# Clients depend on these words, so a reason never gets another meaning. A new reason needs a line
# here and an entry in ``planning/explain/advice.py``; a test checks both. ``planning/reasons.py``
# ranks the causes. Conditions of other
# providers and gates can have other reasons, which are passed on unchanged.


class Reason(StrEnum):
    # Not observed yet, or in progress.
    PENDING = "Pending"
    PENDING_PROGRAMMING = "PendingProgramming"
    PROGRAMMING_IN_PROGRESS = "ProgrammingInProgress"
    PROVISIONING = "Provisioning"
    STARTING = "Starting"
    STOPPING = "Stopping"
    STOPPED = "Stopped"  # by spec.stopped of the workload; or the program exited by itself
    PROJECT_SUSPENDED = "ProjectSuspended"
    SCHEDULING_GATES_PRESENT = "SchedulingGatesPresent"
    AWAITING_CREATION = "AwaitingCreation"

    # The desired state.
    PROGRAMMED = "Programmed"
    AVAILABLE = "Available"
    ASLEEP = "Asleep"

    NOT_OBSERVED = "NotObserved"  # the driver could not observe the machine for 30 s

    # The instance cannot run.
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    REGISTRY_UNREACHABLE = "RegistryUnreachable"  # the registry may have the image
    INSTANCE_CRASHING = "InstanceCrashing"
    CONFIGURATION_ERROR = "ConfigurationError"
    UNSCHEDULABLE = "Unschedulable"  # no node of the cell has room
    NOT_READY = "NotReady"  # running, but the readiness probe or a port check fails

    # Quota.
    PENDING_QUOTA = "PendingQuota"
    PENDING_EVALUATION = "PendingEvaluation"
    QUOTA_AVAILABLE = "QuotaAvailable"
    QUOTA_DISABLED = "QuotaDisabled"
    QUOTA_EXCEEDED = "QuotaExceeded"
    QUOTA_NO_BUDGET = "QuotaNoBudget"
    VALIDATION_FAILED = "ValidationFailed"
    QUOTA_BACKEND_UNAVAILABLE = "QuotaBackendUnavailable"
    QUOTA_PROJECT_NOT_FOUND = "QuotaProjectNotFound"
    QUOTA_NAMESPACE_NOT_FOUND = "QuotaNamespaceNotFound"
    QUOTA_MISCONFIGURED = "QuotaMisconfigured"
    QUOTA_PROJECT_ID_UNRESOLVABLE = "QuotaProjectIDUnresolvable"

    # Instance types, and workloads of a deprecated or disabled type. Running instances stay.
    VALID = "Valid"
    REPLACEMENT_NOT_FOUND = "ReplacementNotFound"
    REPLACEMENT_DISABLED = "ReplacementDisabled"
    INSTANCE_TYPE_DEPRECATED = "InstanceTypeDeprecated"
    INSTANCE_TYPE_DISABLED = "InstanceTypeDisabled"

    # Referenced ConfigMaps and Secrets.
    READY = "Ready"
    RESOLVING = "Resolving"
    AWAITING_PROPAGATION = "AwaitingPropagation"
    SOURCE_NOT_FOUND = "SourceNotFound"
    SOURCE_UNAUTHORIZED = "SourceUnauthorized"
    SOURCE_TOO_LARGE = "SourceTooLarge"
    SOURCE_NAME_TOO_LONG = "SourceNameTooLong"
    SOURCE_NAME_RESERVED = "SourceNameReserved"
    REFERENCED_DATA_NOT_READY = "ReferencedDataNotReady"

    # Network.
    NETWORK_NOT_FOUND = "NetworkNotFound"
    NETWORK_PROVISIONING = "NetworkProvisioning"
    NETWORK_FAILED_TO_CREATE = "NetworkFailedToCreate"

    # Deployments and workloads.
    STABLE_INSTANCE_FOUND = "StableInstanceFound"
    INSTANCES_PROVISIONING = "InstancesProvisioning"
    QUOTA_NOT_GRANTED = "QuotaNotGranted"
    REPLICAS_AVAILABLE = "ReplicasAvailable"
    AVAILABLE_PLACEMENT_FOUND = "AvailablePlacementFound"
    AVAILABLE_DEPLOYMENT_FOUND = "AvailableDeploymentFound"
    NO_AVAILABLE_PLACEMENTS = "NoAvailablePlacements"
    NO_AVAILABLE_DEPLOYMENTS = "NoAvailableDeployments"

    # Rollouts.
    ROLLING_OUT = "RollingOut"
    ROLLOUT_COMPLETE = "RolloutComplete"
    ROLLOUT_PAUSED = "RolloutPaused"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    SURGE_UNAVAILABLE = "SurgeUnavailable"  # no surge instance can run
    ROLLED_BACK = "RolledBack"

    # Between planes.
    NO_MATCHING_LOCATION = "NoMatchingLocation"
    REMOVING = "Removing"
    HELD_BY_FINALIZER = "HeldByFinalizer"
    CELL_UNREACHABLE = "CellUnreachable"
    AMBIGUOUS_SERVING_LOCATION = "AmbiguousServingLocation"
    CELL_DRAINED = "CellDrained"

    # Fallback cities.
    FALLBACK_ENGAGED = "FallbackEngaged"
    FALLBACK_EXHAUSTED = "FallbackExhausted"
