"""Service: something that projects can be entitled to use, such as compute. Cluster-scoped.

Kept in the platform. Its phase goes one step forward at a time; only Published services can be
enabled (admission/service.py has the rules).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    DnsName,
    LocalReference,
    ServicePhase,
    ShortText,
    Text,
    Time,
    immutable,
    says,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields


class ServiceOwner(ApiStruct, frozen=True, kw_only=True):
    """Who provides the service."""

    producer_project_ref: Annotated[LocalReference, says("The project that provides it.")]


class ServiceDependency(ApiStruct, frozen=True, kw_only=True):
    """Another service that this one needs."""

    service_ref: Annotated[LocalReference, says("The service that is needed.")]


class EnablementPolicy(ApiStruct, frozen=True, kw_only=True):
    """How a project comes to use the service."""

    mode: Annotated[
        Literal["SelfService", "GatedByProvider"],
        says("SelfService: at once. GatedByProvider: after the provider has approved."),
    ] = "SelfService"


class ServiceSpec(ApiStruct, frozen=True, kw_only=True):
    service_name: Annotated[
        DnsName,
        Meta(min_length=1),
        says("Name of the service over all releases, such as compute.datumapis.com."),
        immutable("create another service instead"),
    ]
    phase: Annotated[ServicePhase, says("How far it is; one step forward at a time.")] = "Draft"
    display_name: Annotated[ShortText, says("Name for people.")] = ""
    description: Annotated[Text, says("What the service does.")] = ""
    owner: ServiceOwner
    dependencies: Annotated[
        list[ServiceDependency], Meta(max_length=16), says("Services that are enabled with it.")
    ] = []
    enablement_policy: EnablementPolicy = EnablementPolicy()


class ServiceStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    published_at: Annotated[Time | None, says("When it was published (RFC 3339).")] = None
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class Service(ApiObject, frozen=True, kw_only=True):
    """Service: something that projects can be entitled to use, such as compute. Cluster-scoped."""

    spec: ServiceSpec
    status: ServiceStatus = ServiceStatus()


SERVICE = KindInfo(
    group="services.miloapis.com",
    version="v1alpha1",
    kind="Service",
    plural="services",
    model=Service,
    namespaced=False,
    categories=("catalogue",),
    selectable=selectable_fields("spec.serviceName", "spec.phase"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Service Name", ".spec.serviceName"),
        Column("Phase", ".spec.phase"),
        Column("Mode", ".spec.enablementPolicy.mode"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Display Name", ".spec.displayName", wide=True),
    ),
)
