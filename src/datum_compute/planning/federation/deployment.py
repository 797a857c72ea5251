"""Copies of a project's deployments on the hub, and the status that the project gets from the hub.

- The hub namespace is annotated on the project's deployment before anything is written to the hub,
  so that the copy can be deleted after the project namespace is gone.
- A reported status counts only if it names the generation that it is about, and if the binding
  lists the cell that reported. Otherwise the project's status states why there is no report.
- A deployment is released when the hub has deleted the copy and its binding, and every reachable
  cell has confirmed the deletion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment, WorkloadDeploymentStatus
from datum_compute.api.compute.workload import BlockedReplicas
from datum_compute.api.conditions import (
    FALSE,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    make_condition,
    with_condition,
)
from datum_compute.api.core import Namespace
from datum_compute.api.karmada import AggregatedStatusItem, ResourceBinding
from datum_compute.api.kinds import BINDING, DEPLOYMENT, NAMESPACE
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.planes import HUB, PlaneName, federation_namespace
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.federation.hub_namespaces import hub_namespace, identity_labels
from datum_compute.planning.federation.mirror import (
    Marks,
    desired_copy,
    is_waiting,
    plan_copy_deletion,
    plan_mirror,
)
from datum_compute.planning.federation.referenced_objects import propagated_annotations
from datum_compute.planning.federation.unreachable import UnreachableCell, mark_deployment_unknown
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
from datum_compute.planning.workload.names import is_same_workload
from datum_compute.planning.workload.templates import template_hash

# Upper limit of the delay after a missed event.
RECHECK_S = 60.0
# Recheck delay of a deployment that waits for the removal of a hub namespace. The removal causes no
# event for the deployment, because the labels that name the project are removed too.
NAMESPACE_REMOVAL_RECHECK_S = 5.0
# Every new deployment has these reasons for a short time.
_NORMAL_PROGRESS_REASONS = (Reason.NETWORK_PROVISIONING, Reason.AWAITING_PROPAGATION)


@dataclass(frozen=True, slots=True)
class HubState:
    """Objects of the hub that belong to one project deployment.

    ``cells_pending_deletion`` are reachable cells that have not confirmed that their copy is gone.
    ``unreachable_cells`` are unreachable cells that may have a copy. ``unreachable`` is the cell to
    which the deployment is scheduled, if that cell is unreachable. ``placement_error`` states why
    no cell of the city accepts the deployment.
    """

    namespace: Namespace | None
    deployment: WorkloadDeployment | None
    binding: ResourceBinding | None
    cells_pending_deletion: tuple[str, ...] = ()
    unreachable_cells: tuple[str, ...] = ()
    unreachable: UnreachableCell | None = None
    placement_error: ConditionValue | None = None


def hub_namespace_of(deployment: WorkloadDeployment, namespace: Namespace | None) -> str:
    """Return the hub namespace of the project namespace.

    The annotation counts only if the namespace is gone: users can write annotations, but not the
    uid of a namespace.
    """
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
    """Plan the hub's copy of a project deployment, and the status of the project deployment.

    ``namespace`` is the namespace of the deployment in the project.
    """
    if deployment.is_terminating:
        return _plan_removal(project, deployment, hub, now)
    if namespace is None:
        return Plan(
            (Wait(f"namespace {deployment.metadata.namespace} is not in the cache yet"),), 5
        )
    if hub.deployment is not None and not _is_copy_of(hub.deployment, deployment):
        return _plan_replacement(project, deployment, hub, now)
    preparations = add_finalizer(project, DEPLOYMENT, deployment, labels.FEDERATOR_FINALIZER)
    preparations += _annotate_hub_namespace(project, deployment, namespace)
    if preparations:
        return Plan((preparations[0],))
    needs_network = deployment.spec.network_attachment is None and hub.deployment is None
    actions = [] if needs_network else _plan_hub(project, deployment, namespace, hub)
    if _should_defer_status(deployment, hub, now):
        return Plan(tuple(actions), requeue_after_s=INITIAL_STATUS_S)
    status = project_status_from_hub(deployment, hub, now)
    actions += plan_status(project, DEPLOYMENT, deployment, status)
    waits = any(isinstance(action, Wait) for action in actions)
    if waits:
        return Plan(tuple(actions), requeue_after_s=NAMESPACE_REMOVAL_RECHECK_S)
    settled = status.observed_generation == deployment.metadata.generation
    return Plan(tuple(actions), requeue_after_s=None if settled else RECHECK_S)


def _is_copy_of(hub_deployment: WorkloadDeployment, deployment: WorkloadDeployment) -> bool:
    """Return False for a copy of a deployment of an earlier workload."""
    copied, wanted = hub_deployment.spec.workload_ref.uid, deployment.spec.workload_ref.uid
    return is_same_workload(copied, wanted)


def _plan_replacement(
    project: PlaneName, deployment: WorkloadDeployment, hub: HubState, now: str
) -> Plan:
    """Delete the hub's copy of a deployment of an earlier workload with the same name.

    Its status is not that of this deployment.
    """
    reason = "it belongs to an earlier workload"
    removal = plan_copy_deletion(HUB, DEPLOYMENT, hub.deployment, reason)
    status = project_status_from_hub(deployment, replace(hub, deployment=None), now)
    report = plan_status(project, DEPLOYMENT, deployment, status)
    wait = Wait("the hub is removing the copy of an earlier workload")
    return Plan((*removal, *report, wait), requeue_after_s=NAMESPACE_REMOVAL_RECHECK_S)


def _should_defer_status(deployment: WorkloadDeployment, hub: HubState, now: str) -> bool:
    """Return True for a new deployment that has no status yet and no problem to report."""
    if deployment.status != WorkloadDeploymentStatus() or not should_defer(deployment, (), now):
        return False
    missing = _missing_report_reason(deployment, hub)
    return missing is not None and missing.reason in _NORMAL_PROGRESS_REASONS


def plan_orphan_deletion(hub_deployment: WorkloadDeployment | None) -> Plan:
    """Plan the deletion of a hub deployment that the project does not have.

    A deployment without the annotation of the federator is not a copy and stays.
    """
    if hub_deployment is None:
        return Plan()
    if labels.SOURCE_GENERATION not in hub_deployment.metadata.annotations:
        return Plan()
    reason = "its project has no such deployment"
    return Plan(tuple(plan_copy_deletion(HUB, DEPLOYMENT, hub_deployment, reason, unchanged=True)))


def project_status_from_hub(
    deployment: WorkloadDeployment, hub: HubState, now: str
) -> WorkloadDeploymentStatus:
    """Return the status of the project's deployment: that of the hub, with the reported generation.

    If there is no report, the status states the reason and contains no reported counts, because no
    cell confirms the old ones.
    """
    missing = _missing_report_reason(deployment, hub)
    if missing is None:
        assert hub.deployment is not None
        status = hub.deployment.status
        # A recreated copy may report an older generation than was observed before.
        observed = max(deployment.status.observed_generation, status.observed_source.generation)
        status = msgspec.structs.replace(status, observed_generation=observed)
        if hub.unreachable is not None:
            return mark_deployment_unknown(status, deployment.status, hub.unreachable, now)
        return status
    generation = deployment.metadata.generation
    available = make_condition("Available", missing, generation=generation, now=now)
    # Other conditions came from a cell, and no cell reports them now.
    known = [c for c in deployment.status.conditions if c.type == available.type]
    wanted = deployment.spec.scale_settings.min_replicas
    return WorkloadDeploymentStatus(
        conditions=with_condition(known, available),
        desired_replicas=wanted,
        blocked=[BlockedReplicas(reason=missing.reason, replicas=wanted, message=missing.message)],
        observed_generation=deployment.status.observed_generation,
        selector=deployment.status.selector,
    )


def _missing_report_reason(deployment: WorkloadDeployment, hub: HubState) -> ConditionValue | None:
    """Return why there is no report of a cell; None if there is one."""
    city = deployment.spec.city_code
    scheduled = hub.binding and find_condition(hub.binding.status.conditions, "Scheduled")
    if scheduled and scheduled.status == FALSE:
        if scheduled.reason in (Reason.AMBIGUOUS_SERVING_LOCATION, Reason.CELL_DRAINED):
            return ConditionValue(FALSE, scheduled.reason, scheduled.message)
        no_cell = ConditionValue(FALSE, Reason.NO_MATCHING_LOCATION, f"No cell serves city {city}")
        return hub.placement_error or no_cell
    if deployment.spec.network_attachment is None and hub.deployment is None:
        message = f"The network is being set up in {city}"
        return ConditionValue(FALSE, Reason.NETWORK_PROVISIONING, message)
    has_generation = hub.deployment is not None and hub.deployment.status.observed_source.generation
    if not has_generation or not _has_report_from_bound_cell(hub.binding):
        if hub.unreachable is not None:
            return hub.unreachable.verdict
        message = f"Waiting for the cell of {city} to report"
        return ConditionValue(FALSE, Reason.AWAITING_PROPAGATION, message)
    return None


def placement_and_report_state(binding: ResourceBinding) -> tuple[Condition | None, bool]:
    """Return the part of a binding's status that affects the project's status."""
    scheduled = find_condition(binding.status.conditions, "Scheduled")
    return scheduled, _has_report_from_bound_cell(binding)


def _has_report_from_bound_cell(binding: ResourceBinding | None) -> bool:
    """Return True if a cell in ``spec.clusters`` has reported.

    The status of a cell that is no longer listed does not count, although the hub may still show
    it.
    """
    if binding is None:
        return True
    bound = [target.name for target in binding.spec.clusters]
    items = binding.status.aggregated_status
    return any(_has_reported(item) and item.cluster_name in bound for item in items)


def _has_reported(item: AggregatedStatusItem) -> bool:
    """Return True if the item names the generation that it is about.

    A recreated copy has no status at first, while Karmada keeps the status of the previous copy on
    the object.
    """
    source = (item.status or {}).get("observedSource")
    return isinstance(source, dict) and bool(source.get("generation"))


def _annotate_hub_namespace(
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
    reason = "hub namespace of the project namespace"
    return [*plan_object(HUB, NAMESPACE, desired, hub.namespace, reason), *mirror]


def _hub_deployment(
    project: PlaneName, deployment: WorkloadDeployment, namespace: Namespace
) -> WorkloadDeployment:
    """Return the hub's copy.

    It has no finalizer, because the hub removes copies from cells only after the object is gone.
    """
    metadata = deployment.metadata
    return desired_copy(
        deployment,
        federation_namespace(namespace.metadata.uid),
        carry=Marks(metadata.labels, propagated_annotations(deployment)),
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
    """Delete the hub's copy, and release the deployment after its deletion is confirmed.

    The hub must have neither the copy nor its binding, and every reachable cell must have confirmed
    the deletion. An unreachable cell does not delay the release: the terminating Work on the hub is
    the tombstone of the copy that the cell may still have.

    Garbage collection deletes the binding of a deleted copy. It ignores a binding without an owner.
    A user who deletes the copy with ``--cascade=orphan`` leaves one, so it is deleted here.
    """
    if hub.deployment is not None:
        reason = "the project removed it"
        uid = hub.deployment.metadata.uid
        delete = Delete(HUB, DEPLOYMENT, ref_of(hub.deployment), uid, reason)
        return Plan((delete, Wait("the hub is removing it")), requeue_after_s=RECHECK_S)
    if hub.binding is not None:
        wait = Wait("the hub is releasing its binding")
        return Plan((*_delete_ownerless_binding(hub.binding), wait), requeue_after_s=RECHECK_S)
    if hub.cells_pending_deletion:
        message = f"Waiting for {', '.join(hub.cells_pending_deletion)} to confirm the removal"
        verdict = ConditionValue(FALSE, Reason.REMOVING, message)
        generation = deployment.metadata.generation
        removing = make_condition("Available", verdict, generation=generation, now=now)
        conditions = with_condition(deployment.status.conditions, removing)
        status = msgspec.structs.replace(deployment.status, conditions=conditions)
        report = plan_status(project, DEPLOYMENT, deployment, status)
        return Plan((*report, Wait(message)), requeue_after_s=RECHECK_S)
    release = drop_finalizer(project, DEPLOYMENT, deployment, labels.FEDERATOR_FINALIZER)
    return Plan(
        tuple(_with_unconfirmed_warning(action, hub.unreachable_cells) for action in release)
    )


def _delete_ownerless_binding(binding: ResourceBinding) -> list[Action]:
    if binding.metadata.owner_references:
        return []
    return plan_copy_deletion(HUB, BINDING, binding, "its deployment is gone", unchanged=True)


def _with_unconfirmed_warning(release: Action, unreachable_cells: tuple[str, ...]) -> Action:
    """Add a warning for users: instances of a deleted deployment may still run there."""
    if not unreachable_cells or not isinstance(release, Patch):
        return release
    if len(unreachable_cells) == 1:
        subject, reconnects = f"cell {unreachable_cells[0]} is", "it reconnects"
    else:
        subject, reconnects = f"cells {', '.join(unreachable_cells)} are", "they reconnect"
    warning = f"{subject} unreachable; instances there are stopped when {reconnects}"
    return replace(release, unconfirmed_warning=warning)
