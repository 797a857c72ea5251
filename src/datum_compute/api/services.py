"""Service: something that projects can be entitled to use, such as compute. Cluster-scoped.

Kept in the platform. Its phase goes one step forward at a time; only Published services can be
enabled (admission/rules/services.py has the rules).
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    MAP_BY_NAME,
    SET,
    Amount,
    DnsName,
    KindReference,
    LocalReference,
    LocationClass,
    ServicePhase,
    ShortText,
    Text,
    Time,
    TypedObjectReference,
    doc,
    immutable,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields


class ServiceOwner(ApiStruct, frozen=True, kw_only=True):
    """Who provides the service."""

    producer_project_ref: Annotated[LocalReference, doc("The project that provides it.")]


class ServiceDependency(ApiStruct, frozen=True, kw_only=True):
    """Another service that this one needs."""

    service_ref: Annotated[LocalReference, doc("The service that is needed.")]


class EnablementPolicy(ApiStruct, frozen=True, kw_only=True):
    """How a project comes to use the service."""

    mode: Annotated[
        Literal["SelfService", "GatedByProvider"],
        doc("SelfService: at once. GatedByProvider: after the provider has approved."),
    ] = "SelfService"


class ServiceSpec(ApiStruct, frozen=True, kw_only=True):
    service_name: Annotated[
        DnsName,
        Meta(min_length=1),
        doc("Name of the service over all releases, such as compute.datumapis.com."),
        immutable("create another service instead"),
    ]
    phase: Annotated[ServicePhase, doc("How far it is; one step forward at a time.")] = "Draft"
    display_name: Annotated[ShortText, doc("Name for people.")] = ""
    description: Annotated[Text, doc("What the service does.")] = ""
    owner: ServiceOwner
    dependencies: Annotated[
        list[ServiceDependency], Meta(max_length=16), doc("Services that are enabled with it.")
    ] = []
    enablement_policy: EnablementPolicy = EnablementPolicy()


class ServiceStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    published_at: Annotated[Time | None, doc("When it was published (RFC 3339).")] = None
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


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


# --- ServiceConfiguration: what a Service needs from the platform: metrics, quota, locations,
# objects Cluster-scoped, kept in the platform. Quota refers to metrics that are declared beside it
# (admission/rules/services.py). Milo's ``charges`` and ``billing`` are not here: nothing here
# charges anybody, and a field that is accepted and ignored would say otherwise.


MetricName = Annotated[str, Meta(min_length=1, max_length=253)]
Manifest = dict[str, Any]


class ServiceMetric(ApiStruct, frozen=True, kw_only=True):
    """Something that the service counts or measures."""

    name: Annotated[MetricName, doc("Name, such as compute.datumapis.com/instances.")]
    display_name: Annotated[ShortText, doc("Name for people.")] = ""
    description: Annotated[Text, doc("What is counted.")] = ""
    unit: Annotated[ShortText, doc("Unit of its amounts.")] = "1"


class QuotaLimit(ApiStruct, frozen=True, kw_only=True):
    """How much of a metric a consumer gets."""

    name: Annotated[ShortText, Meta(min_length=1), doc("Name of the limit.")]
    display_name: Annotated[ShortText, doc("Name for people.")] = ""
    metric: Annotated[MetricName, doc("The metric that is limited; one of spec.metrics.")]
    consumer_type: Annotated[KindReference, doc("The kind that the limit is for.")]
    unit: Annotated[ShortText, doc("Unit of the limits.")] = "1"
    default_limit: Annotated[Amount, doc("What every consumer gets.")]
    max_limit: Annotated[Amount | None, doc("What a consumer can be given at most.")] = None


class MetricRule(ApiStruct, frozen=True, kw_only=True):
    """What an object of a kind costs."""

    selector: Annotated[KindReference, doc("The kind of the objects.")]
    metric_costs: Annotated[dict[str, Amount], doc("Amounts by metric; each one of spec.metrics.")]


class ServiceQuota(ApiStruct, frozen=True, kw_only=True):
    """Limits of the service, and what counts against them."""

    limits: Annotated[
        list[QuotaLimit], MAP_BY_NAME, Meta(max_length=100), doc("How much consumers get.")
    ] = []
    metric_rules: Annotated[list[MetricRule], Meta(max_length=100), doc("What objects cost.")] = []


class ServiceLocations(ApiStruct, frozen=True, kw_only=True):
    """Where the service can be used."""

    supported_classes: Annotated[
        list[LocationClass], SET, doc("Classes of locations that the service runs in.")
    ] = []


class ServiceProvisioning(ApiStruct, frozen=True, kw_only=True):
    """What a project gets with the service."""

    resources: Annotated[
        list[Manifest], Meta(max_length=100), doc("Objects that every entitled project gets.")
    ] = []


class ServiceConfigurationSpec(ApiStruct, frozen=True, kw_only=True):
    service_ref: Annotated[LocalReference, doc("The service, by the name of its object.")]
    phase: Annotated[
        ServicePhase, doc("How far it is; a Draft has no effect. One step forward at a time.")
    ] = "Draft"
    version: Annotated[ShortText, doc("Version of this configuration, for people.")] = ""
    metrics: Annotated[
        list[ServiceMetric], MAP_BY_NAME, Meta(max_length=100), doc("What is measured.")
    ] = []
    quota: ServiceQuota = ServiceQuota()
    locations: ServiceLocations = ServiceLocations()
    provisioning: ServiceProvisioning = ServiceProvisioning()


class ServiceConfigurationStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


class ServiceConfiguration(ApiObject, frozen=True, kw_only=True):
    """ServiceConfiguration: what a Service needs from the platform: metrics, quota, locations,
    objects.
    """

    spec: ServiceConfigurationSpec
    status: ServiceConfigurationStatus = ServiceConfigurationStatus()


SERVICE_CONFIGURATION = KindInfo(
    group="services.miloapis.com",
    version="v1alpha1",
    kind="ServiceConfiguration",
    plural="serviceconfigurations",
    model=ServiceConfiguration,
    namespaced=False,
    categories=("catalogue",),
    selectable=selectable_fields("spec.serviceRef.name"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Service", ".spec.serviceRef.name"),
        Column("Phase", ".spec.phase"),
        Column("Version", ".spec.version"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    ),
)


# --- ServiceConsumer: a project that uses, or wants to use, a Service; what its provider decides on
# Cluster-scoped, kept in the provider's project, one for each entitlement of a consumer project.


class Approval(ApiStruct, frozen=True, kw_only=True):
    """What the provider has decided."""

    decision: Annotated[Literal["Approved", "Denied"], doc("The decision.")]
    message: Annotated[Text, doc("A word to whoever asked.")] = ""


class ServiceConsumerSpec(ApiStruct, frozen=True, kw_only=True):
    service_ref: Annotated[LocalReference, doc("The service, by the name of its object.")]
    consumer_project_ref: Annotated[LocalReference, doc("The project that uses it.")]
    approval: Annotated[
        Approval | None, doc("The provider's decision; absent until there is one.")
    ] = None
    suspended: Annotated[bool, doc("Whether use of the service is suspended.")] = False


class ServiceConsumerStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Annotated[
        Literal["PendingApproval", "Active", "Denied"] | None,
        doc("Whether the project may use the service; absent until it was looked at."),
    ] = None
    entitled_at: Annotated[Time | None, doc("When it became Active first (RFC 3339).")] = None
    service_name: Annotated[ShortText, doc("Name of the service over all releases.")] = ""
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


class ServiceConsumer(ApiObject, frozen=True, kw_only=True):
    """ServiceConsumer: a project that uses, or wants to use, a Service; what its provider decides
    on.
    """

    spec: ServiceConsumerSpec
    status: ServiceConsumerStatus = ServiceConsumerStatus()


CONSUMER = KindInfo(
    group="services.miloapis.com",
    version="v1alpha1",
    kind="ServiceConsumer",
    plural="serviceconsumers",
    model=ServiceConsumer,
    namespaced=False,
    categories=("catalogue",),
    selectable=selectable_fields("spec.serviceRef.name", "spec.consumerProjectRef.name"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Service", ".spec.serviceRef.name"),
        Column("Project", ".spec.consumerProjectRef.name"),
        Column("Phase", ".status.phase"),
        Column("Decision", ".spec.approval.decision"),
        Column("Suspended", ".spec.suspended", "boolean", wide=True),
    ),
)


# --- ServiceEntitlement: a project's wish to use a Service, and whether it may. Cluster-scoped
# Kept in the project. ``dependencyOf`` names the entitlement that this one was made for, where the
# public documents leave its form open.


class ServiceEntitlementSpec(ApiStruct, frozen=True, kw_only=True):
    service_ref: Annotated[
        LocalReference,
        doc("The service, by the name of its object."),
        immutable("request the other service instead"),
    ]
    request_message: Annotated[Text, doc("A word to whoever approves it.")] = ""


class ServiceEntitlementStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Annotated[
        Literal["PendingApproval", "Active", "Rejected"] | None,
        doc("Whether the service may be used; absent until it was looked at."),
    ] = None
    origin: Annotated[
        Literal["Direct", "Dependency"] | None,
        doc("Asked for by the project, or needed by another service."),
    ] = None
    dependency_of: Annotated[ShortText, doc("The entitlement that this one was made for.")] = ""
    entitled_at: Annotated[
        Time | None, doc("When it became Active first (RFC 3339); never cleared.")
    ] = None
    service_name: Annotated[ShortText, doc("Name of the service over all releases.")] = ""
    provisioned_resources: Annotated[
        list[TypedObjectReference], doc("Objects that were made in the project for the service.")
    ] = []
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


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


# --- Words that services, their consumers and entitlements agree on, and the names made from them


ACTIVE = "Active"
PENDING_APPROVAL = "PendingApproval"
REJECTED = "Rejected"  # an entitlement
DENIED = "Denied"  # a consumer
GATED = "GatedByProvider"
# Conditions.
READY, SUSPENDED, PROVISIONED, PUBLISHED = "Ready", "Suspended", "Provisioned", "Published"


class AccessReason(StrEnum):
    """Why an entitlement or a consumer is what it is; clients branch on these."""

    ACTIVE = "EntitlementActive"
    PENDING_APPROVAL = "EntitlementPendingApproval"
    REJECTED = "EntitlementRejected"
    NOT_PUBLISHED = "ServiceNotPublished"
    APPROVED = "ConsumerApproved"
    DENIED = "ConsumerDenied"
    SUSPENDED = "ProjectSuspended"
    NOT_SUSPENDED = "ProjectActive"


def consumer_name(service_name: str, project: str) -> str:
    """Of the ServiceConsumer of a project, by the name of the service over all releases."""
    return f"sc-{_digest(f'{service_name}/{project}')}"


def grant_name(service: str, project: str, limit: str) -> str:
    """Of the ResourceGrant that an entitlement writes for one limit of the service."""
    return f"rg-{_digest(f'{service}/{project}/{limit}')}"


def is_open(consumer: ServiceConsumer | None) -> bool:
    """Whether the project may use the service now."""
    if consumer is None or consumer.is_terminating or consumer.spec.suspended:
        return False
    return consumer.status.phase == ACTIVE


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).digest()[:8].hex()
