"""How a project's deployment gets to the hub, and how the hub's answer gets back.

Where it goes is recorded on the project's deployment before anything is written to the hub, so
that its removal needs to know nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    Condition,
    ConditionValue,
    find_condition,
    make_condition,
    with_condition,
)
from datum_compute.api.identity import federation_namespace
from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE
from datum_compute.api.meta import ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB, PlaneName
from datum_compute.api.reasons import Reason
from datum_compute.api.resourcebinding import AggregatedStatusItem, ResourceBinding
from datum_compute.api.workload import BlockedReplicas
from datum_compute.api.workloaddeployment import WorkloadDeployment, WorkloadDeploymentStatus
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.federation.hub_namespaces import hub_namespace, identity_labels
from datum_compute.planning.federation.mirror import (
    Marks,
    desired_copy,
    is_waiting,
    plan_copy_deletion,
    plan_mirror,
)
from datum_compute.planning.federation.referenced_objects import carried
from datum_compute.planning.federation.unreachable import Silence, unheard_deployment
from datum_compute.planning.initial_status import INITIAL_STATUS_S, should_defer
from datum_compute.planning.plan import (
    Action,
    Delete,
    Patch,
    Plan,
    Wait,
    add_finalizer,
    drop_finalizer,
)
from datum_compute.planning.workload.templates import template_hash

# A missed event costs at most this long.
RECHECK_S = 60.0
# Nothing tells a deployment that the home it lay in is gone: nobody on the hub names it any more.
LEAVING_S = 5.0
# What every deployment waits for.
_ON_THE_WAY = (Reason.NETWORK_PROVISIONING, Reason.AWAITING_PROPAGATION)


@dataclass(frozen=True, slots=True)
class HubState:
    """What the hub holds for one project deployment.

    ``awaited`` are the cells that answer and have not yet confirmed that their copy is gone,
    ``unheard`` those that do not answer and may have a copy;
    ``silence`` is that of the cell it is placed on; ``refused`` is why no cell of its city would
    take it, if that is so.
    """

    namespace: Namespace | None
    deployment: WorkloadDeployment | None
    binding: ResourceBinding | None
    awaited: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()
    silence: Silence | None = None
    refused: ConditionValue | None = None


def hub_namespace_of(deployment: WorkloadDeployment, namespace: Namespace | None) -> str:
    """The hub namespace of the project namespace. What is recorded counts only when the
    namespace itself is gone: users can write annotations, but not the uid of a namespace."""
    if namespace is not None:
        return federation_namespace(namespace.metadata.uid)
    return deployment.metadata.annotations.get(labels.FEDERATION_NAMESPACE, "")


def plan_federation(
    project: PlaneName,
    deployment: WorkloadDeployment,
    namespace: Namespace | None,
    hub: HubState,
    now: str,
) -> Plan:
    if deployment.is_terminating:
        return _plan_removal(project, deployment, hub, now)
    if namespace is None:
        return Plan((Wait(f"namespace {deployment.metadata.namespace} is not known yet"),), 5)
    first = add_finalizer(project, DEPLOYMENT, deployment, labels.FEDERATOR_FINALIZER)
    first += _record_target(project, deployment, namespace)
    if first:
        return Plan((first[0],))
    held = deployment.spec.network_attachment is None and hub.deployment is None
    actions = [] if held else _plan_hub(project, deployment, namespace, hub)
    if _is_on_its_way(deployment, hub, now):
        return Plan(tuple(actions), requeue_after_s=INITIAL_STATUS_S)
    status = mirrored_status(deployment, hub, now)
    actions += plan_status(project, DEPLOYMENT, deployment, status)
    waits = any(isinstance(action, Wait) for action in actions)
    if waits:
        return Plan(tuple(actions), requeue_after_s=LEAVING_S)
    settled = status.observed_generation == deployment.metadata.generation
    return Plan(tuple(actions), requeue_after_s=None if settled else RECHECK_S)


def _is_on_its_way(deployment: WorkloadDeployment, hub: HubState, now: str) -> bool:
    """A new one of which nothing was said yet, and nothing is in its way."""
    if deployment.status != WorkloadDeploymentStatus() or not should_defer(deployment, (), now):
        return False
    blocker = _blocker(deployment, hub)
    return blocker is not None and blocker.reason in _ON_THE_WAY


def plan_orphan(hub_deployment: WorkloadDeployment | None) -> Plan:
    """The hub's deployment of which the project has none; only as federators write them."""
    if hub_deployment is None:
        return Plan()
    if labels.SOURCE_GENERATION not in hub_deployment.metadata.annotations:
        return Plan()
    reason = "its project has no such deployment"
    return Plan(tuple(plan_copy_deletion(HUB, DEPLOYMENT, hub_deployment, reason, unchanged=True)))


def mirrored_status(
    deployment: WorkloadDeployment, hub: HubState, now: str
) -> WorkloadDeploymentStatus:
    """The hub's status as news of the generation it echoes. Where there is no news the blocker
    is named and nothing is counted: old counts would be a claim that nobody makes any more."""
    blocker = _blocker(deployment, hub)
    if blocker is None:
        assert hub.deployment is not None
        status = hub.deployment.status
        # A recreated copy may echo less than was seen before; what was observed stays observed.
        observed = max(deployment.status.observed_generation, status.observed_source.generation)
        status = msgspec.structs.replace(status, observed_generation=observed)
        if hub.silence is not None:
            return unheard_deployment(status, deployment.status, hub.silence, now)
        return status
    generation = deployment.metadata.generation
    available = make_condition("Available", blocker, generation=generation, now=now)
    # Only what the project itself knows: what the cell said earlier is nobody's claim any more.
    known = [c for c in deployment.status.conditions if c.type == available.type]
    wanted = deployment.spec.scale_settings.min_replicas
    return WorkloadDeploymentStatus(
        conditions=with_condition(known, available),
        desired_replicas=wanted,
        blocked=[BlockedReplicas(reason=blocker.reason, replicas=wanted, message=blocker.message)],
        observed_generation=deployment.status.observed_generation,
        selector=deployment.status.selector,
    )


def _blocker(deployment: WorkloadDeployment, hub: HubState) -> ConditionValue | None:
    """Why there is no news from the cell, if there is none."""
    city = deployment.spec.city_code
    scheduled = hub.binding and find_condition(hub.binding.status.conditions, "Scheduled")
    if scheduled and scheduled.status == FALSE:
        if scheduled.reason in (Reason.AMBIGUOUS_SERVING_LOCATION, Reason.CELL_DRAINED):
            return ConditionValue(FALSE, scheduled.reason, scheduled.message)
        nobody = ConditionValue(FALSE, Reason.NO_MATCHING_LOCATION, f"No cell serves city {city}")
        return hub.refused or nobody
    if deployment.spec.network_attachment is None and hub.deployment is None:
        message = f"The network is being set up in {city}"
        return ConditionValue(FALSE, Reason.NETWORK_PROVISIONING, message)
    told = hub.deployment is not None and hub.deployment.status.observed_source.generation
    if not told or not _is_spoken_for(hub.binding):
        if hub.silence is not None:
            return hub.silence.verdict
        message = f"Waiting for the cell of {city} to report"
        return ConditionValue(FALSE, Reason.AWAITING_PROPAGATION, message)
    return None


def placed_and_heard(binding: ResourceBinding) -> tuple[Condition | None, bool]:
    """All of a binding's status that a project is told."""
    scheduled = find_condition(binding.status.conditions, "Scheduled")
    return scheduled, _is_spoken_for(binding)


def _is_spoken_for(binding: ResourceBinding | None) -> bool:
    """Whether the hub's status is the word of a cell that it is bound to: that of one which it has
    left may still be there."""
    if binding is None:
        return True
    bound = [target.name for target in binding.spec.clusters]
    items = binding.status.aggregated_status
    return any(_has_spoken(item) and item.cluster_name in bound for item in items)


def _has_spoken(item: AggregatedStatusItem) -> bool:
    """A copy that was made anew says nothing at first; Karmada keeps on the object what the one
    before it has said."""
    source = (item.status or {}).get("observedSource")
    return isinstance(source, dict) and bool(source.get("generation"))


def _record_target(
    project: PlaneName, deployment: WorkloadDeployment, namespace: Namespace
) -> list[Action]:
    target = federation_namespace(namespace.metadata.uid)
    if deployment.metadata.annotations.get(labels.FEDERATION_NAMESPACE) == target:
        return []
    metadata = {
        "resourceVersion": deployment.metadata.resource_version,
        "annotations": {labels.FEDERATION_NAMESPACE: target},
    }
    return [
        Patch(project, DEPLOYMENT, ref_of(deployment), {"metadata": metadata}, f"goes to {target}")
    ]


def _plan_hub(
    project: PlaneName, deployment: WorkloadDeployment, namespace: Namespace, hub: HubState
) -> list[Action]:
    target = hub_namespace_of(deployment, namespace)
    if hub.namespace is not None and hub.namespace.is_terminating:
        return [Wait(f"hub namespace {target} is being removed")]
    mirror = plan_mirror(
        HUB,
        DEPLOYMENT,
        _hub_deployment(project, deployment, namespace),
        hub.deployment,
        f"generation {deployment.metadata.generation} of the project",
    )
    if is_waiting(mirror):
        return mirror
    desired = hub_namespace(project, namespace)
    reason = "home of the project namespace"
    return [*plan_object(HUB, NAMESPACE, desired, hub.namespace, reason), *mirror]


def _hub_deployment(
    project: PlaneName, deployment: WorkloadDeployment, namespace: Namespace
) -> WorkloadDeployment:
    """No finalizer: the hub acts on a removal only when the object is really gone."""
    metadata = deployment.metadata
    return desired_copy(
        deployment,
        federation_namespace(namespace.metadata.uid),
        carry=Marks(metadata.labels, carried(deployment)),
        mark=Marks(
            {
                **identity_labels(project, namespace),
                labels.TOPOLOGY_CITY: deployment.spec.city_code,
            },
            {
                labels.SOURCE_GENERATION: str(metadata.generation),
                labels.SOURCE_TEMPLATE_HASH: template_hash(deployment.spec.template),
            },
        ),
    )


def _plan_removal(
    project: PlaneName, deployment: WorkloadDeployment, hub: HubState, now: str
) -> Plan:
    """Released when the hub holds neither the deployment nor its binding, and every cell that
    answers has confirmed. Nothing waits for a cell that does not answer: the hub's terminating
    Work is the tombstone of what may still be there."""
    if hub.deployment is not None:
        reason = "the project removed it"
        uid = hub.deployment.metadata.uid
        delete = Delete(HUB, DEPLOYMENT, ref_of(hub.deployment), uid, reason)
        return Plan((delete, Wait("the hub is removing it")), requeue_after_s=RECHECK_S)
    if hub.binding is not None:
        return Plan((Wait("the hub is releasing its binding"),), requeue_after_s=RECHECK_S)
    if hub.awaited:
        message = f"Waiting for {', '.join(hub.awaited)} to confirm the removal"
        verdict = ConditionValue(FALSE, Reason.REMOVING, message)
        generation = deployment.metadata.generation
        removing = make_condition("Available", verdict, generation=generation, now=now)
        conditions = with_condition(deployment.status.conditions, removing)
        status = msgspec.structs.replace(deployment.status, conditions=conditions)
        report = plan_status(project, DEPLOYMENT, deployment, status)
        return Plan((*report, Wait(message)), requeue_after_s=RECHECK_S)
    release = drop_finalizer(project, DEPLOYMENT, deployment, labels.FEDERATOR_FINALIZER)
    return Plan(tuple(_unconfirmed(action, hub.unheard) for action in release))


def _unconfirmed(release: Action, unheard: tuple[str, ...]) -> Action:
    """With a word for those who look: what is deleted here may still run there."""
    if not unheard or not isinstance(release, Patch):
        return release
    told = f"{', '.join(unheard)} does not answer: what runs there is stopped when it is back"
    return replace(release, unconfirmed_warning=told)
