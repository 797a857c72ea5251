"""From an Instance without gates to its Server, and from the Server's state back."""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api import labels
from datum_compute.api.codec import canonical
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    Verdict,
    decided,
    with_condition,
)
from datum_compute.api.instance import (
    AVAILABLE,
    PROGRAMMED,
    Instance,
    InstanceControlStatus,
    InstanceStatus,
)
from datum_compute.api.kinds import INSTANCE, SERVER
from datum_compute.api.meta import ObjectMeta, controller_uid, owner_reference, ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.server import Server, ServerSpec
from datum_compute.planning.actions import Action, Delete, Plan, Wait, drop_finalizer
from datum_compute.planning.objects import plan_object, plan_status


def instance_tag(instance: Instance) -> str:
    metadata = instance.metadata
    return f"{metadata.namespace}/{metadata.name}/{metadata.uid}"


def plan_provisioning(
    plane: PlaneName, instance: Instance, server: Server | None, now: str
) -> Plan:
    """``server`` is the one of the instance's name, whoever it belongs to."""
    if server is not None and not _belongs(server, instance):
        return Plan((Wait(f"the server of an earlier {instance.metadata.name} remains"),), 10)
    if instance.is_terminating:
        return _plan_removal(plane, instance, server)
    actions: list[Action] = []
    if not instance.spec.controller.scheduling_gates:
        actions += _upsert(plane, instance, server)
    status = provisioned_status(instance, server, now)
    return Plan((*actions, *plan_status(plane, INSTANCE, instance, status)))


def _belongs(server: Server, instance: Instance) -> bool:
    """By owner or by tag: either alone may have been edited by hand."""
    tagged = server.spec.tags.get(labels.INSTANCE_TAG) == instance_tag(instance)
    return tagged or controller_uid(server) == instance.metadata.uid


def provisioned_status(instance: Instance, server: Server | None, now: str) -> InstanceStatus:
    """The status with the parts that provisioning owns brought up to date."""
    programmed, available = _verdicts(server)
    conditions: Sequence[Condition] = instance.status.conditions
    generation = instance.metadata.generation
    for type_, verdict in ((PROGRAMMED, programmed), (AVAILABLE, available)):
        new = decided(type_, verdict, generation=generation, now=now)
        conditions = with_condition(conditions, new)
    observed = server.spec.template_hash if server and programmed.status == TRUE else ""
    return InstanceStatus(
        conditions=list(conditions),
        network_interfaces=instance.status.network_interfaces,  # given with the Network gate
        controller=InstanceControlStatus(observed_template_hash=observed),
    )


def _verdicts(server: Server | None) -> tuple[Verdict, Verdict]:
    """Programmed and Available, as the machine shows them."""
    if server is None or server.status.observed_generation == 0:
        pending = Verdict(UNKNOWN, "Pending", "Waiting for a machine")
        return pending, pending
    programmed = Verdict(TRUE, "Programmed", "The machine is set up")
    message = server.status.message
    match server.status.phase:
        case "Pending":
            programming = Verdict(FALSE, "ProgrammingInProgress", message)
            return programming, Verdict(FALSE, "Starting", message)
        case "Running":
            return programmed, Verdict(TRUE, "Available", "The instance is ready to serve")
        case "Sleeping":
            return programmed, Verdict(TRUE, "Asleep", "Asleep; the first request wakes it")
        case "Stopped":
            return programmed, Verdict(FALSE, "Stopped", message)
        case "Failed":
            failed = Verdict(FALSE, server.status.reason or "ConfigurationError", message)
            return failed, failed


def _upsert(plane: PlaneName, instance: Instance, server: Server | None) -> list[Action]:
    if server is not None and server.is_terminating:
        return [Wait(f"server {server.metadata.name} is being replaced")]
    runtime = instance.spec.runtime
    desired = Server(
        metadata=ObjectMeta(
            name=instance.metadata.name,
            namespace=instance.metadata.namespace,
            owner_references=[owner_reference(instance, INSTANCE)],
            finalizers=[labels.DRIVER_FINALIZER],
        ),
        spec=ServerSpec(
            instance_type=runtime.resources.instance_type,
            template_hash=instance.spec.controller.template_hash,
            containers=runtime.sandbox.containers,
            interfaces=instance.status.network_interfaces,
            tags={labels.INSTANCE_TAG: instance_tag(instance)},
        ),
    )
    if server is not None and canonical(server.spec) == canonical(desired.spec):
        return []
    return plan_object(plane, SERVER, desired, server, "the instance has no gates")


def _plan_removal(plane: PlaneName, instance: Instance, server: Server | None) -> Plan:
    if server is None:
        return Plan(tuple(drop_finalizer(plane, INSTANCE, instance, labels.PROVISIONER_FINALIZER)))
    waiting = Wait(f"server {server.metadata.name} is being removed")
    if server.is_terminating:
        return Plan((waiting,), requeue_after_s=30)
    delete = Delete(plane, SERVER, ref_of(server), server.metadata.uid, "its instance goes")
    return Plan((delete, waiting), requeue_after_s=30)
