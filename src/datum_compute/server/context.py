"""Dependencies of the verbs: the store, the clock, ids and shared state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

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
        return TrackedCreate(
            ((self._by_namespace, (plane, namespace)), (self._by_resource, (plane, resource)))
        )

    def any_in_namespace(self, plane: PlaneName, namespace: str) -> bool:
        return self._by_namespace[(plane, namespace)] > 0

    def any_of_resource(self, plane: PlaneName, resource: str) -> bool:
        return self._by_resource[(plane, resource)] > 0


class TrackedCreate(msgspec.Struct, frozen=True):
    """A context manager that counts a create. It is no generator, because every create enters one.

    ``counted`` has the counters and the place that each of them counts.
    """

    counted: tuple[tuple[Counter[_Place], _Place], ...]

    def __enter__(self) -> None:
        for counter, place in self.counted:
            counter[place] += 1

    def __exit__(self, *_error: object) -> None:
        for counter, place in self.counted:
            counter[place] -= 1
            if not counter[place]:
                del counter[place]


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
