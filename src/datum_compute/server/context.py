"""Dependencies of the verbs: the store, the clock, ids and shared state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.discovery.builtin_definitions import BuiltinDefinitions
from datum_compute.server.verbs.event_encoder import EventEncoder
from datum_compute.server.verbs.long_requests import LongRequests
from datum_compute.store.store import Store


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
    encoder: EventEncoder = field(default_factory=EventEncoder)
