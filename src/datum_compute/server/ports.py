"""What the server needs from outside, in one value that every verb gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from datum_compute.server.authorization import Authorizer
from datum_compute.server.creations import CreationsUnderWay
from datum_compute.server.event_encoder import EventEncoder
from datum_compute.server.owndefinitions import OwnDefinitions
from datum_compute.server.streams import OpenStreams
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
