"""Catalogue: the initial objects of the platform and of each project.

Existing objects are not changed: an operator may raise a grant or edit the description of the
service. A location that an operator removed from a project returns with the next start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from datum_compute.api import labels
from datum_compute.api.conditions import TRUE, ConditionValue, make_condition
from datum_compute.api.errors import AlreadyExists, Conflict, NotFound
from datum_compute.api.kinds import (
    CLUSTER_POLICY,
    DEPLOYMENT,
    GRANT,
    IP_ALLOCATION,
    LOCATION,
    LOCATION_BINDING,
    NAMESPACE,
    NETWORK,
    REGISTRATION,
    SERVICE,
    SERVICE_CONFIGURATION,
)
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.fields import (
    CITY_CODE_KEY,
    KindReference,
    LocalReference,
    LocationClass,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, ref_of
from datum_compute.api.networking.location import (
    Location,
    LocationBinding,
    LocationBindingSpec,
    LocationSpec,
)
from datum_compute.api.networking.network import Network, NetworkIpam, NetworkSpec
from datum_compute.api.planes import PlaneName, encode_cluster_label, member_name, normalize_city
from datum_compute.api.quota import (
    DEFAULT_LIMITS,
    INSTANCES,
    METRICS,
    PROJECT_KIND,
    QUOTA_NAMESPACE,
    RESOURCE_MANAGER,
    SERVICE_NAME,
    WORKLOADS,
    Allowance,
    GrantedBucket,
    QuotaMetric,
    ResourceGrant,
    ResourceRegistration,
    ResourceRegistrationSpec,
    consumer_of,
)
from datum_compute.api.quota import SERVICE as SERVICE_OBJECT
from datum_compute.api.quota import ResourceGrantSpec as GrantSpec
from datum_compute.api.services import (
    MetricRule,
    QuotaLimit,
    Service,
    ServiceConfiguration,
    ServiceConfigurationSpec,
    ServiceLocations,
    ServiceMetric,
    ServiceOwner,
    ServiceQuota,
    ServiceSpec,
)
from datum_compute.client.client import Client
from datum_compute.planes.planes import ExistenceCheck, assume_missing

T = TypeVar("T", bound=ApiObject)

DEFAULT_GRANT = "compute-default"
_LOCATION_CLASS: LocationClass = "datum-managed"
_PROJECT_KIND_REFERENCE = KindReference(api_group=RESOURCE_MANAGER, kind=PROJECT_KIND)

KindAndObject = tuple[KindInfo[Any], ApiObject]


def platform_objects(
    cells: Iterable[PlaneName], limits: Mapping[str, int] = DEFAULT_LIMITS
) -> list[KindAndObject]:
    """Return the objects that ``ensure_platform`` creates.

    They are also written to manifests, for planes that another API server serves.
    """
    return [
        *((LOCATION, _build_location(city)) for city in cities_of(cells)),
        *((REGISTRATION, registration_of(metric)) for metric in METRICS),
        (SERVICE, _build_service()),
        (SERVICE_CONFIGURATION, _build_configuration(limits)),
    ]


def project_objects(
    plane: PlaneName, cells: Iterable[PlaneName], limits: Mapping[str, int] = DEFAULT_LIMITS
) -> list[KindAndObject]:
    """Return the objects of an entitled project.

    They are also written to manifests, for planes without entitlement controllers.
    """
    return [
        (NETWORK, default_network()),
        *((LOCATION_BINDING, _location_binding(city)) for city in cities_of(cells)),
        (GRANT, _build_grant(member_name(plane), limits)),
    ]


async def ensure_platform(
    platform: Client,
    cells: Iterable[PlaneName],
    now: str,
    limits: Mapping[str, int],
    exists: ExistenceCheck = assume_missing,
) -> None:
    """Create the locations of the cells, the compute service and its quota registrations.

    ``limits`` are the default quota of a project by resource type.
    """
    for kind, obj in platform_objects(cells, limits):
        is_present = exists(kind, ref_of(obj))
        if kind is LOCATION:
            location = await _ensure_object(platform, kind, obj, is_present=is_present)
            await _ensure_condition(platform, LOCATION, location, ("Ready", "ServedByCell"), now)
        elif not is_present:
            await _ensure_object(platform, kind, obj)


async def ensure_project(
    project: Client,
    plane: PlaneName,
    cells: Iterable[PlaneName],
    now: str,
    limits: Mapping[str, int] = DEFAULT_LIMITS,
) -> None:
    """Create the objects of an entitled project."""
    condition = ("Available", "AllGatesOpen")
    for kind, obj in project_objects(plane, cells, limits):
        created = await _ensure_object(project, kind, obj)
        if kind is LOCATION_BINDING:
            await _ensure_condition(project, LOCATION_BINDING, created, condition, now)


async def ensure_network(project: Client, exists: ExistenceCheck = assume_missing) -> None:
    """Create the default network of a project."""
    network = default_network()
    if not exists(NETWORK, ref_of(network)):
        await _ensure_object(project, NETWORK, network)


async def release_project(platform: Client, hub: Client, plane: PlaneName) -> None:
    """Remove what the platform and the hub hold for a deleted project.

    Deployments are deleted from the hub, which removes them from the cells. Namespaces, policies
    and prefixes are only marked: controllers delete them when no instance can still use them.
    """
    project = member_name(plane)
    of_project = {labels.UPSTREAM_CLUSTER: encode_cluster_label(project)}
    await _mark_removed(platform, IP_ALLOCATION, {labels.HOLDER_PROJECT: project})
    for kind in (NAMESPACE, CLUSTER_POLICY):
        await _mark_removed(hub, kind, of_project)
    for deployment in (await hub.list(DEPLOYMENT, labels=of_project)).items:
        with suppress(NotFound):
            await hub.delete(DEPLOYMENT, ref_of(deployment), uid=deployment.metadata.uid)


async def _mark_removed(client: Client, kind: KindInfo[Any], selector: Mapping[str, str]) -> None:
    for obj in (await client.list(kind, labels=selector)).items:
        metadata = {"uid": obj.metadata.uid, "labels": {labels.PROJECT_REMOVED: "true"}}
        with suppress(NotFound, Conflict):  # Conflict: the name has another uid now
            await client.patch(kind, ref_of(obj), {"metadata": metadata})


def cities_of(cells: Iterable[PlaneName]) -> Sequence[str]:
    """Return the cities of the cells. Two cells of one city are one location."""
    return sorted({normalize_city(member_name(cell)) for cell in cells})


def _build_location(city: str) -> Location:
    return Location(
        metadata=ObjectMeta(name=city.lower()),
        spec=LocationSpec(location_class_name=_LOCATION_CLASS, topology={CITY_CODE_KEY: city}),
    )


def _location_binding(city: str) -> LocationBinding:
    return LocationBinding(
        metadata=ObjectMeta(name=city.lower()),
        spec=LocationBindingSpec(
            location_ref=LocalReference(name=city.lower()),
            location_class_name=_LOCATION_CLASS,
            display_name=city,
            topology={CITY_CODE_KEY: city},
        ),
    )


def default_network() -> Network:
    """Return the default network. Every driver supports IPv4."""
    return Network(
        metadata=ObjectMeta(
            name="default", namespace="default", finalizers=[labels.NETWORK_FINALIZER]
        ),
        spec=NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4"]),
    )


def _build_grant(project: str, limits: Mapping[str, int]) -> ResourceGrant:
    return ResourceGrant(
        metadata=ObjectMeta(name=DEFAULT_GRANT, namespace=QUOTA_NAMESPACE),
        spec=GrantSpec(
            consumer_ref=consumer_of(project),
            allowances=[
                Allowance(resource_type=resource_type, buckets=[GrantedBucket(amount=limit)])
                for resource_type, limit in limits.items()
            ],
        ),
    )


def registration_of(metric: QuotaMetric) -> ResourceRegistration:
    return ResourceRegistration(
        metadata=ObjectMeta(name=f"{SERVICE_OBJECT}-{metric.name}"),
        spec=ResourceRegistrationSpec(
            consumer_type=_PROJECT_KIND_REFERENCE,
            type=metric.type,
            resource_type=metric.resource_type,
            description=metric.description,
            base_unit=metric.base_unit,
            display_unit=metric.display_unit,
            unit_conversion_factor=metric.factor,
            claiming_resources=[_PROJECT_KIND_REFERENCE],
        ),
    )


def _build_service() -> Service:
    return Service(
        metadata=ObjectMeta(name=SERVICE_OBJECT),
        spec=ServiceSpec(
            service_name=SERVICE_NAME,
            phase="Published",
            display_name="Compute",
            owner=ServiceOwner(producer_project_ref=LocalReference(name="datum-cloud")),
        ),
    )


def _build_configuration(limits: Mapping[str, int]) -> ServiceConfiguration:
    return ServiceConfiguration(
        metadata=ObjectMeta(name=SERVICE_OBJECT),
        spec=ServiceConfigurationSpec(
            service_ref=LocalReference(name=SERVICE_OBJECT),
            phase="Published",
            metrics=[
                ServiceMetric(
                    name=metric.resource_type,
                    display_name=metric.title,
                    description=metric.description,
                    unit=metric.base_unit,
                )
                for metric in METRICS
            ],
            quota=ServiceQuota(
                limits=[
                    _resource_limit(m, limits.get(m.resource_type, m.default_limit))
                    for m in METRICS
                ],
                metric_rules=_metric_rules(),
            ),
            locations=ServiceLocations(supported_classes=[_LOCATION_CLASS]),
        ),
    )


def _resource_limit(metric: QuotaMetric, default: int) -> QuotaLimit:
    return QuotaLimit(
        name=metric.name,
        display_name=metric.title,
        metric=metric.resource_type,
        consumer_type=_PROJECT_KIND_REFERENCE,
        unit=metric.base_unit,
        default_limit=default,
    )


def _metric_rules() -> list[MetricRule]:
    """Return the metrics with a fixed cost for each object. CPU and memory depend on the size."""
    metric_by_kind = (("Workload", WORKLOADS), ("Instance", INSTANCES))
    return [
        MetricRule(
            selector=KindReference(api_group=SERVICE_NAME, kind=kind),
            metric_costs={metric.resource_type: 1},
        )
        for kind, metric in metric_by_kind
    ]


async def _ensure_object(
    client: Client, kind: KindInfo[T], obj: T, *, is_present: bool = False
) -> T:
    """Create the object unless it exists. Return the stored object."""
    if not is_present:
        with suppress(AlreadyExists):
            return await client.create(kind, obj)
    return await client.get(kind, ref_of(obj))


async def _ensure_condition(
    client: Client, kind: KindInfo[Any], obj: ApiObject, condition: tuple[str, str], now: str
) -> None:
    """Set the condition to True if the object has no conditions yet."""
    type_, reason = condition
    conditions = getattr(obj, "status").conditions  # noqa: B009 - both kinds have one
    if conditions:
        return
    verdict = ConditionValue(TRUE, reason, "A cell of this platform serves the city")
    initial = make_condition(type_, verdict, generation=obj.metadata.generation, now=now)
    status = {"conditions": [to_json(initial)]}
    version = obj.metadata.resource_version
    await client.patch_status(kind, ref_of(obj), status, version=version)
