"""ServiceEntitlement: a project's wish to use a Service, and whether it may. Cluster-scoped.

Kept in the project. ``dependencyOf`` names the entitlement that this one was made for, where the
public documents leave its form open.
"""

from __future__ import annotations

from typing import Annotated, Literal

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    LocalReference,
    ObjectReference,
    ShortText,
    Text,
    Time,
    immutable,
    says,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields


class ServiceEntitlementSpec(ApiStruct, frozen=True, kw_only=True):
    service_ref: Annotated[
        LocalReference,
        says("The service, by the name of its object."),
        immutable("request the other service instead"),
    ]
    request_message: Annotated[Text, says("A word to whoever approves it.")] = ""


class ServiceEntitlementStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Annotated[
        Literal["PendingApproval", "Active", "Rejected"] | None,
        says("Whether the service may be used; absent until it was looked at."),
    ] = None
    origin: Annotated[
        Literal["Direct", "Dependency"] | None,
        says("Asked for by the project, or needed by another service."),
    ] = None
    dependency_of: Annotated[ShortText, says("The entitlement that this one was made for.")] = ""
    entitled_at: Annotated[
        Time | None, says("When it became Active first (RFC 3339); never cleared.")
    ] = None
    service_name: Annotated[ShortText, says("Name of the service over all releases.")] = ""
    provisioned_resources: Annotated[
        list[ObjectReference], says("Objects that were made in the project for the service.")
    ] = []
    conditions: Conditions = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class ServiceEntitlement(ApiObject, frozen=True, kw_only=True):
    """ServiceEntitlement: a project's wish to use a Service, and whether it may. Cluster-scoped."""

    spec: ServiceEntitlementSpec
    status: ServiceEntitlementStatus = ServiceEntitlementStatus()


ENTITLEMENT = KindInfo(
    group="services.miloapis.com",
    version="v1alpha1",
    kind="ServiceEntitlement",
    plural="serviceentitlements",
    model=ServiceEntitlement,
    namespaced=False,
    categories=("catalogue",),
    selectable=selectable_fields("spec.serviceRef.name"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Service", ".spec.serviceRef.name"),
        Column("Phase", ".status.phase"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Origin", ".status.origin", wide=True),
    ),
)
