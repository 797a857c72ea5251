"""Services of the platform's catalog, their configuration, consumers and entitlements.

Services and configurations are stored on the platform plane. A phase moves forward one step at a
time, and only Published services can be enabled (admission/rules/services.py).
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
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn, selectable_fields


class ServiceOwner(ApiStruct, frozen=True, kw_only=True):
    """Provider of the service."""

    producer_project_ref: Annotated[LocalReference, doc("Project that provides the service.")]


class ServiceDependency(ApiStruct, frozen=True, kw_only=True):
    """Another service that this service needs."""

    service_ref: Annotated[LocalReference, doc("The service that is needed.")]


class EnablementPolicy(ApiStruct, frozen=True, kw_only=True):
    """How projects are enabled for the service."""

    mode: Annotated[
        Literal["SelfService", "GatedByProvider"],
        doc(
            "With SelfService a project is enabled at once. With GatedByProvider it "
            "is enabled when the provider has approved the request."
        ),
    ] = "SelfService"


class ServiceSpec(ApiStruct, frozen=True, kw_only=True):
    service_name: Annotated[
        DnsName,
        Meta(min_length=1),
        doc("Name of the service in all versions, such as compute.datumapis.com."),
        immutable("create another service instead"),
    ]
    phase: Annotated[
        ServicePhase, doc("Phase of the service. It can only move forward, one step at a time.")
    ] = "Draft"
    display_name: Annotated[ShortText, doc("Name for people.")] = ""
    description: Annotated[Text, doc("Purpose of the service, for people.")] = ""
    owner: ServiceOwner
    dependencies: Annotated[
        list[ServiceDependency],
        Meta(max_length=16),
        doc("Services that are enabled together with this service."),
    ] = []
    enablement_policy: EnablementPolicy = EnablementPolicy()


class ServiceStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    published_at: Annotated[Time | None, doc("Time of publication (RFC 3339).")] = None
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class Service(ApiObject, frozen=True, kw_only=True):
    """A Service is a product that projects can be enabled to use, such as compute. It is stored on
    the platform plane.
    """

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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Service Name", ".spec.serviceName"),
        TableColumn("Phase", ".spec.phase"),
        TableColumn("Mode", ".spec.enablementPolicy.mode"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Display Name", ".spec.displayName", wide=True),
    ),
)


# --- ServiceConfiguration
# Quota limits refer to metrics of the same object (admission/rules/services.py). The fields
# ``charges`` and ``billing`` of Milo are missing, because this platform does not charge.


MetricName = Annotated[str, Meta(min_length=1, max_length=253)]
Manifest = dict[str, Any]


class ServiceMetric(ApiStruct, frozen=True, kw_only=True):
    """A quantity that the service counts or measures."""

    name: Annotated[MetricName, doc("Name of the metric, such as compute.datumapis.com/instances.")]
    display_name: Annotated[ShortText, doc("Name for people.")] = ""
    description: Annotated[Text, doc("What is counted, for people.")] = ""
    unit: Annotated[ShortText, doc("Unit of the metric.")] = "1"


class QuotaLimit(ApiStruct, frozen=True, kw_only=True):
    """Limit of a metric for each consumer."""

    name: Annotated[ShortText, Meta(min_length=1), doc("Name of the limit.")]
    display_name: Annotated[ShortText, doc("Name for people.")] = ""
    metric: Annotated[MetricName, doc("Limited metric. One of spec.metrics.")]
    consumer_type: Annotated[KindReference, doc("Kind of the consumers.")]
    unit: Annotated[ShortText, doc("Unit of the limit.")] = "1"
    default_limit: Annotated[Amount, doc("Limit of each consumer by default.")]
    max_limit: Annotated[Amount | None, doc("Highest limit that a consumer can get.")] = None


class MetricRule(ApiStruct, frozen=True, kw_only=True):
    """Amounts that an object of a kind uses."""

    selector: Annotated[KindReference, doc("Kind of the objects.")]
    metric_costs: Annotated[
        dict[str, Amount], doc("Amount for each metric. Each metric is one of spec.metrics.")
    ]


class ServiceQuota(ApiStruct, frozen=True, kw_only=True):
    """Quota limits of the service, and what objects use of them."""

    limits: Annotated[
        list[QuotaLimit], MAP_BY_NAME, Meta(max_length=100), doc("Limit of each metric.")
    ] = []
    metric_rules: Annotated[
        list[MetricRule], Meta(max_length=100), doc("Amounts that objects use.")
    ] = []


class ServiceLocations(ApiStruct, frozen=True, kw_only=True):
    """Locations in which the service can be used."""

    supported_classes: Annotated[list[LocationClass], SET, doc("Supported location classes.")] = []


class ServiceProvisioning(ApiStruct, frozen=True, kw_only=True):
    """Objects that a project gets with the service."""

    resources: Annotated[
        list[Manifest],
        Meta(max_length=100),
        doc("Objects that are created in each enabled project."),
    ] = []


class ServiceConfigurationSpec(ApiStruct, frozen=True, kw_only=True):
    service_ref: Annotated[LocalReference, doc("Name of the Service object.")]
    phase: Annotated[
        ServicePhase,
        doc(
            "Phase of the configuration. It can only move forward, one step at a "
            "time. A Draft has no effect."
        ),
    ] = "Draft"
    version: Annotated[ShortText, doc("Version of this configuration, for people.")] = ""
    metrics: Annotated[
        list[ServiceMetric], MAP_BY_NAME, Meta(max_length=100), doc("Metrics of the service.")
    ] = []
    quota: ServiceQuota = ServiceQuota()
    locations: ServiceLocations = ServiceLocations()
    provisioning: ServiceProvisioning = ServiceProvisioning()


class ServiceConfigurationStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class ServiceConfiguration(ApiObject, frozen=True, kw_only=True):
    """A ServiceConfiguration defines metrics, quota limits, locations and objects of a Service."""

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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Service", ".spec.serviceRef.name"),
        TableColumn("Phase", ".spec.phase"),
        TableColumn("Version", ".spec.version"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    ),
)


# --- ServiceConsumer
# It is stored in the project of the provider, one for each entitlement of a consumer project.


class Approval(ApiStruct, frozen=True, kw_only=True):
    """Decision of the provider."""

    decision: Annotated[Literal["Approved", "Denied"], doc("The decision.")]
    message: Annotated[Text, doc("Message for the person who requested the service.")] = ""


class ServiceConsumerSpec(ApiStruct, frozen=True, kw_only=True):
    service_ref: Annotated[LocalReference, doc("Name of the Service object.")]
    consumer_project_ref: Annotated[LocalReference, doc("Project that uses the service.")]
    approval: Annotated[
        Approval | None, doc("Decision of the provider. Unset until the provider has decided.")
    ] = None
    suspended: Annotated[bool, doc("Whether the project is suspended from the service.")] = False


class ServiceConsumerStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Annotated[
        Literal["PendingApproval", "Active", "Denied"] | None,
        doc(
            "Whether the project can use the service. Unset until a controller has "
            "processed the object."
        ),
    ] = None
    entitled_at: Annotated[
        Time | None, doc("Time when the phase first became Active (RFC 3339).")
    ] = None
    service_name: Annotated[ShortText, doc("Name of the service in all versions.")] = ""
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class ServiceConsumer(ApiObject, frozen=True, kw_only=True):
    """A ServiceConsumer represents a project that uses a Service, or has requested it. The provider
    of the service approves or suspends it here.
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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Service", ".spec.serviceRef.name"),
        TableColumn("Project", ".spec.consumerProjectRef.name"),
        TableColumn("Phase", ".status.phase"),
        TableColumn("Decision", ".spec.approval.decision"),
        TableColumn("Suspended", ".spec.suspended", "boolean", wide=True),
    ),
)


# --- ServiceEntitlement
# It is stored in the project. ``dependencyOf`` is the name of the entitlement that requires this
# one; the public documents do not define its form.


class ServiceEntitlementSpec(ApiStruct, frozen=True, kw_only=True):
    service_ref: Annotated[
        LocalReference,
        doc("Name of the Service object."),
        immutable("request the other service instead"),
    ]
    request_message: Annotated[Text, doc("Message for the person who approves the request.")] = ""


class ServiceEntitlementStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Annotated[
        Literal["PendingApproval", "Active", "Rejected"] | None,
        doc(
            "Whether the project can use the service. Unset until a controller has "
            "processed the object."
        ),
    ] = None
    origin: Annotated[
        Literal["Direct", "Dependency"] | None,
        doc("Direct if the project requested the service. Dependency if another service needs it."),
    ] = None
    dependency_of: Annotated[
        ShortText, doc("Name of the entitlement for which this one was created.")
    ] = ""
    entitled_at: Annotated[
        Time | None, doc("Time when the phase first became Active (RFC 3339). It is never cleared.")
    ] = None
    service_name: Annotated[ShortText, doc("Name of the service in all versions.")] = ""
    provisioned_resources: Annotated[
        list[TypedObjectReference], doc("Objects that were created in the project for the service.")
    ] = []
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class ServiceEntitlement(ApiObject, frozen=True, kw_only=True):
    """A ServiceEntitlement requests that a project can use a Service, and shows whether it can."""

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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Service", ".spec.serviceRef.name"),
        TableColumn("Phase", ".status.phase"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        TableColumn("Origin", ".status.origin", wide=True),
    ),
)


# --- Phases, conditions, reasons and names of consumers and entitlements


ACTIVE = "Active"
PENDING_APPROVAL = "PendingApproval"
REJECTED = "Rejected"  # an entitlement
DENIED = "Denied"  # a consumer
GATED = "GatedByProvider"
# Condition types.
READY, SUSPENDED, PROVISIONED, PUBLISHED = "Ready", "Suspended", "Provisioned", "Published"


class AccessReason(StrEnum):
    """Reasons of the conditions of entitlements and consumers. Clients depend on them."""

    ACTIVE = "EntitlementActive"
    PENDING_APPROVAL = "EntitlementPendingApproval"
    REJECTED = "EntitlementRejected"
    NOT_PUBLISHED = "ServiceNotPublished"
    APPROVED = "ConsumerApproved"
    DENIED = "ConsumerDenied"
    SUSPENDED = "ProjectSuspended"
    NOT_SUSPENDED = "ProjectActive"


def consumer_name(service_name: str, project: str) -> str:
    """Return the name of the ServiceConsumer of a project."""
    return f"sc-{_digest(f'{service_name}/{project}')}"


def grant_name(service: str, project: str, limit: str) -> str:
    """Return the name of the ResourceGrant that an entitlement creates for a quota limit."""
    return f"rg-{_digest(f'{service}/{project}/{limit}')}"


def can_use_service(consumer: ServiceConsumer | None) -> bool:
    """Return True if the project can use the service now."""
    if consumer is None or consumer.is_terminating or consumer.spec.suspended:
        return False
    return consumer.status.phase == ACTIVE


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).digest()[:8].hex()
