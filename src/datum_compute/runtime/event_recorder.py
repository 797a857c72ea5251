"""EventRecorder: writes Kubernetes Events for users (``kubectl describe``).

- ``record`` never waits and never raises. Requests go into a bounded buffer, and a task writes them
  in batches. Requests that cannot be written are counted and dropped. Those in the buffer are lost
  when the process ends.
- Equal requests about one object become one Event with a count, also across restarts: the name of
  the Event is a digest of its content. Requests about several members of one object that arrive
  together become one Event that lists the members.
- Messages are plain text, not formats. Control characters are escaped, and text is cut at a
  character boundary below 1,024 bytes.
- Each object has a budget of events that refills over time.
- Callers record transitions only, so a system whose state does not change writes no events.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from prometheus_client import CollectorRegistry

from datum_compute.api.errors import AlreadyExists, ApiError, NotFound, Unreachable
from datum_compute.api.events import EVENT, Event, EventSource
from datum_compute.api.meta.fields import ObjectReference
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, Ref
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import PlaneName
from datum_compute.client.client import Client
from datum_compute.runtime.cache import NotSynced
from datum_compute.telemetry.logs import cut_bytes, printable
from datum_compute.telemetry.metrics import Counter

MESSAGE_BYTES_MAX = 1024
REASON_BYTES_MAX = 128
MEMBERS_SHOWN_MAX = 10
BUFFER_MAX = 1000
# Time for related requests to arrive, and the number of Events that are then written concurrently.
BATCH_DELAY_S = 0.1
BATCH_SIZE = 16
WRITE_TIMEOUT_S = 10.0
# A plane that did not respond is skipped for this time, so that it does not delay other planes.
UNREACHABLE_PAUSE_S = 30.0
# Budget of one object: BURST events at once, then one in REFILL_S. Events about members of the
# object have a separate budget.
BURST = 25
REFILL_S = 300.0
MEMBERS_REFILL_S = 10.0
_BUDGETS_MAX = 4096
_OBJECT_NAME_MAX = 200
_NAMESPACE_OF_CLUSTER_SCOPED = "default"

EventType = Literal["Normal", "Warning"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventRequest:
    """One event about one object. ``reason`` is an identifier for programs.

    Without a ``member``, ``message`` is the whole text. If the event happened to a ``member`` of
    the object, requests that differ only in the member become one Event with the text
    ``<message> <members>: <cause>``.
    """

    plane: PlaneName
    object: ObjectReference
    type: EventType
    reason: str
    message: str
    member: str = ""
    cause: str = ""
    related: ObjectReference | None = None


def reference_to(kind: KindInfo[Any], obj: ApiObject) -> ObjectReference:
    metadata = obj.metadata
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
    )


@dataclass(slots=True)
class _Occurrences:
    """How often an event was requested, and for which members."""

    times: int = 0
    members: dict[str, None] = field(default_factory=dict)

    def add(self, member: str) -> None:
        self.times += 1
        if member:
            self.members[member] = None


class EventRecorder:
    """``client_of`` returns None for a plane that is not engaged: its requests are dropped.

    ``unix_s`` is the clock for timestamps, ``elapsed_s`` a monotonic clock for limits and pauses.
    """

    def __init__(
        self,
        client_of: Callable[[PlaneName], Client | None],
        *,
        component: str,
        unix_s: Callable[[], float],
        elapsed_s: Callable[[], float],
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._client_of = client_of
        self._component = component
        self._unix_s = unix_s
        self._elapsed_s = elapsed_s
        self._buffer: OrderedDict[EventRequest, _Occurrences] = OrderedDict()
        self._has_requests = asyncio.Event()
        self._budgets = _EventBudgets()
        self._paused_until_s: dict[PlaneName, float] = {}
        counter = Counter(
            "datum_events",
            "Events for users by outcome: written, repeated, limited (budget of the object is used "
            "up), dropped (buffer full, plane not engaged or unreachable) or failed.",
            ("outcome",),
            registry=registry,
        )
        outcomes = ("written", "repeated", "limited", "dropped", "failed")
        self._count = {outcome: counter.labels(outcome) for outcome in outcomes}

    def record(self, request: EventRequest) -> None:
        """Buffer a request. Never waits, never raises."""
        if isinstance(request.message, str) and len(request.message) > MESSAGE_BYTES_MAX:
            # Cut it here already, so that the buffer does not hold long messages.
            start = request.message[: MESSAGE_BYTES_MAX + 1]
            request = replace(request, message=cut_bytes(printable(start), MESSAGE_BYTES_MAX))
        merged = replace(request, member="") if request.member else request
        if merged in self._buffer:
            self._buffer[merged].add(request.member)
        elif len(self._buffer) >= BUFFER_MAX:
            self._count["dropped"].inc()
        elif not self._budgets.take(request, self._elapsed_s()):
            self._count["limited"].inc()
        else:
            self._buffer[merged] = _Occurrences()
            self._buffer[merged].add(request.member)
            self._has_requests.set()

    async def run(self) -> None:
        """Write buffered requests until cancelled."""
        while True:
            await self._has_requests.wait()
            self._has_requests.clear()
            while self._buffer:
                await asyncio.sleep(BATCH_DELAY_S)
                size = min(BATCH_SIZE, len(self._buffer))
                batch = [self._buffer.popitem(last=False) for _ in range(size)]
                await asyncio.gather(*(self._write_or_drop(*item) for item in batch))

    async def _write_or_drop(self, request: EventRequest, occurrences: _Occurrences) -> None:
        client = self._client_of(request.plane)
        if client is None or self._is_paused(request.plane):
            self._count["dropped"].inc()
            return
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                outcome = await self._write(client, self._build_event(request, occurrences))
        except (Unreachable, TimeoutError) as error:
            self._paused_until_s[request.plane] = self._elapsed_s() + UNREACHABLE_PAUSE_S
            outcome = self._log_failure(request, error)
        except (ApiError, NotSynced) as error:  # namespace terminating, lease lost
            outcome = self._log_failure(request, error)
        except Exception:
            _log.exception("event %s on %s cannot be written", request.reason, request.plane)
            outcome = "failed"
        self._count[outcome].inc()

    def _is_paused(self, plane: PlaneName) -> bool:
        until_s = self._paused_until_s.get(plane)
        return until_s is not None and self._elapsed_s() < until_s

    def _log_failure(self, request: EventRequest, error: Exception) -> str:
        _log.debug("event %s on %s was not written: %s", request.reason, request.plane, error)
        return "failed"

    async def _write(self, client: Client, event: Event) -> str:
        try:
            await client.create(EVENT, event)
        except AlreadyExists:
            return await self._increase_count(client, event)
        return "written"

    async def _increase_count(self, client: Client, event: Event) -> str:
        ref = Ref(event.metadata.namespace, event.metadata.name)
        try:
            present = await client.get(EVENT, ref)
            count = (present.count or 1) + (event.count or 1)
            patch = {
                "metadata": {"resourceVersion": present.metadata.resource_version},
                "count": count,
                "lastTimestamp": event.last_timestamp,
            }
            await client.patch(EVENT, ref, patch)
        except NotFound:  # it has just expired
            await client.create(EVENT, event)
        return "repeated"

    def _build_event(self, request: EventRequest, occurrences: _Occurrences) -> Event:
        now, obj = timestamp(self._unix_s()), request.object
        return Event(
            metadata=ObjectMeta(
                name=_event_name(request, occurrences, self._component),
                namespace=obj.namespace or _NAMESPACE_OF_CLUSTER_SCOPED,
            ),
            involved_object=obj,
            related=request.related,
            type=request.type,
            reason=cut_bytes(printable(request.reason), REASON_BYTES_MAX),
            message=cut_bytes(printable(_event_message(request, occurrences)), MESSAGE_BYTES_MAX),
            source=EventSource(component=self._component),
            reporting_component=self._component,
            first_timestamp=now,
            last_timestamp=now,
            count=1 if occurrences.members else occurrences.times,
        )


class _EventBudgets:
    """A token bucket for each object. The least recently used ones are discarded."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[tuple[PlaneName, str, bool], tuple[float, float]] = OrderedDict()

    def take(self, request: EventRequest, now_s: float) -> bool:
        """Return True if the budget of the object allows one more event."""
        obj = request.object
        object_id = obj.uid or f"{obj.kind}/{obj.namespace}/{obj.name}"
        key = (request.plane, object_id, bool(request.member))
        tokens, updated_s = self._buckets.pop(key, (float(BURST), now_s))
        refill_s = MEMBERS_REFILL_S if request.member else REFILL_S
        tokens = min(float(BURST), tokens + (now_s - updated_s) / refill_s)
        allowed = tokens >= 1.0
        self._buckets[key] = (tokens - 1.0 if allowed else tokens, now_s)
        if len(self._buckets) > _BUDGETS_MAX:
            self._buckets.popitem(last=False)
        return allowed


def _event_message(request: EventRequest, occurrences: _Occurrences) -> str:
    if not occurrences.members:
        return request.message
    more = len(occurrences.members) - MEMBERS_SHOWN_MAX
    names = ", ".join(islice(occurrences.members, MEMBERS_SHOWN_MAX)) + (
        f" and {more} more" if more > 0 else ""
    )
    return f"{request.message} {names}" + (f": {request.cause}" if request.cause else "")


def _event_name(request: EventRequest, occurrences: _Occurrences, component: str) -> str:
    """Return a name that depends on the content only, not on the order of the members."""
    obj = request.object
    related = request.related.uid if request.related else ""
    text = (request.type, request.reason, request.message, request.cause, related)
    content = (component, obj.kind, obj.uid, *text, *sorted(occurrences.members))
    digest = hashlib.sha256("\n".join(content).encode("utf-8", errors="replace")).hexdigest()[:16]
    return f"{obj.name[:_OBJECT_NAME_MAX].rstrip('.-')}.{digest}"
