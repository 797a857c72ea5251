"""Instances as the hub and the project see them: copies of the cell's, never older than known."""

from __future__ import annotations

import msgspec

from datum_compute.api import labels
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import ObjectMeta, controller_uid, owner_reference, ref_of
from datum_compute.api.plane import HUB, PlaneName, member_name
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.actions import Action, Delete, Plan, Wait, drop_finalizer
from datum_compute.planning.objects import plan_object, plan_status
from datum_compute.planning.silence import Silence, unheard_instance

OWNER_S = 5.0

_IDENTITY = (labels.UPSTREAM_NAMESPACE, labels.UPSTREAM_CLUSTER)


def plan_writeback(
    cell: PlaneName,
    instance: Instance,
    hub_deployment: WorkloadDeployment | None,
    copy: Instance | None,
) -> Plan:
    """The hub's copy hangs under the hub's deployment. Without that there is no copy, so that
    nothing comes back to a hub that has let go."""
    if instance.is_terminating and instance.metadata.finalizers == [labels.INSTANCE_FINALIZER]:
        if copy is not None:
            delete = Delete(HUB, INSTANCE, ref_of(copy), copy.metadata.uid, "gone from the cell")
            return Plan((delete, Wait("the hub is removing the copy")), requeue_after_s=30)
        release = drop_finalizer(cell, INSTANCE, instance, labels.INSTANCE_FINALIZER)
        return Plan(tuple(release))
    if hub_deployment is None or hub_deployment.is_terminating:
        return Plan(requeue_after_s=60)
    said = hub_deployment.metadata.labels
    identity = {label: said[label] for label in _IDENTITY if label in said}
    if len(identity) < len(_IDENTITY):
        # Somebody took the labels away; the federator puts them back, and that wakes us.
        return Plan((Wait("the hub's deployment does not say whose it is"),), OWNER_S)
    identity[labels.CELL] = member_name(cell)
    return _plan_copy(HUB, instance, hub_deployment, copy, identity)


def plan_withdrawal(cell: PlaneName, copy: Instance | None) -> Plan:
    """For an instance that the cell does not have: the hub's copy of it, if it is of this cell."""
    if copy is None or copy.is_terminating:
        return Plan()
    if copy.metadata.labels.get(labels.CELL) != member_name(cell):
        return Plan()
    uid, version = copy.metadata.uid, copy.metadata.resource_version
    reason = f"{member_name(cell)} has no such instance"
    return Plan((Delete(HUB, INSTANCE, ref_of(copy), uid, reason, version),))


def plan_projection(
    project: PlaneName,
    namespace: str,
    hub_instance: Instance | None,
    deployment: WorkloadDeployment | None,
    projection: Instance | None,
    silence: Silence | None,
    now: str,
) -> Plan:
    """``deployment`` is the project's own, found by name; a projection hangs under it. ``silence``
    is that of the cell it is from."""
    if hub_instance is None or hub_instance.is_terminating:
        return _plan_unprojection(project, projection)
    if deployment is None or deployment.is_terminating:
        return Plan((Wait("the project has no such deployment"),), requeue_after_s=OWNER_S)
    metadata = msgspec.structs.replace(hub_instance.metadata, namespace=namespace)
    told = hub_instance.status
    if silence is not None:
        shown = projection.status if projection is not None else told
        told = unheard_instance(told, shown, silence, now)
    moved = msgspec.structs.replace(hub_instance, metadata=metadata, status=told)
    return _plan_copy(project, moved, deployment, projection, {})


def _plan_unprojection(project: PlaneName, projection: Instance | None) -> Plan:
    if projection is None or projection.is_terminating:
        return Plan()
    uid = projection.metadata.uid
    return Plan((Delete(project, INSTANCE, ref_of(projection), uid, "gone from its cell"),))


def _plan_copy(
    plane: PlaneName,
    source: Instance,
    owner: WorkloadDeployment,
    copy: Instance | None,
    extra_labels: dict[str, str],
) -> Plan:
    if copy is not None and copy.is_terminating:
        return Plan((Wait("an earlier copy is being removed"),), requeue_after_s=OWNER_S)
    if copy is not None and controller_uid(copy) not in ("", owner.metadata.uid):
        return Plan((Wait("the copy belongs to an earlier deployment"),), requeue_after_s=OWNER_S)
    desired = Instance(
        metadata=ObjectMeta(
            name=source.metadata.name,
            namespace=source.metadata.namespace,
            labels={**source.metadata.labels, **extra_labels},
            annotations=source.metadata.annotations,
            owner_references=[owner_reference(owner, DEPLOYMENT)],
        ),
        spec=source.spec,
    )
    actions: list[Action] = plan_object(plane, INSTANCE, desired, copy, "as on the cell")
    if copy is not None and not actions:
        actions += plan_status(plane, INSTANCE, copy, source.status, "as on the cell")
    return Plan(tuple(actions))
