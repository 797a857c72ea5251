"""What every reason means for the person who reads it: whose move it is, what is awaited next, and
one command to go on with.

One entry for each ``Reason``; a test fails on a missing one. Commands are filled in with the words
of ``COMMAND_WORDS``. A reason of somebody else (a provider, a gate of another controller) gets the
advice ``FOREIGN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from datum_compute.api.reasons import Reason


class Move(StrEnum):
    """Whose move it is."""

    YOU = "you"
    PLATFORM = "platform"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Advice:
    move: Move
    awaited: str
    command: str


COMMAND_WORDS = ("workload", "namespace", "resource", "name")

_STATUS = "datumctl compute status {workload}"
_DESCRIBE = "kubectl describe {resource} {name} --namespace={namespace}"
_WATCH = "kubectl get {resource} {name} --namespace={namespace} --watch"
_IMAGE = "datumctl compute deploy {workload} --image=<image that exists>"
_QUOTA = "kubectl get allowancebuckets --namespace=milo-system"
_CLAIMS = "kubectl get resourceclaims --namespace={namespace}"
_EDIT = "kubectl edit workload {workload} --namespace={namespace}"
_SOURCES = "kubectl get configmaps,secrets --namespace={namespace}"
_NETWORKS = "kubectl get networks --namespace={namespace}"
_LOCATIONS = "kubectl get locationbindings"


def _wait(awaited: str, command: str = _WATCH) -> Advice:
    return Advice(Move.WAIT, awaited, command)


def _you(awaited: str, command: str) -> Advice:
    return Advice(Move.YOU, awaited, command)


def _platform(awaited: str, command: str = _DESCRIBE) -> Advice:
    return Advice(Move.PLATFORM, awaited, command)


FOREIGN = _platform("whoever set this condition to change it")

ADVICE: Mapping[Reason, Advice] = {
    Reason.PENDING: _wait("the first look of the platform"),
    Reason.PENDING_PROGRAMMING: _wait("a machine of the cell to take the instance"),
    Reason.PROGRAMMING_IN_PROGRESS: _wait("the machine to be set up"),
    Reason.PROVISIONING: _platform("room on a host of the cell"),
    Reason.STARTING: _wait("the machine to start"),
    Reason.STOPPING: _wait("the machine to stop and its finalizers to go"),
    Reason.STOPPED: _you("the process to run again: it ended by itself", _EDIT),
    Reason.SCHEDULING_GATES_PRESENT: _platform("the gates that are named to be cleared"),
    Reason.AWAITING_CREATION: _wait("the instances before it to become ready", _STATUS),
    Reason.PROGRAMMED: _wait("nothing: the machine is set up", _STATUS),
    Reason.AVAILABLE: _wait("nothing: it serves", _STATUS),
    Reason.ASLEEP: _wait("the first request, which wakes it", _STATUS),
    Reason.IMAGE_UNAVAILABLE: _you("an image that the registry has", _IMAGE),
    Reason.INSTANCE_CRASHING: _you("a process that stays up; see its last lines", _IMAGE),
    Reason.CONFIGURATION_ERROR: _you("a template that can be set up", _EDIT),
    Reason.PENDING_QUOTA: _you("quota to be freed or raised", _QUOTA),
    Reason.PENDING_EVALUATION: _wait("the decision about its quota claim", _CLAIMS),
    Reason.QUOTA_AVAILABLE: _wait("nothing: its quota is granted", _STATUS),
    Reason.QUOTA_DISABLED: _wait("nothing: quota is not enforced here", _STATUS),
    Reason.QUOTA_EXCEEDED: _you("quota to be freed or raised", _QUOTA),
    Reason.QUOTA_NO_BUDGET: _wait("the decision about its quota claim", _CLAIMS),
    Reason.VALIDATION_FAILED: _platform("a quota claim that is valid", _CLAIMS),
    Reason.QUOTA_BACKEND_UNAVAILABLE: _platform("the quota service to answer", _CLAIMS),
    Reason.QUOTA_PROJECT_NOT_FOUND: _platform("the project to be known to the quota service"),
    Reason.QUOTA_NAMESPACE_NOT_FOUND: _platform("the namespace of the project to be there"),
    Reason.QUOTA_MISCONFIGURED: _platform("the quota registrations to be put right"),
    Reason.QUOTA_PROJECT_ID_UNRESOLVABLE: _platform("the identity of its namespace"),
    Reason.READY: _wait("nothing: it is there", _STATUS),
    Reason.RESOLVING: _wait("the ConfigMaps and Secrets to be looked up"),
    Reason.AWAITING_PROPAGATION: _wait("the cell to report, or to get what is named"),
    Reason.SOURCE_NOT_FOUND: _you("the source that is named to be there, with its keys", _SOURCES),
    Reason.SOURCE_UNAUTHORIZED: _you("the right to read the source that is named", _EDIT),
    Reason.SOURCE_TOO_LARGE: _you("a smaller ConfigMap or Secret", _EDIT),
    Reason.SOURCE_NAME_TOO_LONG: _you("a ConfigMap or Secret with a shorter name", _EDIT),
    Reason.REFERENCED_DATA_NOT_READY: _wait("the ConfigMaps and Secrets to reach the cell"),
    Reason.NETWORK_NOT_FOUND: _you("the network that is named to be created", _NETWORKS),
    Reason.NETWORK_PROVISIONING: _wait("the network to be set up in the city"),
    Reason.NETWORK_FAILED_TO_CREATE: _platform("the network to be put right", _NETWORKS),
    Reason.STABLE_INSTANCE_FOUND: _wait("nothing: an instance serves", _STATUS),
    Reason.INSTANCES_PROVISIONING: _wait("the first instance to become ready", _STATUS),
    Reason.QUOTA_NOT_GRANTED: _you("quota to be freed or raised", _QUOTA),
    Reason.REPLICAS_AVAILABLE: _wait("nothing: all instances are ready", _STATUS),
    Reason.AVAILABLE_PLACEMENT_FOUND: _wait("nothing: a placement serves", _STATUS),
    Reason.AVAILABLE_DEPLOYMENT_FOUND: _wait("nothing: a city serves", _STATUS),
    Reason.NO_AVAILABLE_PLACEMENTS: _wait("the first city to report", _STATUS),
    Reason.NO_AVAILABLE_DEPLOYMENTS: _wait("the first city of the placement to report", _STATUS),
    Reason.ROLLING_OUT: _wait("the next instance to be replaced and ready", _STATUS),
    Reason.ROLLOUT_COMPLETE: _wait("nothing: the rollout is complete", _STATUS),
    Reason.ROLLOUT_PAUSED: _you("the rollout to be resumed (spec.paused: false)", _EDIT),
    Reason.PROGRESS_DEADLINE_EXCEEDED: _you("the cause below to be removed", _IMAGE),
    Reason.VALID: _wait("nothing: the instance type can be used", _STATUS),
    Reason.REPLACEMENT_NOT_FOUND: _platform("the instance type to use instead to be there"),
    Reason.REPLACEMENT_DISABLED: _platform("another instance type to use instead"),
    Reason.INSTANCE_TYPE_DEPRECATED: _you("a workload of another instance type", _EDIT),
    Reason.INSTANCE_TYPE_DISABLED: _you("a workload of another instance type", _EDIT),
    Reason.NO_MATCHING_LOCATION: _you("a city that has a cell", _LOCATIONS),
    Reason.CELL_UNREACHABLE: _platform("the cell that is named to answer again"),
    Reason.REMOVING: _platform("the cells that are named to confirm the removal"),
}


def advice_on(reason: str) -> Advice:
    return ADVICE[Reason(reason)] if reason in Reason.__members__.values() else FOREIGN
