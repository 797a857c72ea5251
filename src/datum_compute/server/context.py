"""Dependencies of the verbs: the store, the clock, ids and shared state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.discovery.builtin_definitions import BuiltinDefinitions
from datum_compute.server.verbs.event_encoder import EventEncoder
from datum_compute.server.verbs.long_requests import LongRequests
from datum_compute.store.store import Store

_Place = tuple[PlaneName, str]


class InFlightCreates:
    """Counts the creates in each namespace, and of each resource, that are not durable yet.

    A create checks that its namespace is active, and then waits for the disk. Meanwhile the
    namespace can become Terminating, look empty and be finalized. A namespace is therefore removed
    only if no create in it is in flight. The same applies to a custom kind and its definition.
    """

    def __init__(self) -> None:
        self._by_namespace: Counter[_Place] = Counter()
        self._by_resource: Counter[_Place] = Counter()

    def track(self, plane: PlaneName, namespace: str, resource: str) -> TrackedCreate:
        """Count a create while the returned context manager is entered."""
        return TrackedCreate(self, (plane, namespace), (plane, resource))

    def any_in_namespace(self, plane: PlaneName, namespace: str) -> bool:
        return self._by_namespace[(plane, namespace)] > 0

    def any_of_resource(self, plane: PlaneName, resource: str) -> bool:
        return self._by_resource[(plane, resource)] > 0

    def add(self, namespace: _Place, resource: _Place) -> None:
        self._by_namespace[namespace] += 1
        self._by_resource[resource] += 1

    def remove(self, namespace: _Place, resource: _Place) -> None:
        for counter, place in ((self._by_namespace, namespace), (self._by_resource, resource)):
            counter[place] -= 1
            if not counter[place]:
                del counter[place]


class TrackedCreate:
    """A context manager without a generator, because every create enters one."""

    __slots__ = ("_creates", "_namespace", "_resource")

    def __init__(self, creates: InFlightCreates, namespace: _Place, resource: _Place) -> None:
        self._creates = creates
        self._namespace = namespace
        self._resource = resource

    def __enter__(self) -> None:
        self._creates.add(self._namespace, self._resource)

    def __exit__(self, *_error: object) -> None:
        self._creates.remove(self._namespace, self._resource)


@dataclass(frozen=True, slots=True)
class ServerContext:
    store: Store
    clock: Callable[[], float]  # Unix seconds
    new_uid: Callable[[], str]
    new_suffix: Callable[[], str]  # five characters for generateName
    authorizer: Authorizer
    builtin_definitions: BuiltinDefinitions
    deprecation_grace_s: float  # of instance types
    long_requests: LongRequests = field(default_factory=LongRequests)
    in_flight_creates: InFlightCreates = field(default_factory=InFlightCreates)
    encoder: EventEncoder = field(default_factory=EventEncoder)
