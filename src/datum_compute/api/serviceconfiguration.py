"""ServiceConfiguration: what a Service needs from the platform: metrics, quota, locations, objects.

Cluster-scoped, kept in the platform. Quota refers to metrics that are declared beside it
(admission/service.py). Milo's ``charges`` and ``billing`` are not here: nothing here
charges anybody, and a field that is accepted and ignored would say otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    MAP_BY_NAME,
    SET,
    Amount,
    KindReference,
    LocalReference,
    LocationClass,
    ServicePhase,
    ShortText,
    Text,
    says,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields

MetricName = Annotated[str, Meta(min_length=1, max_length=253)]
Manifest = dict[str, Any]


class ServiceMetric(ApiStruct, frozen=True, kw_only=True):
    """Something that the service counts or measures."""

    name: Annotated[MetricName, says("Name, such as compute.datumapis.com/instances.")]
    display_name: Annotated[ShortText, says("Name for people.")] = ""
    description: Annotated[Text, says("What is counted.")] = ""
    unit: Annotated[ShortText, says("Unit of its amounts.")] = "1"


class QuotaLimit(ApiStruct, frozen=True, kw_only=True):
    """How much of a metric a consumer gets."""

    name: Annotated[ShortText, Meta(min_length=1), says("Name of the limit.")]
    display_name: Annotated[ShortText, says("Name for people.")] = ""
    metric: Annotated[MetricName, says("The metric that is limited; one of spec.metrics.")]
    consumer_type: Annotated[KindReference, says("The kind that the limit is for.")]
    unit: Annotated[ShortText, says("Unit of the limits.")] = "1"
    default_limit: Annotated[Amount, says("What every consumer gets.")]
    max_limit: Annotated[Amount | None, says("What a consumer can be given at most.")] = None


class MetricRule(ApiStruct, frozen=True, kw_only=True):
    """What an object of a kind costs."""

    selector: Annotated[KindReference, says("The kind of the objects.")]
    metric_costs: Annotated[dict[str, Amount], says("Amounts by metric; each one of spec.metrics.")]


class ServiceQuota(ApiStruct, frozen=True, kw_only=True):
    """Limits of the service, and what counts against them."""

    limits: Annotated[
        list[QuotaLimit], MAP_BY_NAME, Meta(max_length=100), says("How much consumers get.")
    ] = []
    metric_rules: Annotated[list[MetricRule], Meta(max_length=100), says("What objects cost.")] = []


class ServiceLocations(ApiStruct, frozen=True, kw_only=True):
    """Where the service can be used."""

    supported_classes: Annotated[
        list[LocationClass], SET, says("Classes of locations that the service runs in.")
    ] = []


class ServiceProvisioning(ApiStruct, frozen=True, kw_only=True):
    """What a project gets with the service."""

    resources: Annotated[
        list[Manifest], Meta(max_length=100), says("Objects that every entitled project gets.")
    ] = []


class ServiceConfigurationSpec(ApiStruct, frozen=True, kw_only=True):
    service_ref: Annotated[LocalReference, says("The service, by the name of its object.")]
    phase: Annotated[
        ServicePhase, says("How far it is; a Draft has no effect. One step forward at a time.")
    ] = "Draft"
    version: Annotated[ShortText, says("Version of this configuration, for people.")] = ""
    metrics: Annotated[
        list[ServiceMetric], MAP_BY_NAME, Meta(max_length=100), says("What is measured.")
    ] = []
    quota: ServiceQuota = ServiceQuota()
    locations: ServiceLocations = ServiceLocations()
    provisioning: ServiceProvisioning = ServiceProvisioning()


class ServiceConfigurationStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


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
