"""ServiceConsumer -> whether its project may use the service."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import CONSUMER, SERVICE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.consumers import plan_consumer
from datum_compute.planning.platform.services import BY_SERVICE, index_service
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    consumer = view.read(CONSUMER).get(key.ref)
    if consumer is None:
        return Done()
    service = view.read(SERVICE).get(Ref("", consumer.spec.service_ref.name))
    return await carry_out(context.planes, plan_consumer(consumer, service, context.now()))


def from_service(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    for consumer in view.cached(CONSUMER).indexed(BY_SERVICE, change.latest.metadata.name):
        yield Key(view.plane, ref_of(consumer))


CONTROLLER = Controller(
    name="service-consumer",
    role="platform",
    reconcile=reconcile,
    edges=(for_(CONSUMER), watches(SERVICE, from_service)),
    indexes=(Index(CONSUMER, BY_SERVICE, index_service),),
)
