"""Builders of objects for tests. Arguments name only what differs from the default."""

from __future__ import annotations

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import (
    AttachedPrefix,
    NetworkAttachment,
    WorkloadDeployment,
    WorkloadDeploymentSpec,
    WorkloadRef,
)
from datum_compute.api.compute.instance import (
    AVAILABLE,
    PROGRAMMED,
    QUOTA_GRANTED,
    READY,
    Container,
    Instance,
    InstanceControl,
    InstanceControlStatus,
    InstanceSpec,
    InstanceStatus,
    InstanceTemplate,
    Runtime,
    Sandbox,
    SchedulingGate,
    TemplateSpec,
)
from datum_compute.api.compute.server import Server, ServerSpec, ServerStatus
from datum_compute.api.compute.workload import Placement, ScaleSettings, Workload, WorkloadSpec
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    ConditionStatus,
    ConditionValue,
    Reason,
    make_condition,
)
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.meta.fields import CITY_CODE_KEY, LocalReference
from datum_compute.api.meta.objects import ObjectMeta, owner_reference
from datum_compute.api.networking.location import (
    LocationBinding,
    LocationBindingSpec,
)
from datum_compute.api.planes import instance_name
from datum_compute.planning.rollout.slots import platform_labels
from datum_compute.planning.workload.templates import template_hash

NOW = "2026-01-01T00:00:00Z"
LONG_AGO = "2025-12-31T00:00:00Z"  # ready long ago: available with any setting


def a_template(image: str = "web:1") -> InstanceTemplate:
    sandbox = Sandbox(containers=[Container(name="app", image=image)])
    return InstanceTemplate(spec=TemplateSpec(runtime=Runtime(sandbox=sandbox)))


def a_workload(
    image: str = "web:1",
    *,
    cities: tuple[str, ...] = ("DFW",),
    replicas: int = 1,
    uid: str = "workload-uid",
    terminating: bool = False,
) -> Workload:
    scale = ScaleSettings(min_replicas=replicas)
    return Workload(
        metadata=_meta("web", uid, [labels.WORKLOAD_FINALIZER], terminating),
        spec=WorkloadSpec(
            template=a_template(image),
            placements=[Placement(name="default", city_codes=list(cities), scale_settings=scale)],
        ),
    )


def a_new_workload(image: str = "web:1", *, replicas: int = 1) -> Workload:
    """Return the workload as a user sends it, before the server has set defaults."""
    metadata = ObjectMeta(name="web", namespace="default")
    return msgspec.structs.replace(a_workload(image, replicas=replicas), metadata=metadata)


def a_deployment(
    image: str = "web:1",
    *,
    replicas: int = 1,
    city: str = "DFW",
    name: str = "web-dfw",
    finalizers: tuple[str, ...] = (labels.WORKLOAD_FINALIZER,),
    terminating: bool = False,
    paused: bool = False,
    scale: ScaleSettings | None = None,
    attached: bool = True,
) -> WorkloadDeployment:
    """Return a deployment; pass ``scale`` instead of ``replicas`` to set all scale settings."""
    return WorkloadDeployment(
        metadata=_meta(name, f"uid-of-{name}", list(finalizers), terminating),
        spec=WorkloadDeploymentSpec(
            workload_ref=WorkloadRef(name="web", uid="workload-uid"),
            placement_name="default",
            city_code=city,
            template=a_template(image),
            scale_settings=scale or ScaleSettings(min_replicas=replicas),
            paused=paused,
            network_attachment=an_attachment() if attached else None,
        ),
    )


def of_workload(deployment: WorkloadDeployment, uid: str) -> WorkloadDeployment:
    """Return a deployment of the same name that belongs to the workload with this uid."""
    reference = msgspec.structs.replace(deployment.spec.workload_ref, uid=uid)
    return msgspec.structs.replace(
        deployment, spec=msgspec.structs.replace(deployment.spec, workload_ref=reference)
    )


def an_attachment(
    prefix: str = "10.128.16.0/20", gateway: str = "10.128.16.1"
) -> NetworkAttachment:
    attached = AttachedPrefix(family="IPv4", prefix=prefix, gateway=gateway)
    return NetworkAttachment(network="default", namespace="default", prefixes=[attached], mtu=1460)


def an_instance(
    number: int,
    image: str = "web:1",
    *,
    deployment: WorkloadDeployment | None = None,
    ready: bool | None = True,
    ready_since: str | None = None,
    terminating: bool = False,
    finalizers: tuple[str, ...] = (labels.PROVISIONER_FINALIZER,),
) -> Instance:
    """Return an instance. ``ready=False``: observed as not ready. ``ready=None``: it was ready, and
    no driver has observed it since a restart. ``ready_since`` is the last transition of Ready."""
    owner = deployment or a_deployment()
    current = template_hash(a_template(image))
    name = instance_name(owner.metadata.name, number)
    metadata = msgspec.structs.replace(
        _meta(name, f"uid-of-{name}", list(finalizers), terminating),
        labels=platform_labels(owner, number),
        owner_references=[owner_reference(owner, DEPLOYMENT)],
    )
    since = ready_since or LONG_AGO
    verdict = ConditionValue(TRUE, "Available", "")
    conditions = [
        make_condition(type_, verdict, generation=1, now=since)
        for type_ in (PROGRAMMED, AVAILABLE, READY)
    ]
    if ready is None:
        unknown = ConditionValue(UNKNOWN, Reason.NOT_OBSERVED, "No driver has observed the machine")
        conditions[1:] = [
            make_condition(type_, unknown, generation=1, now=since) for type_ in (AVAILABLE, READY)
        ]
    elif not ready:
        starting = ConditionValue(FALSE, "Starting", "")
        conditions = [make_condition(READY, starting, generation=1, now=since)]
    return Instance(
        metadata=metadata,
        spec=InstanceSpec(
            runtime=a_template(image).spec.runtime,
            controller=InstanceControl(template_hash=current),
        ),
        status=InstanceStatus(
            conditions=conditions,
            controller=InstanceControlStatus(
                observed_template_hash="" if ready is False else current
            ),
        ),
    )


def a_gated_instance(statuses: dict[str, ConditionStatus] | None = None, *others: str) -> Instance:
    """Return an instance with the gates Network, Quota and ``others``, and these conditions."""
    bare = an_instance(0, ready=False)
    gates = [SchedulingGate(name=name) for name in ("Network", "Quota", *others)]
    control = msgspec.structs.replace(bare.spec.controller, scheduling_gates=gates)
    statuses_by_type = {PROGRAMMED: UNKNOWN, READY: UNKNOWN, **(statuses or {})}
    conditions = [
        make_condition(type_, ConditionValue(status, "Pending", ""), generation=1, now=NOW)
        for type_, status in statuses_by_type.items()
    ]
    return msgspec.structs.replace(
        bare,
        spec=msgspec.structs.replace(bare.spec, controller=control),
        status=msgspec.structs.replace(bare.status, conditions=conditions),
    )


def a_server(phase: str = "", generation: int = 1) -> Server:
    """Return the Server of instance 0. ``phase`` is the observed one; empty: not observed yet."""
    metadata = ObjectMeta(name="web-dfw-0", namespace="default", generation=generation)
    containers = [Container(name="app", image="web:1")]
    spec = ServerSpec(
        instance_type="datumcloud/d1-standard-2", template_hash="abc", containers=containers
    )
    observed = generation if phase else 0
    status = ServerStatus(phase=phase or "Pending", observed_generation=observed)  # type: ignore[arg-type]
    return Server(metadata=metadata, spec=spec, status=status)


def a_location_binding(city: str = "DFW") -> LocationBinding:
    return LocationBinding(
        metadata=ObjectMeta(name=city.lower()),
        spec=LocationBindingSpec(
            location_ref=LocalReference(name=city.lower()),
            location_class_name="datum-managed",
            topology={CITY_CODE_KEY: city},
        ),
    )


def without_status(instance: Instance) -> Instance:
    """Return the instance before any controller has recorded a condition."""
    return msgspec.structs.replace(instance, status=InstanceStatus())


def refused_by_quota(instance: Instance) -> Instance:
    """Return the instance as it is while it waits for quota: gated, without a machine."""
    control = msgspec.structs.replace(
        instance.spec.controller, scheduling_gates=[SchedulingGate(name="Quota")]
    )
    verdict = ConditionValue(FALSE, "QuotaExceeded", "the limit is used up")
    denied = make_condition(QUOTA_GRANTED, verdict, generation=1, now=NOW)
    return msgspec.structs.replace(
        instance,
        spec=msgspec.structs.replace(instance.spec, controller=control),
        status=InstanceStatus(conditions=[denied]),
    )


def _meta(name: str, uid: str, finalizers: list[str], terminating: bool) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace="default",
        uid=uid,
        generation=1,
        resource_version="7",
        finalizers=finalizers,
        deletion_timestamp=NOW if terminating else None,
    )
