"""What the platform offers from the first moment, and what every project starts with.

Made when absent and kept when edited: an operator may raise a grant, take a location away from a
project by hand for as long as the process runs, or describe the service in other words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from datum_compute.api import labels
from datum_compute.api.codec import plain
from datum_compute.api.conditions import TRUE, Verdict, decided, is_true
from datum_compute.api.errors import AlreadyExists, Conflict, NotFound
from datum_compute.api.fields import CITY_CODE_KEY, KindReference, LocalReference, LocationClass
from datum_compute.api.identity import encoded_cluster, normalized_city
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
from datum_compute.planes.planes import ExistenceCheck, assume_missing

T = TypeVar("T", bound=ApiObject)

DEFAULT_GRANT = "compute-default"
_CLASS: LocationClass = "datum-managed"
_PROJECTS = KindReference(api_group=RESOURCE_MANAGER, kind=PROJECT_KIND)


KindAndObject = tuple[KindInfo[Any], ApiObject]


def platform_objects(
    cells: Iterable[PlaneName], limits: Mapping[str, int] = DEFAULT_LIMITS
) -> list[KindAndObject]:
    """What ``ensure_platform`` makes, for planes that somebody else brings up."""
    return [
        *((LOCATION, _location(city)) for city in cities_of(cells)),
        *((REGISTRATION, registration_of(metric)) for metric in METRICS),
        (SERVICE, _service()),
        (SERVICE_CONFIGURATION, _configuration(limits)),
    ]


def project_objects(
    plane: PlaneName, cells: Iterable[PlaneName], limits: Mapping[str, int] = DEFAULT_LIMITS
) -> list[KindAndObject]:
    """What a project that may use compute has, for planes where nobody keeps entitlements."""
    return [
        (NETWORK, default_network()),
        *((LOCATION_BINDING, _location_binding(city)) for city in cities_of(cells)),
        (GRANT, _grant(member_name(plane), limits)),
    ]


async def ensure_platform(
    platform: Client,
    cells: Iterable[PlaneName],
    now: str,
    limits: Mapping[str, int],
    holds: ExistenceCheck = assume_missing,
) -> None:
    """The places of the cells, the compute service, and what is counted for it. ``limits`` are what
    the service gives to every project, by resource type."""
    for kind, obj in platform_objects(cells, limits):
        held = holds(kind, ref_of(obj))
        if kind is LOCATION:
            made = await _ensured(platform, kind, obj, held=held)
            await _ensure_condition(platform, LOCATION, made, ("Ready", "ServedByCell"), now)
        elif not held:
            await _ensured(platform, kind, obj)


async def ensure_project(
    project: Client,
    plane: PlaneName,
    cells: Iterable[PlaneName],
    now: str,
    limits: Mapping[str, int] = DEFAULT_LIMITS,
) -> None:
    """All of ``project_objects``."""
    about = ("Available", "AllGatesOpen")
    for kind, obj in project_objects(plane, cells, limits):
        made = await _ensured(project, kind, obj)
        if kind is LOCATION_BINDING:
            await _ensure_condition(project, LOCATION_BINDING, made, about, now)


async def ensure_network(project: Client, holds: ExistenceCheck = assume_missing) -> None:
    """The network that every project has."""
    network = default_network()
    if not holds(NETWORK, ref_of(network)):
        await _ensured(project, NETWORK, network)


async def release_project(platform: Client, hub: Client, plane: PlaneName) -> None:
    """Let go of what other planes hold for a project that is gone with all its objects.

    Its deployments leave the hub, and by that the cells. Homes and prefixes are only marked: their
    controllers remove them when nothing that may still run needs them."""
    project = member_name(plane)
    whose = {labels.UPSTREAM_CLUSTER: encoded_cluster(project)}
    await _mark_removed(platform, IP_ALLOCATION, {labels.HOLDER_PROJECT: project})
    for kind in (NAMESPACE, CLUSTER_POLICY):
        await _mark_removed(hub, kind, whose)
    for deployment in (await hub.list(DEPLOYMENT, labels=whose)).items:
        try:
            await hub.delete(DEPLOYMENT, ref_of(deployment), uid=deployment.metadata.uid)
        except NotFound:
            continue


async def _mark_removed(client: Client, kind: KindInfo[Any], whose: Mapping[str, str]) -> None:
    for obj in (await client.list(kind, labels=whose)).items:
        metadata = {"uid": obj.metadata.uid, "labels": {labels.PROJECT_REMOVED: "true"}}
        try:
            await client.patch(kind, ref_of(obj), {"metadata": metadata})
        except (NotFound, Conflict):
            continue  # it is gone, or another of its name came


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


def default_network() -> Network:
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


def _configuration(limits: Mapping[str, int]) -> ServiceConfiguration:
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
                limits=[_limit(m, limits.get(m.resource_type, m.default_limit)) for m in METRICS],
                metric_rules=_rules(),
            ),
            locations=ServiceLocations(supported_classes=[_CLASS]),
        ),
    )


def _limit(metric: QuotaMetric, default: int) -> QuotaLimit:
    return QuotaLimit(
        name=metric.name,
        display_name=metric.title,
        metric=metric.resource_type,
        consumer_type=_PROJECTS,
        unit=metric.base_unit,
        default_limit=default,
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


async def _ensured(client: Client, kind: KindInfo[T], obj: T, *, held: bool = False) -> T:
    if not held:
        with suppress(AlreadyExists):
            return await client.create(kind, obj)
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
