"""Controllers of Services, their configurations, and their consumers.

A configuration registers the resources of its service; a consumer records whether its project may
use the service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import CONSUMER, REGISTRATION, SERVICE, SERVICE_CONFIGURATION
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.platform.services import (
    BY_SERVICE,
    index_service,
    plan_configuration,
    plan_consumer,
    plan_service,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    service = context.planes.require(key.plane).read(SERVICE).get(key.ref)
    if service is None:
        return Done()
    return await apply_plan(context.planes, plan_service(service, context.now()))


async def reconcile_configuration(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    configuration = client.read(SERVICE_CONFIGURATION).get(key.ref)
    if configuration is None:
        return Done()
    service = client.read(SERVICE).get(Ref("", configuration.spec.service_ref.name))
    registered = client.read(REGISTRATION).all()
    plan = plan_configuration(configuration, service, registered, context.now())
    return await apply_plan(context.planes, plan)


def map_service(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    name = change.latest.metadata.name
    for configuration in client.read_unsynced(SERVICE_CONFIGURATION).list_by_index(
        BY_SERVICE, name
    ):
        yield Key(client.plane, ref_of(configuration))


def map_registration(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted registration to all configurations, because one of them may recreate it."""
    if change.new is None:
        for configuration in client.read_unsynced(SERVICE_CONFIGURATION).all():
            yield Key(client.plane, ref_of(configuration))


SERVICES_CONTROLLER = Controller(
    name="service", role="platform", reconcile=reconcile, edges=(for_(SERVICE),), workers=1
)

CONFIGURATION_CONTROLLER = Controller(
    name="service-configuration",
    role="platform",
    reconcile=reconcile_configuration,
    edges=(
        for_(SERVICE_CONFIGURATION),
        watches(SERVICE, map_service),
        watches(REGISTRATION, map_registration),
    ),
    indexes=(Index(SERVICE_CONFIGURATION, BY_SERVICE, index_service),),
    workers=1,
)

SERVICE_CONTROLLERS = (SERVICES_CONTROLLER, CONFIGURATION_CONTROLLER)


# --- consumers


async def reconcile_consumer(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    consumer = client.read(CONSUMER).get(key.ref)
    if consumer is None:
        return Done()
    service = client.read(SERVICE).get(Ref("", consumer.spec.service_ref.name))
    return await apply_plan(context.planes, plan_consumer(consumer, service, context.now()))


def map_consumed_service(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    for consumer in client.read_unsynced(CONSUMER).list_by_index(
        BY_SERVICE, change.latest.metadata.name
    ):
        yield Key(client.plane, ref_of(consumer))


CONSUMER_CONTROLLER = Controller(
    name="service-consumer",
    role="platform",
    reconcile=reconcile_consumer,
    edges=(for_(CONSUMER), watches(SERVICE, map_consumed_service)),
    indexes=(Index(CONSUMER, BY_SERVICE, index_service),),
)
