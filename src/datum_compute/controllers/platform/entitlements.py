"""Controller of ServiceEntitlements: the consumer on the platform, and the objects in the project.

The rules are in planning/platform/entitlements.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import (
    CONSUMER,
    DEPLOYMENT,
    ENTITLEMENT,
    GRANT,
    LOCATION,
    LOCATION_BINDING,
    SERVICE,
    SERVICE_CONFIGURATION,
)
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PLATFORM, member_name, project_plane
from datum_compute.api.quota import SERVICE_NAME
from datum_compute.api.services import ServiceConfiguration, ServiceConsumer, consumer_name
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.platform.entitlements import EntitlementInputs, plan_entitlement
from datum_compute.planning.platform.services import BY_SERVICE, DRAFT, index_service, is_published
from datum_compute.planning.rollout.suspension import deployments_still_running
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    for_,
    owns,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    client, platform = context.planes.require(key.plane), context.planes.require(PLATFORM)
    entitlement = client.read(ENTITLEMENT).get(key.ref)
    if entitlement is None:
        return Done()
    name = entitlement.spec.service_ref.name
    service = platform.read(SERVICE).get(Ref("", name))
    service_name = service.spec.service_name if service else entitlement.status.service_name
    consumer = Ref("", consumer_name(service_name, member_name(key.plane)))
    inputs = EntitlementInputs(
        plane=key.plane,
        entitlement=entitlement,
        service=service,
        configuration=_configuration(platform, name),
        consumer=platform.read(CONSUMER).get(consumer),
        locations=platform.read(LOCATION).all(),
        grants=client.read(GRANT).all(),
        bindings=client.read(LOCATION_BINDING).all(),
        entitlements=client.read(ENTITLEMENT).all(),
        is_running=service_name == SERVICE_NAME and _is_running(client),
        offered=frozenset(s.metadata.name for s in platform.read(SERVICE).all() if is_published(s)),
    )
    return await apply_plan(context.planes, plan_entitlement(inputs, context.now()))


def _is_running(project: CachedClient) -> bool:
    """Return True if an instance of the project may run, unless all its workloads are deleted."""
    return bool(deployments_still_running(project.read(DEPLOYMENT).all()))


def _configuration(platform: CachedClient, service: str) -> ServiceConfiguration | None:
    found = [
        configuration
        for configuration in platform.read(SERVICE_CONFIGURATION).list_by_index(BY_SERVICE, service)
        if configuration.spec.phase != DRAFT
    ]
    return min(found, key=lambda configuration: configuration.metadata.name, default=None)


def map_consumer(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    return _entitlement_keys([change.latest])


def map_service(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    return _entitlement_keys(
        client.read_unsynced(CONSUMER).list_by_index(BY_SERVICE, change.latest.metadata.name)
    )


def map_configuration(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    name = change.latest.spec.service_ref.name
    return _entitlement_keys(client.read_unsynced(CONSUMER).list_by_index(BY_SERVICE, name))


def map_location(client: CachedClient, _change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a location to all entitlements, because it is offered to every consumer."""
    return _entitlement_keys(client.read_unsynced(CONSUMER).all())


def _entitlement_keys(consumers: Iterable[ServiceConsumer]) -> Iterator[Key]:
    """Return the keys of the consumers' entitlements, which are named after their service."""
    for consumer in consumers:
        plane = project_plane(consumer.spec.consumer_project_ref.name)
        yield Key(plane, Ref("", consumer.spec.service_ref.name))


CONTROLLER = Controller(
    name="service-entitlement",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(ENTITLEMENT),
        owns(GRANT),
        owns(LOCATION_BINDING),
        owns(ENTITLEMENT),
        reads(DEPLOYMENT),
        watches(CONSUMER, map_consumer, on="platform"),
        watches(SERVICE, map_service, on="platform"),
        watches(SERVICE_CONFIGURATION, map_configuration, on="platform"),
        watches(LOCATION, map_location, on="platform"),
    ),
    indexes=(
        Index(CONSUMER, BY_SERVICE, index_service, on="platform"),
        Index(SERVICE_CONFIGURATION, BY_SERVICE, index_service, on="platform"),
    ),
    finalizers=(labels.ENTITLEMENT_FINALIZER,),
)
