"""Explain why an object is not ready: a chain of conditions from the object to the root cause.

The chain is computed from the objects that the caller can read: those of a project, or those of a
cell with its Servers. The first link is the requested object, the last one is the root cause as far
as it is visible. Each link is a condition of an object with its own message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from datum_compute.api import labels
from datum_compute.api.compute.deployment import REPLICAS_READY, WorkloadDeployment
from datum_compute.api.compute.instance import AVAILABLE, PROGRAMMED, QUOTA_GRANTED, READY, Instance
from datum_compute.api.compute.instance_type import InstanceType
from datum_compute.api.compute.server import Server
from datum_compute.api.compute.workload import PROGRESSING, Workload
from datum_compute.api.conditions import (
    EPOCH,
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    Reason,
    find_condition,
)
from datum_compute.api.finalizers import is_held_by_foreign_finalizers
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER, WORKLOAD
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.planes import PlaneName, deployment_of
from datum_compute.planning.explain.advice import Actor, advice_on
from datum_compute.planning.plan import Create, Delete, Wait, is_deferred
from datum_compute.planning.reasons import rank_of
from datum_compute.planning.rollout.instances import plan_instances
from datum_compute.planning.rollout.slots import WITHOUT_DELAY, MinReady, min_ready_seconds, ordinal
from datum_compute.planning.rollout.surge import SURGE_AVAILABLE
from datum_compute.planning.rollout.suspension import NO_CELL
from datum_compute.planning.workload.templates import template_hash

T = TypeVar("T", bound=ApiObject)

# Planners need a plane, but the descriptions of steps do not contain it.
_CELL = PlaneName("cell")
# Phases of a Server that explain why its Instance is not ready.
_UNREADY_PHASES = ("Failed", "Pending", "Unknown")
# Reasons that a new template can remove.
_CAUSED_BY_TEMPLATE = (
    Reason.IMAGE_UNAVAILABLE,
    Reason.INSTANCE_CRASHING,
    Reason.CONFIGURATION_ERROR,
    Reason.NOT_READY,
)
# Reasons of Ready that are not copied from another condition.
_NO_CAUSE = (Reason.PENDING, Reason.PENDING_PROGRAMMING)


@dataclass(frozen=True, slots=True)
class Link:
    """A condition of an object, since when it holds, and the advice for it."""

    kind: str
    ref: Ref
    condition: str
    status: str
    reason: str
    message: str
    since: str
    actor: Actor
    waiting_for: str
    command: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The chain of causes, and the next steps of the platform.

    ``links`` lead from the requested object to the cause. ``steps`` are the planned actions for the
    deployment that is not ready, including waits and deferred actions.
    """

    links: tuple[Link, ...]
    steps: tuple[str, ...] = ()

    @property
    def cause(self) -> Link:
        return self.links[-1]


def explain_workload(
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    instances: Sequence[Instance],
    servers: Sequence[Server] = (),
) -> Explanation:
    """Explain the state of a workload.

    ``deployments`` and ``instances`` may contain those of other workloads.
    """
    first = _link(WORKLOAD, workload, _workload_condition(workload), workload.metadata.name)
    own = [d for d in deployments if d.spec.workload_ref.uid == workload.metadata.uid]
    unready = [d for d in own if _is_unready(d)]
    if first.condition == "Observed":
        return Explanation((first,))
    if not unready:
        return Explanation((first, *_sleeping_link(first, own, instances)))
    worst = min(
        unready, key=lambda deployment: (-_deployment_rank(deployment), deployment.metadata.name)
    )
    below = explain_deployment(worst, instances, servers)
    return Explanation((first, *below.links), below.steps)


def _sleeping_link(
    first: Link, own: Sequence[WorkloadDeployment], instances: Sequence[Instance]
) -> Iterator[Link]:
    """Yield a link for a sleeping instance of an available workload, because no process runs."""
    sleeping = [
        i
        for i in instances
        if any(_belongs_to(i, deployment) for deployment in own)
        and _instance_condition(i).reason == Reason.ASLEEP
    ]
    if first.status == TRUE and sleeping:
        first_sleeping = min(sleeping, key=lambda instance: instance.metadata.name)
        yield explain_instance(first_sleeping, workload=first.ref.name).cause


@dataclass(frozen=True, slots=True)
class Deprecation:
    """An instance type of a workload that is no longer Active, and the advice for it."""

    message: str
    command: str


def deprecated_type(workload: Workload, types: Iterable[InstanceType]) -> Deprecation | None:
    """Return None if the instance type of the workload is Active or unknown."""
    name = workload.spec.template.spec.runtime.resources.instance_type
    found = next((t for t in types if t.metadata.name == name.rpartition("/")[2]), None)
    lifecycle = found.spec.lifecycle if found is not None else None
    if lifecycle is None or lifecycle.phase == "Active":
        return None
    message = f"instance type {name} is {lifecycle.phase.lower()}"
    if lifecycle.replacement_instance_type:
        message += f": use {lifecycle.replacement_instance_type}"
    command = advice_on(Reason.INSTANCE_TYPE_DEPRECATED).command.format(
        workload=workload.metadata.name, namespace=workload.metadata.namespace
    )
    return Deprecation(message, command)


def explain_deployment(
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    servers: Sequence[Server] = (),
) -> Explanation:
    workload = deployment.spec.workload_ref.name
    first = _link(DEPLOYMENT, deployment, _deployment_condition(deployment), workload)
    available = find_condition(deployment.status.conditions, AVAILABLE)
    if available is not None and available.reason in NO_CELL:
        wait = Wait(f"no cell can create its instances: {available.message}")
        return Explanation((first,), (describe_action(wait),))
    own = [i for i in instances if _belongs_to(i, deployment)]
    planned = plan_instances(_CELL, deployment, own, _min_ready(deployment, own)).actions
    # Label repairs are not steps of a rollout, and copies have the labels of another plane.
    steps = tuple(describe_action(a) for a in planned if isinstance(a, Create | Delete | Wait))
    unready = [
        i
        for i in own
        if _instance_condition(i).status != TRUE and not _is_outdated_problem(i, deployment)
    ]
    if not unready:
        return Explanation((first,), steps)
    worst = min(
        unready,
        key=lambda instance: (-_instance_rank(instance), ordinal(instance), instance.metadata.name),
    )
    below = explain_instance(worst, servers, workload, deployment)
    return Explanation((first, *below.links), steps)


def _is_outdated_problem(instance: Instance, deployment: WorkloadDeployment) -> bool:
    """Return True if an earlier template caused the problem of an instance that is replaced now."""
    if deployment.spec.paused or _instance_condition(instance).reason not in _CAUSED_BY_TEMPLATE:
        return False
    current = template_hash(deployment.spec.template)
    return instance.spec.controller.template_hash not in ("", current)


def _min_ready(deployment: WorkloadDeployment, instances: Sequence[Instance]) -> MinReady:
    """Return a min-ready rule under which the planner agrees with the status.

    The driver and the clock of the cell are unknown here. If the status counts a ready instance as
    not available yet, the instance that became ready last is treated as that one.
    """
    if deployment.status.available_or_ready >= deployment.status.ready_replicas:
        return WITHOUT_DELAY
    found = [find_condition(i.status.conditions, READY) for i in instances]
    last = max((c.last_transition_time for c in found if c and c.status == TRUE), default=EPOCH)
    return MinReady(min_ready_seconds(deployment, simulated=False) or 1, last)


def explain_instance(
    instance: Instance,
    servers: Sequence[Server] = (),
    workload: str = "",
    deployment: WorkloadDeployment | None = None,
) -> Explanation:
    """Explain the state of an instance.

    ``workload`` is the name of its workload; by default it is taken from the labels. ``deployment``
    is the deployment of the instance, which records why a network cannot be attached.
    """
    workload = workload or instance.metadata.labels.get(labels.WORKLOAD_NAME, "")
    problem = _network_problem(deployment)
    ready = _instance_condition(instance)
    links = [_link(INSTANCE, instance, ready, workload, problem)]
    reported = _condition_behind(ready, instance.status.conditions)
    if reported is not None:
        links.append(_link(INSTANCE, instance, reported, workload, problem))
    links += [
        _link(SERVER, server, _server_condition(server), workload)
        for server in servers
        if ref_of(server) == ref_of(instance) and server.status.phase in _UNREADY_PHASES
    ]
    return Explanation(tuple(links))


def describe_action(action: Create | Delete | Wait) -> str:
    """Return one line of text for users."""
    mark = "deferred " if is_deferred(action) else ""
    match action:
        case Wait(reason):
            return f"{mark}wait: {reason}"
        case Create(_, kind, obj, reason):
            return f"{mark}create {kind.kind} {ref_of(obj)}: {reason}"
        case Delete(_, kind, ref, _, reason):
            return f"{mark}delete {kind.kind} {ref}: {reason}"


def render_link(link: Link) -> str:
    """Return one line of text for users, without times."""
    text = f"{link.kind} {link.ref}: {link.condition}={link.status} ({link.reason})"
    text += f": {link.message}" if link.message else ""
    return f"{text}; waiting for: {link.waiting_for} [{link.actor}]"


# --- the condition that represents an object


def _workload_condition(workload: Workload) -> Condition:
    if workload.is_terminating:
        return _deletion_condition(workload)
    if workload.status.observed_generation < workload.metadata.generation:
        return _unobserved_condition(workload)
    return _first_problem(
        workload, workload.status.conditions, (AVAILABLE, SURGE_AVAILABLE, PROGRESSING)
    )


def _deployment_condition(deployment: WorkloadDeployment) -> Condition:
    conditions = deployment.status.conditions
    available = find_condition(conditions, AVAILABLE)
    if deployment.is_terminating and not (available and available.reason == Reason.REMOVING):
        return _deletion_condition(deployment)
    types = (AVAILABLE, REPLICAS_READY, SURGE_AVAILABLE, PROGRESSING)
    condition = _first_problem(deployment, conditions, types)
    is_outdated = deployment.status.observed_generation < deployment.metadata.generation
    if is_outdated and condition.reason in _CAUSED_BY_TEMPLATE:
        return _unobserved_condition(deployment)
    return condition


def _instance_condition(instance: Instance) -> Condition:
    if instance.is_terminating:
        return _deletion_condition(instance)
    condition = _first_problem(instance, instance.status.conditions, (READY,))
    available = find_condition(instance.status.conditions, AVAILABLE)
    asleep = available is not None and available.reason == Reason.ASLEEP
    return available if available and asleep and condition.status == TRUE else condition


def _condition_behind(ready: Condition, conditions: Iterable[Condition]) -> Condition | None:
    """Return the condition from which Ready took its reason; the first one if there are several.

    A denied quota has another reason on Ready than on its own condition. Programmed and Available
    are skipped, because Ready repeats them with the same message.
    """
    if ready.type != READY or ready.status == TRUE or ready.reason in _NO_CAUSE:
        return None
    for condition in conditions:
        if condition.type in (READY, PROGRAMMED, AVAILABLE) or condition.status == TRUE:
            continue
        if condition.type == QUOTA_GRANTED:
            if condition.status == FALSE and ready.reason == Reason.PENDING_QUOTA:
                return condition
        elif condition.reason == ready.reason:
            return condition
    return None


def _network_problem(deployment: WorkloadDeployment | None) -> str:
    attachment = deployment.spec.network_attachment if deployment is not None else None
    problem = attachment.problem if attachment is not None else None
    return problem.reason if problem is not None else ""


def _first_problem(
    obj: ApiObject, conditions: Iterable[Condition], types: Sequence[str]
) -> Condition:
    """Return the first condition of these types that reports a problem, otherwise the first one."""
    found = [c for type_ in types if (c := find_condition(conditions, type_)) is not None]
    problems = (c for c in found if c.status != TRUE or c.reason == Reason.ROLLING_OUT)
    return next(problems, None) or (found[0] if found else _unobserved_condition(obj))


def _server_condition(server: Server) -> Condition:
    status = server.status
    return Condition(
        type="Phase",
        status=FALSE if status.phase == "Failed" else UNKNOWN,
        reason=status.reason or Reason.PENDING,
        message=status.message,
        last_transition_time=server.metadata.creation_timestamp or "",
    )


def _deletion_condition(obj: ApiObject) -> Condition:
    """Return a condition for an object that is being deleted.

    Its reason states who has to act: the platform while one of its finalizers remains, otherwise
    the owners of the other finalizers.
    """
    finalizers = ", ".join(obj.metadata.finalizers) or "none"
    return Condition(
        type="Deletion",
        status=UNKNOWN,
        reason=Reason.HELD_BY_FINALIZER if is_held_by_foreign_finalizers(obj) else Reason.STOPPING,
        message=f"Being deleted; finalizers: {finalizers}",
        last_transition_time=obj.metadata.deletion_timestamp or "",
    )


def _unobserved_condition(obj: ApiObject) -> Condition:
    return Condition(
        type="Observed",
        status=UNKNOWN,
        reason=Reason.PENDING,
        message=f"Generation {obj.metadata.generation} is not observed yet",
        last_transition_time=obj.metadata.creation_timestamp or "",
    )


# --- selection of the cause


def _is_unready(deployment: WorkloadDeployment) -> bool:
    condition = _deployment_condition(deployment)
    return condition.status != TRUE or condition.reason == Reason.ROLLING_OUT


def deployment_ref(instance: Instance) -> Ref:
    """Return the deployment of an instance by name, because uids differ between planes."""
    metadata = instance.metadata
    return Ref(metadata.namespace, deployment_of(metadata.name, metadata.labels))


def _belongs_to(instance: Instance, deployment: WorkloadDeployment) -> bool:
    return deployment_ref(instance) == ref_of(deployment)


def _deployment_rank(deployment: WorkloadDeployment) -> int:
    return rank_of(_deployment_condition(deployment).reason)


def _instance_rank(instance: Instance) -> int:
    return rank_of(_instance_condition(instance).reason)


def _link(
    kind: KindInfo[T],
    obj: ApiObject,
    condition: Condition,
    workload: str,
    network_problem: str = "",
) -> Link:
    advice = advice_on(condition.reason, network_problem)
    metadata = obj.metadata
    return Link(
        kind=kind.kind,
        ref=ref_of(obj),
        condition=condition.type,
        status=condition.status,
        reason=str(condition.reason),
        message=condition.message,
        since=condition.last_transition_time,
        actor=advice.actor,
        waiting_for=advice.waiting_for,
        command=advice.command.format(
            workload=workload,
            namespace=metadata.namespace,
            resource=kind.singular,
            name=metadata.name,
        ),
    )
