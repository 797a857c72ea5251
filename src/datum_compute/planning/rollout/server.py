"""The Server of an Instance: creation, ownership, reported state, and published ports.

Rules:
- An Instance without scheduling gates gets one Server of the same name. The Server's state is
  written to the Instance as Programmed, Available, addresses and images.
- Tag, controller owner and uid label of a Server contain the uid of its Instance, so that the
  Server of an earlier Instance of the same name does not match. Each of the three may be lost or
  edited by hand. The first one that names an existing Instance decides: tag, then owner, then
  label. The name alone decides only if none of them names a uid. The provisioner restores missing
  ones.
- A Server that does not match exactly one Instance is reported as an event.
- The named TCP ports of a deployment are published over its instances that accept connections.

Lookups use keys and indexes, because every change of a Server would otherwise scan all Servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import Endpoint, WorkloadDeployment
from datum_compute.api.compute.instance import (
    AVAILABLE,
    PROGRAMMED,
    READY,
    ContainerPort,
    Instance,
    InstanceControlStatus,
    InstanceStatus,
    NetworkInterfaceStatus,
    ResourceAmounts,
)
from datum_compute.api.compute.server import Server, ServerSpec, runs_other_spec
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    is_true,
    make_condition,
    with_condition,
)
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER
from datum_compute.api.meta.objects import ObjectMeta, Ref, owner_reference, ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.network.addresses import assigned_interfaces, reachable_interfaces
from datum_compute.planning.plan import Action, Delete, PatchStatus, Plan, Wait, drop_finalizer
from datum_compute.planning.quota.claims import InstanceSize, amounts_of
from datum_compute.planning.reasons import QUOTA_DENIED_ON_INSTANCE
from datum_compute.planning.rollout.gates import find_quota_denial, ready_condition
from datum_compute.planning.rollout.slots import is_ready
from datum_compute.planning.rollout.stopping import stopping_value
from datum_compute.planning.rollout.suspension import (
    halt_reason,
    halted_available,
    halted_value,
    is_instance_halted,
)

FindInstance = Callable[[Ref], Instance | None]


class Match(StrEnum):
    """How a lookup found the Instance of a Server, or why it found none.

    The values are outcomes of the metric ``reverse_map_total``.
    """

    HIT = "hit"
    HIT_BY_OWNER = "hit_by_owner"
    HIT_BY_LABEL = "hit_by_label"
    HIT_BY_NAME = "hit_by_name"
    MISSING_TAG = "missing_tag"
    UNKNOWN_OWNER = "unknown_owner"
    AMBIGUOUS = "ambiguous"
    DUPLICATE = "duplicate"

    @property
    def is_hit(self) -> bool:
        return self in _HITS


_HITS = (Match.HIT, Match.HIT_BY_OWNER, Match.HIT_BY_LABEL, Match.HIT_BY_NAME)


@dataclass(frozen=True, slots=True)
class OwnerLookup:
    """The result of an owner lookup; ``message`` states the problem unless ``match`` is a hit."""

    match: Match
    message: str = ""


@dataclass(frozen=True, slots=True)
class InstanceReference:
    """An Instance that a Server names, and the field that names it (``match``).

    An empty uid matches any Instance of the name.
    """

    match: Match
    ref: Ref
    uid: str

    def is_for(self, instance: Instance | None) -> bool:
        return instance is not None and self.uid in ("", instance.metadata.uid)


def instance_tag(instance: Instance) -> str:
    metadata = instance.metadata
    return f"{metadata.namespace}/{metadata.name}/{metadata.uid}"


def instance_references(server: Server) -> list[InstanceReference]:
    """Return the Instances that a Server names, by tag first; at least one."""
    own = ref_of(server)
    found = [*_references_by_tag(server), *_references_by_owner(server)]
    uid = server.metadata.labels.get(labels.INSTANCE_UID)
    if uid:
        found.append(InstanceReference(Match.HIT_BY_LABEL, own, uid))
    return found or [InstanceReference(Match.HIT_BY_NAME, own, "")]


def _references_by_tag(server: Server) -> list[InstanceReference]:
    parts = server.spec.tags.get(labels.INSTANCE_TAG, "").split("/")
    if len(parts) != 3 or not all(parts):
        return []
    namespace, name, uid = parts
    return [InstanceReference(Match.HIT, Ref(namespace, name), uid)]


def _references_by_owner(server: Server) -> list[InstanceReference]:
    metadata = server.metadata
    return [
        InstanceReference(Match.HIT_BY_OWNER, Ref(metadata.namespace, owner.name), owner.uid)
        for owner in metadata.owner_references
        if owner.controller and owner.kind == INSTANCE.kind
    ]


def is_server_of(server: Server, instance: Instance) -> bool:
    """Return True if a Server with the name of the Instance belongs to the Instance.

    An Instance uses only a Server of its own name. A reference to an Instance of another name was
    therefore edited by hand and is ignored.
    """
    assert ref_of(server) == ref_of(instance), "a Server has the name of its Instance"
    references = [
        reference for reference in instance_references(server) if reference.ref == ref_of(server)
    ]
    return not references or any(reference.is_for(instance) for reference in references)


def refs_to_reconcile(server: Server, exists: Callable[[Ref], bool]) -> list[Ref]:
    """Return the Instances to reconcile after a change of a Server.

    This is one Instance unless the Server was edited by hand. The Instance with the name of the
    Server is included if it exists, because only its reconciler restores edited fields.
    """
    refs = list(dict.fromkeys(reference.ref for reference in instance_references(server)))
    own = ref_of(server)
    return refs if own in refs or not exists(own) else [*refs, own]


def find_owner(
    server: Server, find_instance: FindInstance, same_uid: Sequence[Server]
) -> OwnerLookup:
    """Find the one Instance that a Server names, or the reason why there is not exactly one.

    ``same_uid`` are the Servers whose uid label has the uid that this Server names first.
    """
    name = f"server {ref_of(server)}"
    references = instance_references(server)
    hits = [reference for reference in references if reference.is_for(find_instance(reference.ref))]
    if not hits:
        return _without_instance(name, references[0])
    refs = list(dict.fromkeys(hit.ref for hit in hits))
    if len(refs) > 1:
        message = f"{name} names several instances: {', '.join(map(str, refs))}"
        return OwnerLookup(Match.AMBIGUOUS, message)
    others = sorted(str(ref_of(s)) for s in same_uid if ref_of(s) != ref_of(server))
    if others:
        message = f"{name} and {', '.join(others)} are all servers of instance {refs[0]}"
        return OwnerLookup(Match.DUPLICATE, message)
    return OwnerLookup(hits[0].match)


def _without_instance(name: str, reference: InstanceReference) -> OwnerLookup:
    if reference.match is Match.HIT_BY_NAME:
        return OwnerLookup(Match.MISSING_TAG, f"{name} names no instance, and none has its name")
    message = f"{name} names instance {reference.ref} ({reference.uid}), which does not exist"
    return OwnerLookup(Match.UNKNOWN_OWNER, message)


# Programmed and Available; None leaves the recorded condition as it is.
MachineConditions = tuple[ConditionValue | None, ConditionValue]

# Limits the effect of a lost event. Instances that are Available are checked more often
# (LOST_SERVER_CHECK_S in controllers/workload/server.py).
RESYNC_S = 600.0
NAME_CONFLICT_RECHECK_S = 10.0
MESSAGE_MAX = 1024

_NAME_CONFLICT_MESSAGE = "Another server has the name of its machine"
_SETTING_UP = Reason.PROGRAMMING_IN_PROGRESS  # reason of Programmed while it is Unknown
NAME_CONFLICT: MachineConditions = (
    ConditionValue(UNKNOWN, _SETTING_UP, _NAME_CONFLICT_MESSAGE),
    ConditionValue(FALSE, Reason.STARTING, _NAME_CONFLICT_MESSAGE),
)


def plan_provisioning(
    plane: PlaneName,
    instance: Instance,
    server: Server | None,
    now: str,
    size: InstanceSize | None = None,
) -> Plan:
    """Plan the Server of an Instance and the Instance status.

    ``server`` has the instance's name and may belong to another Instance. ``size`` is the size for
    which the instance claims quota.
    """
    foreign = server is not None and not is_server_of(server, instance)
    own = None if foreign else server
    if instance.is_terminating:
        return _plan_removal(plane, instance, own, now)
    actions: list[Action] = []
    if foreign:
        actions.append(Wait(f"another server has the name {instance.metadata.name}"))
    elif not instance.spec.controller.scheduling_gates:
        actions += _plan_server(plane, instance, own, size)
    values = NAME_CONFLICT if foreign else machine_conditions(instance, own)
    status = provisioned_status(instance, own, values, now)
    if status != instance.status and not instance.spec.controller.scheduling_gates:
        status = _with_ready(instance, status, now)
    return Plan(
        (*actions, *plan_status(plane, INSTANCE, instance, status)),
        requeue_after_s=NAME_CONFLICT_RECHECK_S if foreign else RESYNC_S,
    )


def provisioned_status(
    instance: Instance, server: Server | None, values: MachineConditions, now: str
) -> InstanceStatus:
    """Return the Instance status with the fields that the provisioner owns updated."""
    conditions: Sequence[Condition] = instance.status.conditions
    generation = instance.metadata.generation
    for type_, value in zip((PROGRAMMED, AVAILABLE), values, strict=True):
        if value is None:
            continue
        old = find_condition(conditions, type_)
        is_initial = old is not None and (old.status, old.reason) == (UNKNOWN, Reason.PENDING)
        if is_initial and value.status == UNKNOWN and value.reason != _SETTING_UP:
            continue  # the initial condition of the instance is still correct
        new = make_condition(type_, value, generation=generation, now=now)
        conditions = with_condition(conditions, new)
    controller, resources = _applied_template(instance, server)
    return InstanceStatus(
        conditions=list(conditions),
        network_interfaces=_instance_interfaces(instance, server),
        referenced_data=server.status.referenced_data if server is not None else [],
        images=server.status.images if server is not None else [],
        last_wake=server.status.last_wake if server is not None else None,
        controller=controller,
        resources=resources,
    )


def _applied_template(
    instance: Instance, server: Server | None
) -> tuple[InstanceControlStatus, ResourceAmounts]:
    """Return the template and the size that the driver has applied, successfully or not.

    The recorded values are kept while the phase is Unknown, and while the instance is suspended or
    stopped. They are also kept while a machine that
    had applied this template before is Pending again, because a restart does not revert them.
    """
    recorded = instance.status.controller
    if server is None or not _is_observed(server):
        return InstanceControlStatus(), ResourceAmounts()
    if server.status.phase == "Pending":
        is_same = recorded.observed_template_hash == server.spec.template_hash
        if not (is_same and _is_same_machine(server)):
            return InstanceControlStatus(), ResourceAmounts()
        return recorded, instance.status.resources
    if server.status.phase == "Unknown" or is_instance_halted(instance):
        return recorded, instance.status.resources
    if server.status.phase == "Stopped" and _is_outdated(server):
        return recorded, instance.status.resources
    observed = InstanceControlStatus(observed_template_hash=server.spec.template_hash)
    return observed, server.spec.resources


def _is_same_machine(server: Server) -> bool:
    """Return True if the machine was started from the containers the Server has now."""
    status = server.status
    if status.spec_fingerprint:
        return not runs_other_spec(server)
    return status.restarts > 0  # an earlier release started it and recorded no fingerprint


def _instance_interfaces(instance: Instance, server: Server | None) -> list[NetworkInterfaceStatus]:
    """Return the interfaces that the Network gate assigned, with the addresses of the machine."""
    reported = server.status.addresses if server is not None else ()
    return reachable_interfaces(instance.status.network_interfaces, reported)


def _with_ready(instance: Instance, status: InstanceStatus, now: str) -> InstanceStatus:
    """Add the Ready condition that follows from the new conditions, which saves a separate write.

    The instance controller computes Ready with the same function, so both writers agree.
    """
    ready = ready_condition(instance, status.conditions, (), now)
    return msgspec.structs.replace(status, conditions=with_condition(status.conditions, ready))


def machine_conditions(instance: Instance, server: Server | None) -> MachineConditions:
    """Return Programmed and Available of an instance, computed from its Server."""
    if server is None or not _is_observed(server):
        return _no_server_status(instance)
    programmed = ConditionValue(TRUE, Reason.PROGRAMMED, "The machine is set up")
    halted = halt_reason(instance.spec.controller)
    if halted is not None and not server.is_terminating:
        return None, halted_available(halted, server)
    if server.is_terminating:
        # The machine stops before the Server is gone, and no status is reported meanwhile.
        return programmed, ConditionValue(FALSE, Reason.STOPPING, "The server is being removed")
    message = server.status.message
    match server.status.phase:
        case "Pending":
            programming = ConditionValue(UNKNOWN, _SETTING_UP, message)
            starting = server.status.reason or Reason.STARTING
            return programming, ConditionValue(FALSE, starting, message)
        case "Running":
            if server.status.reason:  # the machine runs, but does not accept connections yet
                return programmed, ConditionValue(FALSE, server.status.reason, message)
            return programmed, ConditionValue(
                TRUE, Reason.AVAILABLE, "The instance is ready to serve"
            )
        case "Sleeping":
            return programmed, ConditionValue(
                TRUE, Reason.ASLEEP, "Asleep; the first request wakes it"
            )
        case "Stopped":
            if _is_outdated(server):  # the halt is over, and the driver starts the machine next
                restart = ConditionValue(FALSE, Reason.STARTING, "The machine is started again")
                return None, restart
            return programmed, ConditionValue(FALSE, Reason.STOPPED, _describe_exit(server))
        case "Failed":
            reason = server.status.reason or Reason.CONFIGURATION_ERROR
            failed = ConditionValue(FALSE, reason, _describe_exit(server))
            return failed, failed
        case "Unknown":
            return None, ConditionValue(
                UNKNOWN, server.status.reason or Reason.NOT_OBSERVED, message
            )


def _is_outdated(server: Server) -> bool:
    """Return True if the reported state is about an earlier spec of the Server."""
    return server.status.observed_generation < server.metadata.generation


def _is_observed(server: Server) -> bool:
    """Return True if a driver has reported the state of the Server."""
    return server.status.observed_generation > 0


def _no_server_status(instance: Instance) -> MachineConditions:
    """Return Programmed and Available of an instance whose machine was never observed.

    A denied quota is reported here too, until the quota is granted.
    """
    halted = halt_reason(instance.spec.controller)
    if halted is not None:
        return None, halted_value(halted)
    gated = bool(instance.spec.controller.scheduling_gates)
    denial = find_quota_denial(instance.status.conditions)
    if gated and denial is not None:
        denied = ConditionValue(FALSE, QUOTA_DENIED_ON_INSTANCE, denial.message)
        return denied, denied
    pending = ConditionValue(UNKNOWN, Reason.PENDING, "Waiting for a machine")
    return pending, pending


def _describe_exit(server: Server) -> str:
    """Describe how the machine ended: the driver's message, restarts and its last log lines.

    The message of a driver contains the exit code.
    """
    status = server.status
    parts = [status.message]
    if status.reason == Reason.INSTANCE_CRASHING:
        parts.append(_describe_restarts(status.restarts))
    text = "; ".join(part for part in parts if part)
    if status.last_lines:
        text += "; last lines: " + " | ".join(status.last_lines)
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 3] + "..."


def _describe_restarts(count: int) -> str:
    match count:
        case 0:
            return "not restarted yet"
        case 1:
            return "restarted once"
        case _:
            return f"restarted {count} times"


def _plan_server(
    plane: PlaneName, instance: Instance, server: Server | None, size: InstanceSize | None
) -> list[Action]:
    if server is not None and server.is_terminating:
        return [Wait(f"server {server.metadata.name} is being replaced")]
    runtime = instance.spec.runtime
    desired = Server(
        metadata=ObjectMeta(
            name=instance.metadata.name,
            namespace=instance.metadata.namespace,
            labels={labels.INSTANCE_UID: instance.metadata.uid},
            owner_references=[owner_reference(instance, INSTANCE)],
            finalizers=[labels.DRIVER_FINALIZER],
        ),
        spec=ServerSpec(
            instance_type=runtime.resources.instance_type,
            template_hash=instance.spec.controller.template_hash,
            resources=_server_resources(instance, server, size),
            containers=runtime.sandbox.containers,
            image_pull_secrets=runtime.sandbox.image_pull_secrets,
            termination_grace_period_seconds=runtime.sandbox.termination_grace_period_seconds,
            volumes=instance.spec.volumes,
            scale_to_zero=instance.spec.scale_to_zero,
            interfaces=assigned_interfaces(instance.status.network_interfaces),
            suspended=is_instance_halted(instance),
            tags=_server_tags(instance, server),
        ),
    )
    if server is not None and server.spec == desired.spec and runs_other_spec(server):
        return _replace_server(plane, server)
    return plan_object(plane, SERVER, desired, server, "the instance has no scheduling gates")


def _server_tags(instance: Instance, server: Server | None) -> dict[str, str]:
    """Return the tags by which drivers find the instance, and logs of a deleted workload.

    A Server of an earlier release has only the tag of its instance, and keeps it: its machine was
    started without the others.
    """
    tags = {labels.INSTANCE_TAG: instance_tag(instance)}
    if server is not None and server.spec.tags == tags:
        return tags
    names = (labels.WORKLOAD_NAME, labels.WORKLOAD_UID, labels.CITY_CODE)
    of_workload = instance.metadata.labels
    return tags | {name: of_workload[name] for name in names if name in of_workload}


def _replace_server(plane: PlaneName, server: Server) -> list[Action]:
    """Delete a Server whose machine was started from another spec than the Server has now.

    The caller first restores a Server that was edited by hand. Otherwise the edit would replace a
    machine that still runs the desired spec. The delete fails if the Server has changed since it
    was read.
    """
    reason = "its machine was started from another spec"
    version = server.metadata.resource_version
    delete = Delete(plane, SERVER, ref_of(server), server.metadata.uid, reason, version=version)
    return [delete, Wait(f"server {server.metadata.name} is being replaced")]


def _server_resources(
    instance: Instance, server: Server | None, size: InstanceSize | None
) -> ResourceAmounts:
    """Return the size of the machine.

    A machine keeps its size when the definition of its instance type changes. A machine with a new
    template gets the current size.
    """
    recorded = server.spec.resources if server is not None else ResourceAmounts()
    if server is None or recorded == ResourceAmounts():
        return amounts_of(size)
    is_same_template = server.spec.template_hash == instance.spec.controller.template_hash
    return recorded if is_same_template else amounts_of(size)


def _plan_removal(plane: PlaneName, instance: Instance, server: Server | None, now: str) -> Plan:
    if server is None:
        return Plan(tuple(drop_finalizer(plane, INSTANCE, instance, labels.PROVISIONER_FINALIZER)))
    stopping = make_condition(
        AVAILABLE, stopping_value(instance), generation=instance.metadata.generation, now=now
    )
    conditions = with_condition(instance.status.conditions, stopping)
    status = _with_ready(
        instance, msgspec.structs.replace(instance.status, conditions=conditions), now
    )
    report = plan_status(plane, INSTANCE, instance, status)
    waiting = Wait(f"server {server.metadata.name} is being removed")
    if server.is_terminating:
        return Plan((waiting, *report), requeue_after_s=30)
    delete = Delete(
        plane, SERVER, ref_of(server), server.metadata.uid, "its instance is being deleted"
    )
    return Plan((delete, waiting, *report), requeue_after_s=30)


_SCHEMES = {"https": "https", "tcp": "tcp", "grpc": "tcp", "tls": "tcp"}


def published_ports(deployment: WorkloadDeployment) -> list[ContainerPort]:
    """Return the TCP ports of all containers; none if the deployment is being deleted."""
    if deployment.is_terminating:
        return []
    containers = deployment.spec.template.spec.runtime.sandbox.containers
    return [port for c in containers for port in c.ports if port.protocol == "TCP"]


def accepts_connections(instance: Instance, server: Server | None) -> bool:
    """Return True if connections are forwarded to the instance.

    The instance is ready, or it was set up and the driver cannot observe it now. An unreachable
    container engine does not stop instances. An instance that crashed accepts connections as soon
    as its machine does. It counts as ready later, so that a rollout does not continue with a
    program that exits again.
    """
    if instance.is_terminating:
        return False
    ready = find_condition(instance.status.conditions, READY)
    unobserved = ready is not None and (ready.status, ready.reason) == (
        UNKNOWN,
        Reason.NOT_OBSERVED,
    )
    programmed = is_true(instance.status.conditions, PROGRAMMED)
    crashed = ready is not None and ready.reason == Reason.INSTANCE_CRASHING
    recovered = crashed and server is not None and recovers_from_crash(server)
    return is_ready(instance) or (unobserved and programmed) or recovered


def recovers_from_crash(server: Server) -> bool:
    """Return True if the machine accepts connections again after a crash."""
    status = server.status
    return status.recovering or (status.phase == "Running" and not status.reason)


def last_ports(deployment: WorkloadDeployment) -> dict[str, int]:
    return {endpoint.name: endpoint.port for endpoint in deployment.status.endpoints}


def plan_endpoints(
    plane: PlaneName, deployment: WorkloadDeployment, published: Mapping[str, tuple[str, int]]
) -> Plan:
    """Plan the endpoints in the status. ``published`` has host and port by port name."""
    endpoints = [
        Endpoint(name=name, host=host, port=port, url=f"{_url_scheme(name)}://{host}:{port}")
        for name, (host, port) in sorted(published.items())
    ]
    if endpoints == deployment.status.endpoints:
        return Plan()
    return Plan((_patch_endpoints(plane, deployment, endpoints),))


def _url_scheme(name: str) -> str:
    return _SCHEMES.get(name.partition("-")[0], "http")


def _patch_endpoints(
    plane: PlaneName, deployment: WorkloadDeployment, endpoints: Sequence[Endpoint]
) -> PatchStatus:
    items = [{"name": e.name, "host": e.host, "port": e.port, "url": e.url} for e in endpoints]
    version = deployment.metadata.resource_version
    status = {"endpoints": items or None}
    return PatchStatus(plane, DEPLOYMENT, ref_of(deployment), version, status, "ports published")
