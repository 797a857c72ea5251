"""Instances as the hub and the project see them: copies of the cell's, never older than known.

A cell owes the hub a copy of what it has and the removal of what it has no more. That debt is on
record without a record of its own: it is the difference between what the hub holds in the cell's
name and what the cell holds. So nothing on the cell waits for the hub, no crash can lose a debt,
and none is paid twice. Each copy says which cell it is of, and which instance there: one that came
in the place of another gets a copy of its own, after that of the other has gone.
"""

from __future__ import annotations

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE
from datum_compute.api.instance import PROGRAMMED, READY, Instance
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import ObjectMeta, controller_uid, owner_reference, ref_of
from datum_compute.api.plane import HUB, PlaneName, member_name
from datum_compute.api.reasons import Reason
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.actions import Action, Create, Delete, Plan, Wait, drop_finalizer
from datum_compute.planning.firstword import should_defer
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
    if instance.is_terminating:
        # Earlier versions let an instance wait for the hub.
        released = drop_finalizer(cell, INSTANCE, instance, labels.INSTANCE_FINALIZER)
        if released:
            return Plan(tuple(released))
    if hub_deployment is None or hub_deployment.is_terminating:
        # A cell of another process may know of its deployment before it sees that of the hub.
        return Plan(requeue_after_s=OWNER_S)
    said = hub_deployment.metadata.labels
    identity = {label: said[label] for label in _IDENTITY if label in said}
    if len(identity) < len(_IDENTITY):
        # Somebody took the labels away; the federator puts them back, and that wakes us.
        return Plan((Wait("the hub's deployment does not say whose it is"),), OWNER_S)
    identity[labels.CELL] = member_name(cell)
    if copy is not None and not copy.is_terminating and _is_of_another(copy, cell, instance):
        uid, reason = copy.metadata.uid, "another instance has taken its place"
        delete = Delete(HUB, INSTANCE, ref_of(copy), uid, reason, copy.metadata.resource_version)
        return Plan((delete, Wait("an earlier copy is being removed")), requeue_after_s=OWNER_S)
    source = {labels.COPY_OF: _source(cell, instance)}
    return _plan_copy(HUB, instance, hub_deployment, copy, identity, source)


def is_worth_telling(instance: Instance, now: str) -> bool:
    """An instance that has just been made says nothing yet of its gates, nor of its machine: its
    copy comes with the first word, and needs no correction then."""
    conditions = instance.status.conditions
    due = [c for c in conditions if c.type == PROGRAMMED and c.reason != Reason.PENDING]
    due += [c for c in conditions if c.status == FALSE and c.type != READY]
    return instance.is_terminating or not should_defer(instance, due, now)


def cells_of_copy(copy: Instance) -> list[str]:
    """The cells that a copy on the hub says it is of: one, unless somebody edited it. Then the
    last, of the note that says which instance as well, counts for more."""
    metadata = copy.metadata
    noted = metadata.annotations.get(labels.COPY_OF, "").rpartition("/")[0]
    return [n for n in dict.fromkeys((metadata.labels.get(labels.CELL, ""), noted)) if n]


def _source(cell: PlaneName, instance: Instance) -> str:
    return f"{member_name(cell)}/{instance.metadata.uid}"


def _is_of_another(copy: Instance, cell: PlaneName, instance: Instance) -> bool:
    """One of an instance of this cell that was here before. What says nothing is put right."""
    named, _, uid = copy.metadata.annotations.get(labels.COPY_OF, "").rpartition("/")
    return named == member_name(cell) and uid != instance.metadata.uid


def plan_withdrawal(cell: PlaneName, copy: Instance | None) -> Plan:
    """For an instance that the cell does not have: the hub's copy of it, if it is of this cell."""
    if copy is None or copy.is_terminating:
        return Plan()
    if cells_of_copy(copy)[-1:] != [member_name(cell)]:
        return Plan()
    uid, version = copy.metadata.uid, copy.metadata.resource_version
    reason = f"{member_name(cell)} has no such instance"
    return Plan((Delete(HUB, INSTANCE, ref_of(copy), uid, reason, version),))


def plan_projection(
    project: PlaneName,
    namespace: str,
    hub_instance: Instance,
    deployment: WorkloadDeployment | None,
    projection: Instance | None,
    silence: Silence | None,
    now: str,
) -> Plan:
    """``deployment`` is the project's own, found by name; a projection hangs under it. ``silence``
    is that of the cell it is from."""
    if hub_instance.is_terminating:
        return plan_unprojection(project, projection)
    if deployment is None or deployment.is_terminating:
        return Plan((Wait("the project has no such deployment"),), requeue_after_s=OWNER_S)
    metadata = msgspec.structs.replace(hub_instance.metadata, namespace=namespace)
    told = hub_instance.status
    if silence is not None:
        shown = projection.status if projection is not None else told
        told = unheard_instance(told, shown, silence, now)
    moved = msgspec.structs.replace(hub_instance, metadata=metadata, status=told)
    return _plan_copy(project, moved, deployment, projection, {}, {})


def plan_unprojection(project: PlaneName, projection: Instance | None) -> Plan:
    if projection is None or projection.is_terminating:
        return Plan()
    uid = projection.metadata.uid
    return Plan((Delete(project, INSTANCE, ref_of(projection), uid, "gone from its cell"),))


def _said(source: Instance) -> dict[str, str]:
    """Without what was noted of a copy: that is no word about the instance."""
    annotations = source.metadata.annotations
    return {key: note for key, note in annotations.items() if key not in labels.QUARANTINE}


def _plan_copy(
    plane: PlaneName,
    source: Instance,
    owner: WorkloadDeployment,
    copy: Instance | None,
    extra_labels: dict[str, str],
    notes: dict[str, str],
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
            annotations={**_said(source), **notes},
            owner_references=[owner_reference(owner, DEPLOYMENT)],
        ),
        spec=source.spec,
    )
    if copy is None:
        whole = msgspec.structs.replace(desired, status=source.status)
        return Plan((Create(plane, INSTANCE, whole, "as on the cell", with_status=True),))
    actions: list[Action] = plan_object(plane, INSTANCE, desired, copy, "as on the cell")
    actions = actions or plan_status(plane, INSTANCE, copy, source.status, "as on the cell")
    return Plan(tuple(actions))
