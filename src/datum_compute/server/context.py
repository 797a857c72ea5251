"""How many objects are being created in a namespace, and of a kind, right now.

A create that found its namespace active may still be on its way to the disk when the namespace
turns Terminating, is found empty and is finalized. Counting those closes the gap: a namespace
goes only when nothing is in it and nothing is on its way into it. The same holds for a custom kind
and its definition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.discovery.builtin_definitions import BuiltinDefinitions
from datum_compute.server.verbs.event_encoder import EventEncoder
from datum_compute.server.verbs.long_requests import LongRequests
from datum_compute.store.store import Store

_Place = tuple[PlaneName, str]


class _Counted:
    """A context manager without a generator: every create enters one."""

    __slots__ = ("_add", "_places")

    def __init__(self, add: Callable[[_Place, int], None], places: tuple[_Place, _Place]) -> None:
        self._add = add
        self._places = places

    def __enter__(self) -> None:
        for place in self._places:
            self._add(place, 1)

    def __exit__(self, *_error: object) -> None:
        for place in self._places:
            self._add(place, -1)


class InFlightCreates:
    def __init__(self) -> None:
        self._counts: dict[_Place, int] = {}  # without places where there are none

    def counted(self, plane: PlaneName, namespace: str, resource: str) -> _Counted:
        """Counts while the block runs."""
        # No resource begins with a slash, so the two cannot be taken for each other.
        return _Counted(self._add, ((plane, f"/{namespace}"), (plane, resource)))

    def any_in_namespace(self, plane: PlaneName, namespace: str) -> bool:
        return (plane, f"/{namespace}") in self._counts

    def any_of(self, plane: PlaneName, resource: str) -> bool:
        return (plane, resource) in self._counts

    def _add(self, place: _Place, more: int) -> None:
        count = self._counts.get(place, 0) + more
        if count:
            self._counts[place] = count
        else:
            del self._counts[place]


# --- What the server needs from outside, in one value that every verb gets


@dataclass(frozen=True, slots=True)
class ServerContext:
    store: Store
    clock: Callable[[], float]  # unix seconds
    new_uid: Callable[[], str]
    new_suffix: Callable[[], str]  # five characters for generateName
    streams: LongRequests
    creations: InFlightCreates
    own: BuiltinDefinitions
    authorizer: Authorizer
    deprecation_grace_s: float  # of instance types
    encoder: EventEncoder = field(default_factory=EventEncoder)
