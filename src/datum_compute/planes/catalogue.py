"""What the platform offers from the first moment, and what every project starts with.

Made when absent and kept when edited: an operator may raise a grant, take a location away from a
project by hand for as long as the process runs, or describe the service in other words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from datum_compute.api import labels
from datum_compute.api.codec import plain
from datum_compute.api.conditions import TRUE, Verdict, decided, is_true
from datum_compute.api.errors import AlreadyExists, NotFound
from datum_compute.api.fields import CITY_CODE_KEY, KindReference, LocalReference, LocationClass
from datum_compute.api.identity import normalized_city
from datum_compute.api.kinds import (
    GRANT,
    IP_ALLOCATION,
    LOCATION,
    LOCATION_BINDING,
    NETWORK,
    REGISTRATION,
    SERVICE,
    SERVICE_CONFIGURATION,
)
from datum_compute.api.location import Location, LocationSpec
from datum_compute.api.locationbinding import LocationBinding, LocationBindingSpec
from datum_compute.api.meta import ApiObject, KindInfo, ObjectMeta, ref_of
from datum_compute.api.network import Network, NetworkIpam, NetworkSpec
from datum_compute.api.plane import PlaneName, member_name
from datum_compute.api.quotametrics import (
    DEFAULT_LIMITS,
    INSTANCES,
    METRICS,
    PROJECT_KIND,
    QUOTA_NAMESPACE,
    RESOURCE_MANAGER,
    SERVICE_NAME,
    WORKLOADS,
    QuotaMetric,
    consumer_of,
)
from datum_compute.api.quotametrics import SERVICE as SERVICE_OBJECT
from datum_compute.api.resourcegrant import Allowance, GrantedBucket, ResourceGrant
from datum_compute.api.resourcegrant import ResourceGrantSpec as GrantSpec
from datum_compute.api.resourceregistration import (
    ResourceRegistration,
    ResourceRegistrationSpec,
)
from datum_compute.api.service import Service, ServiceOwner, ServiceSpec
from datum_compute.api.serviceconfiguration import (
    MetricRule,
    QuotaLimit,
    ServiceConfiguration,
    ServiceConfigurationSpec,
    ServiceLocations,
    ServiceMetric,
    ServiceQuota,
)
from datum_compute.client.client import Client

T = TypeVar("T", bound=ApiObject)

DEFAULT_GRANT = "compute-default"
_CLASS: LocationClass = "datum-managed"
_PROJECTS = KindReference(api_group=RESOURCE_MANAGER, kind=PROJECT_KIND)


Made = tuple[KindInfo[Any], ApiObject]


def objects_of_platform(cells: Iterable[PlaneName]) -> list[Made]:
    """What ``ensure_platform`` makes, for planes that somebody else brings up."""
    return [
        *((LOCATION, _location(city)) for city in cities_of(cells)),
        *((REGISTRATION, registration_of(metric)) for metric in METRICS),
        (SERVICE, _service()),
        (SERVICE_CONFIGURATION, _configuration()),
    ]


def objects_of_project(
    plane: PlaneName, cells: Iterable[PlaneName], limits: Mapping[str, int] = DEFAULT_LIMITS
) -> list[Made]:
    """What ``ensure_project`` makes, for planes that somebody else brings up."""
    return [
        (NETWORK, _default_network()),
        *((LOCATION_BINDING, _location_binding(city)) for city in cities_of(cells)),
        (GRANT, _grant(member_name(plane), limits)),
    ]


async def ensure_platform(platform: Client, cells: Iterable[PlaneName], now: str) -> None:
    """The places of the cells, the compute service, and what is counted for it."""
    for kind, obj in objects_of_platform(cells):
        made = await _ensured(platform, kind, obj)
        if kind is LOCATION:
            await _ensure_condition(platform, LOCATION, made, ("Ready", "ServedByCell"), now)


async def ensure_project(
    project: Client,
    plane: PlaneName,
    cells: Iterable[PlaneName],
    now: str,
    limits: Mapping[str, int] = DEFAULT_LIMITS,
) -> None:
    """A network, the right to use every place there is, and the quota that everybody gets."""
    about = ("Available", "AllGatesOpen")
    for kind, obj in objects_of_project(plane, cells, limits):
        made = await _ensured(project, kind, obj)
        if kind is LOCATION_BINDING:
            await _ensure_condition(project, LOCATION_BINDING, made, about, now)


async def release_project(platform: Client, plane: PlaneName) -> None:
    """Give back what the platform has on record for a project that is gone with all its objects."""
    project = {labels.HOLDER_PROJECT: member_name(plane)}
    for allocation in (await platform.list(IP_ALLOCATION, labels=project)).items:
        try:
            await platform.delete(IP_ALLOCATION, ref_of(allocation), uid=allocation.metadata.uid)
        except NotFound:
            continue


def cities_of(cells: Iterable[PlaneName]) -> Sequence[str]:
    """Each city once: two cells of one city are one place."""
    return sorted({normalized_city(member_name(cell)) for cell in cells})


def _location(city: str) -> Location:
    return Location(
        metadata=ObjectMeta(name=city.lower()),
        spec=LocationSpec(location_class_name=_CLASS, topology={CITY_CODE_KEY: city}),
    )


def _location_binding(city: str) -> LocationBinding:
    return LocationBinding(
        metadata=ObjectMeta(name=city.lower()),
        spec=LocationBindingSpec(
            location_ref=LocalReference(name=city.lower()),
            location_class_name=_CLASS,
            display_name=city,
            topology={CITY_CODE_KEY: city},
        ),
    )


def _default_network() -> Network:
    """IPv4, which every driver can give to its machines."""
    return Network(
        metadata=ObjectMeta(
            name="default", namespace="default", finalizers=[labels.NETWORK_FINALIZER]
        ),
        spec=NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4"]),
    )


def _grant(project: str, limits: Mapping[str, int]) -> ResourceGrant:
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
            consumer_type=_PROJECTS,
            type=metric.type,
            resource_type=metric.resource_type,
            description=metric.description,
            base_unit=metric.base_unit,
            display_unit=metric.display_unit,
            unit_conversion_factor=metric.factor,
            claiming_resources=[_PROJECTS],
        ),
    )


def _service() -> Service:
    return Service(
        metadata=ObjectMeta(name=SERVICE_OBJECT),
        spec=ServiceSpec(
            service_name=SERVICE_NAME,
            phase="Published",
            display_name="Compute",
            owner=ServiceOwner(producer_project_ref=LocalReference(name="datum-cloud")),
        ),
    )


def _configuration() -> ServiceConfiguration:
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
            quota=ServiceQuota(limits=[_limit(m) for m in METRICS], metric_rules=_rules()),
            locations=ServiceLocations(supported_classes=[_CLASS]),
        ),
    )


def _limit(metric: QuotaMetric) -> QuotaLimit:
    return QuotaLimit(
        name=metric.name,
        display_name=metric.title,
        metric=metric.resource_type,
        consumer_type=_PROJECTS,
        unit=metric.base_unit,
        default_limit=metric.default_limit,
    )


def _rules() -> list[MetricRule]:
    """What can be said of every object of a kind; processors and memory depend on its size."""
    counted = (("Workload", WORKLOADS), ("Instance", INSTANCES))
    return [
        MetricRule(
            selector=KindReference(api_group=SERVICE_NAME, kind=kind),
            metric_costs={metric.resource_type: 1},
        )
        for kind, metric in counted
    ]


async def _ensured(client: Client, kind: KindInfo[T], obj: T) -> T:
    try:
        return await client.create(kind, obj)
    except AlreadyExists:
        return await client.get(kind, ref_of(obj))


async def _ensure_condition(
    client: Client, kind: KindInfo[Any], obj: ApiObject, about: tuple[str, str], now: str
) -> None:
    """True from the start; whoever says otherwise later is not contradicted."""
    type_, reason = about
    conditions = getattr(obj, "status").conditions  # noqa: B009 - both kinds have one
    if conditions or is_true(conditions, type_):
        return
    verdict = Verdict(TRUE, reason, "A cell of this platform serves the city")
    condition = decided(type_, verdict, generation=obj.metadata.generation, now=now)
    status = {"conditions": [plain(condition)]}
    version = obj.metadata.resource_version
    await client.patch_status(kind, ref_of(obj), status, version=version)
