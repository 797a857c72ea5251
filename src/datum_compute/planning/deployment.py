"""A deployment on its cell: guard, instances and status."""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    decided,
    find_condition,
    is_true,
    with_condition,
)
from datum_compute.api.instance import AVAILABLE, PROGRAMMED, READY, Instance
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.plane import PlaneName
from datum_compute.api.workloaddeployment import (
    ObservedSource,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.planning.actions import Plan, Wait, add_finalizer, drop_finalizer
from datum_compute.planning.instances import is_ready, ordinal, plan_instances
from datum_compute.planning.objects import plan_status
from datum_compute.planning.template import template_hash

# Reasons of an instance that says more than "not there yet".
_TELLING = ("ImageUnavailable", "InstanceCrashing", "ConfigurationError")


def plan_deployment(
    plane: PlaneName, deployment: WorkloadDeployment, instances: Sequence[Instance], now: str
) -> Plan:
    guard = add_finalizer(plane, DEPLOYMENT, deployment, labels.WORKLOAD_FINALIZER)
    if guard:
        return Plan(tuple(guard))
    if deployment.is_terminating and not instances:
        released = drop_finalizer(plane, DEPLOYMENT, deployment, labels.WORKLOAD_FINALIZER)
        return Plan(tuple(released))
    steps = plan_instances(plane, deployment, instances)
    status = deployment_status(deployment, instances, now)
    waits = any(isinstance(step, Wait) for step in steps.actions)
    return Plan(
        (*steps.actions, *plan_status(plane, DEPLOYMENT, deployment, status)),
        requeue_after_s=60 if waits else None,
    )


def deployment_status(
    deployment: WorkloadDeployment, instances: Sequence[Instance], now: str
) -> WorkloadDeploymentStatus:
    current = template_hash(deployment.spec.template)
    updated = [i for i in instances if i.status.controller.observed_template_hash == current]
    ready = sum(is_ready(i) for i in instances)
    desired = 0 if deployment.is_terminating else deployment.spec.scale_settings.min_replicas
    available = _available(deployment, instances, ready, desired, now)
    return WorkloadDeploymentStatus(
        conditions=with_condition(deployment.status.conditions, available),
        replicas=len(instances),
        updated_replicas=len(updated),
        current_replicas=sum(is_true(i.status.conditions, PROGRAMMED) for i in updated),
        ready_replicas=ready,
        desired_replicas=desired,
        observed_generation=deployment.metadata.generation,
        observed_source=_source(deployment),
    )


def _available(
    deployment: WorkloadDeployment,
    instances: Sequence[Instance],
    ready: int,
    desired: int,
    now: str,
) -> Condition:
    if ready:
        verdict = Verdict(TRUE, "StableInstanceFound", f"{ready}/{desired} instances are ready")
    else:
        verdict = Verdict(FALSE, *_cause(instances))
    return decided(AVAILABLE, verdict, generation=deployment.metadata.generation, now=now)


def _cause(instances: Sequence[Instance]) -> tuple[str, str]:
    """The first telling reason, lowest ordinal first; else that instances are on their way."""
    for instance in sorted(instances, key=ordinal):
        condition = find_condition(instance.status.conditions, READY)
        if condition is not None and condition.reason in _TELLING:
            return condition.reason, f"{instance.metadata.name}: {condition.message}"
    return "InstancesProvisioning", "No instances available yet"


def _source(deployment: WorkloadDeployment) -> ObservedSource:
    """What the federator stamped on the spec that this status is about."""
    annotations = deployment.metadata.annotations
    generation = annotations.get(labels.SOURCE_GENERATION, "")
    return ObservedSource(
        generation=int(generation) if generation.isdecimal() else 0,
        template_hash=annotations.get(labels.SOURCE_TEMPLATE_HASH, ""),
    )
