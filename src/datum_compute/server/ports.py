"""What the server needs from outside, in one value that every verb gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.context import CreationsUnderWay
from datum_compute.server.discovery.builtin_definitions import OwnDefinitions
from datum_compute.server.verbs.event_encoder import EventEncoder
from datum_compute.server.verbs.long_requests import OpenStreams
from datum_compute.store.store import Store


@dataclass(frozen=True, slots=True)
class Ports:
    store: Store
    clock: Callable[[], float]  # unix seconds
    new_uid: Callable[[], str]
    new_suffix: Callable[[], str]  # five characters for generateName
    streams: OpenStreams
    creations: CreationsUnderWay
    own: OwnDefinitions
    authorizer: Authorizer
    deprecation_grace_s: float  # of instance types
    encoder: EventEncoder = field(default_factory=EventEncoder)
