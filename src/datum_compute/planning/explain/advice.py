"""Advice for each reason: who has to act, what the platform waits for, and one command.

There is one entry for each ``Reason``; a test fails if one is missing. A reason that only a
provider or a controller outside the platform uses gets the advice ``FOREIGN``. ``waiting_for``
completes the sentence "Waiting for ...". Commands may contain the placeholders ``COMMAND_WORDS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from datum_compute.api.conditions import Reason


class Actor(StrEnum):
    """Who has to act."""

    USER = "you"
    PLATFORM = "platform"
    WAIT = "wait"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Advice:
    actor: Actor
    waiting_for: str
    command: str


COMMAND_WORDS = ("workload", "namespace", "resource", "name")

_STATUS = "datumctl compute status {workload}"
_DESCRIBE = "kubectl describe {resource} {name} --namespace={namespace}"
_WATCH = "kubectl get {resource} {name} --namespace={namespace} --watch"
_IMAGE = "datumctl compute deploy {workload} --image=IMAGE"
_QUOTA = "datumctl compute quota"
_CLAIMS = "kubectl get resourceclaims.quota.miloapis.com --namespace={namespace}"
_MOVE_BACK = "datumctl compute rollout return {workload}"
_RESUME = "datumctl compute rollout resume {workload}"
_START = "datumctl compute start {workload}"
_ACCESS = "datumctl compute access"
_EDIT = "kubectl edit workload {workload} --namespace={namespace}"
_EDIT_OBJECT = "kubectl edit {resource} {name} --namespace={namespace}"
_SOURCES = "kubectl get configmaps,secrets --namespace={namespace}"
_NETWORKS = "kubectl get networks --namespace={namespace}"
_LOCATIONS = "datumctl compute cities"


def _wait(waiting_for: str, command: str = _WATCH) -> Advice:
    return Advice(Actor.WAIT, waiting_for, command)


def _no_action(why: str) -> Advice:
    return Advice(Actor.NONE, f"nothing: {why}", _STATUS)


def _user(waiting_for: str, command: str) -> Advice:
    return Advice(Actor.USER, waiting_for, command)


def _platform(waiting_for: str, command: str = _DESCRIBE) -> Advice:
    return Advice(Actor.PLATFORM, waiting_for, command)


FOREIGN = _platform("the controller that set this condition")

ADVICE: Mapping[Reason, Advice] = {
    Reason.PENDING: _wait("the controller to observe the object"),
    Reason.PENDING_PROGRAMMING: _wait("the cell to start a machine for the instance"),
    Reason.PROGRAMMING_IN_PROGRESS: _wait("the machine to be set up"),
    Reason.PROVISIONING: _platform("free capacity on a host of the cell"),
    Reason.STARTING: _wait("the machine to start"),
    Reason.STOPPING: _wait("the machine to stop and its finalizers to be removed"),
    Reason.STOPPED: _user("the workload to be started, or a program that does not exit", _START),
    Reason.PROJECT_SUSPENDED: _platform("the access of the project to be restored", _ACCESS),
    Reason.SCHEDULING_GATES_PRESENT: _platform("the named scheduling gates to be removed"),
    Reason.AWAITING_CREATION: _wait("the instances with lower ordinals to become ready", _STATUS),
    Reason.PROGRAMMED: _no_action("the machine is set up"),
    Reason.AVAILABLE: _no_action("it is available"),
    Reason.ASLEEP: _wait("the first request, which starts it", _STATUS),
    Reason.NOT_OBSERVED: _platform("the container engine or cluster of the cell to respond"),
    Reason.IMAGE_UNAVAILABLE: _user("an image that exists in the registry", _IMAGE),
    Reason.REGISTRY_UNREACHABLE: _platform(
        "the registry to respond to the cell; the image may be correct"
    ),
    Reason.INSTANCE_CRASHING: _user(
        "a process that does not crash; its last log lines show the error", _IMAGE
    ),
    Reason.CONFIGURATION_ERROR: _user("a valid template", _EDIT),
    Reason.UNSCHEDULABLE: _platform("a node of the cell with free capacity"),
    Reason.NOT_READY: _wait("its readiness probe to succeed, or its ports to accept connections"),
    Reason.PENDING_QUOTA: _user("quota to be released or increased", _QUOTA),
    Reason.PENDING_EVALUATION: _wait("the decision about its quota claim", _CLAIMS),
    Reason.QUOTA_AVAILABLE: _no_action("its quota is granted"),
    Reason.QUOTA_DISABLED: _no_action("quota is not enforced here"),
    Reason.QUOTA_EXCEEDED: _user("quota to be released or increased", _QUOTA),
    Reason.QUOTA_NO_BUDGET: _platform("a quota grant for the project", _QUOTA),
    Reason.VALIDATION_FAILED: _platform("a quota claim that is valid", _CLAIMS),
    Reason.QUOTA_BACKEND_UNAVAILABLE: _platform("the quota service to respond", _CLAIMS),
    Reason.QUOTA_PROJECT_NOT_FOUND: _platform("the project to be created"),
    Reason.QUOTA_NAMESPACE_NOT_FOUND: _platform("the namespace of the project to be created"),
    Reason.QUOTA_MISCONFIGURED: _platform("the quota registrations to be corrected"),
    Reason.QUOTA_PROJECT_ID_UNRESOLVABLE: _platform("the namespace to be labeled with its project"),
    Reason.READY: _no_action("it is ready"),
    Reason.RESOLVING: _wait("the ConfigMaps and Secrets to be looked up"),
    Reason.AWAITING_PROPAGATION: _wait("the cell to receive the named objects and to report"),
    Reason.SOURCE_NOT_FOUND: _user(
        "the named ConfigMap or Secret to exist with its keys", _SOURCES
    ),
    Reason.SOURCE_UNAUTHORIZED: _user("permission to read the named ConfigMap or Secret", _EDIT),
    Reason.SOURCE_TOO_LARGE: _user("a smaller ConfigMap or Secret", _EDIT),
    Reason.SOURCE_NAME_TOO_LONG: _user("a ConfigMap or Secret with a shorter name", _EDIT),
    Reason.SOURCE_NAME_RESERVED: _user("a copy with another name", _EDIT),
    Reason.REFERENCED_DATA_NOT_READY: _wait("the ConfigMaps and Secrets to reach the cell"),
    Reason.NETWORK_NOT_FOUND: _user("the named network to be created", _NETWORKS),
    Reason.NETWORK_PROVISIONING: _wait("the network to be set up in the city"),
    Reason.NETWORK_FAILED_TO_CREATE: _platform("the network to be repaired", _NETWORKS),
    Reason.STABLE_INSTANCE_FOUND: _no_action("an instance is available"),
    Reason.INSTANCES_PROVISIONING: _wait("the first instance to become ready", _STATUS),
    Reason.QUOTA_NOT_GRANTED: _user("quota to be released or increased", _QUOTA),
    Reason.REPLICAS_AVAILABLE: _no_action("all instances are ready"),
    Reason.AVAILABLE_PLACEMENT_FOUND: _no_action("a placement is available"),
    Reason.AVAILABLE_DEPLOYMENT_FOUND: _no_action("a city is available"),
    Reason.NO_AVAILABLE_PLACEMENTS: _wait("the first city to report", _STATUS),
    Reason.NO_AVAILABLE_DEPLOYMENTS: _wait("the first city of the placement to report", _STATUS),
    Reason.ROLLING_OUT: _wait("the next instance to be replaced and ready", _STATUS),
    Reason.ROLLOUT_COMPLETE: _no_action("the rollout is complete"),
    Reason.ROLLOUT_PAUSED: _user("the rollout to be resumed", _RESUME),
    Reason.PROGRESS_DEADLINE_EXCEEDED: _user("the cause below to be fixed", _IMAGE),
    Reason.SURGE_UNAVAILABLE: _wait("the rollout to be completed without surge instances", _STATUS),
    Reason.ROLLED_BACK: _user("a template without the cause of the failure", _IMAGE),
    Reason.VALID: _no_action("the instance type can be used"),
    Reason.REPLACEMENT_NOT_FOUND: _platform("the replacement instance type to be created"),
    Reason.REPLACEMENT_DISABLED: _platform("another replacement instance type"),
    Reason.INSTANCE_TYPE_DEPRECATED: _user("a workload with another instance type", _EDIT),
    Reason.INSTANCE_TYPE_DISABLED: _user("a workload with another instance type", _EDIT),
    Reason.NO_MATCHING_LOCATION: _user("a city that has a cell", _LOCATIONS),
    Reason.CELL_UNREACHABLE: _platform("the named cell to reconnect", _LOCATIONS),
    Reason.AMBIGUOUS_SERVING_LOCATION: _platform(
        "one of the two cells of the city to leave", _LOCATIONS
    ),
    Reason.CELL_DRAINED: _platform("the cell of the city to accept new instances", _LOCATIONS),
    Reason.FALLBACK_ENGAGED: _user(
        "the workload to be moved back when its city is available", _MOVE_BACK
    ),
    Reason.FALLBACK_EXHAUSTED: _user("its city to be available, or more fallback cities", _EDIT),
    Reason.REMOVING: _platform("the named cells to confirm the removal"),
    Reason.HELD_BY_FINALIZER: _user(
        "the owners of the named finalizers to remove them", _EDIT_OBJECT
    ),
}

# Advice for NetworkFailedToCreate by the reason of the problem in the deployment's network
# attachment, for the problems that the user can solve.
NETWORK_PROBLEMS: Mapping[str, Advice] = {
    "LocationNotAvailable": _user("a city that the project can use", _LOCATIONS),
}


# How long a temporary reason usually lasts, in seconds. After that the object counts as stalled.
WINDOWS_S: Mapping[Reason, int] = {
    Reason.PENDING: 300,
    Reason.PENDING_EVALUATION: 300,
    Reason.RESOLVING: 300,
    Reason.PENDING_PROGRAMMING: 600,
    Reason.STARTING: 600,
    Reason.STOPPING: 600,
    Reason.AWAITING_PROPAGATION: 600,
    Reason.SCHEDULING_GATES_PRESENT: 600,
    Reason.PENDING_QUOTA: 600,
    Reason.AWAITING_CREATION: 900,
    Reason.NETWORK_PROVISIONING: 900,
    Reason.PROVISIONING: 1800,
    Reason.PROGRAMMING_IN_PROGRESS: 1800,
    Reason.ROLLING_OUT: 1800,
    Reason.INSTANCES_PROVISIONING: 2700,
}


def window_s(reason: str) -> int | None:
    """Return how long a temporary reason may last; None for a reason that is not temporary."""
    return WINDOWS_S.get(Reason(reason)) if reason in Reason.__members__.values() else None


def advice_on(reason: str, network_problem: str = "") -> Advice:
    """Return the advice on a reason.

    ``network_problem`` is the reason why the network of the deployment cannot be attached.
    """
    if reason == Reason.NETWORK_FAILED_TO_CREATE and network_problem in NETWORK_PROBLEMS:
        return NETWORK_PROBLEMS[network_problem]
    return ADVICE[Reason(reason)] if reason in Reason.__members__.values() else FOREIGN
