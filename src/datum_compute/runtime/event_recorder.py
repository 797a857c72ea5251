"""Events: what happened to an object, for the people who look at it (``kubectl describe``).

Rules it keeps:
- Telling never waits and never fails a reconcile: a notice goes into a bounded buffer, and a task
  writes it when it can, a crowd of them with pauses. What cannot be written is counted and dropped;
  a process that ends takes with it what has gathered and is not yet written.
- The same notice about the same object is one Event that counts, also after a restart: its name
  follows from what it says. What is told of several members at once is one Event with their names.
- A notice is finished text, never a format; control characters are written out, and it is cut at
  1,024 bytes between two characters.
- One object gets so many events and no more until some time has passed.
- Whoever tells does so on a transition. Nothing here repeats by itself, so that a settled system
  writes nothing.
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

from prometheus_client import CollectorRegistry, Counter

from datum_compute.api.corefields import ObjectReference
from datum_compute.api.errors import AlreadyExists, ApiError, NotFound, Unreachable
from datum_compute.api.event import KIND as EVENT
from datum_compute.api.event import Event, EventSource
from datum_compute.api.meta import ApiObject, KindInfo, ObjectMeta, Ref
from datum_compute.api.plane import PlaneName
from datum_compute.api.timestamps import timestamp
from datum_compute.client.client import Client
from datum_compute.runtime.cache import NotSynced
from datum_compute.telemetry.plaintext import cut_bytes, printable

NOTE_BYTES_MAX = 1024
REASON_BYTES_MAX = 128
BUFFER_MAX = 1000
PAUSE_S = 0.1  # for what belongs together to gather,
AT_ONCE = 16  # and then so many are written together: they share a sync, and others get to run
MEMBERS_SHOWN = 10
BURST = 25  # events of one object at once,
REFILL_S = 300.0  # and one more each time this has passed;
MEMBERS_REFILL_S = 10.0  # what happens to its members is counted apart
WRITE_S = 10.0
MUTED_S = 30.0  # a plane that does not answer must not keep the events of others waiting
_OBJECTS_MAX = 4096
_NAME_MAX = 200
_SPARE_NAMESPACE = "default"

EventType = Literal["Normal", "Warning"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventRequest:
    """One thing that happened to one object. ``reason`` is one word for programs.

    ``note`` says all of it, or what was done to a ``member`` of the object, ``because`` of
    something: that is said of all its members at once.
    """

    plane: PlaneName
    object: ObjectReference
    type: EventType
    reason: str
    message: str
    member: str = ""
    cause: str = ""


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
class _Told:
    """How often, and of which members, each once."""

    times: int = 0
    members: dict[str, None] = field(default_factory=dict)

    def add(self, member: str) -> None:
        self.times += 1
        if member:
            self.members[member] = None


class EventRecorder:
    """Write events for users.

    ``client_of`` returns None for a plane that is not engaged: its notices are dropped. Timestamps
    come from ``unix_s``; limits and pauses are measured with ``elapsed_s``, which never goes back.
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
        self._waiting: OrderedDict[EventRequest, _Told] = OrderedDict()
        self._news = asyncio.Event()
        self._limits = _Limits()
        self._muted_until_s: dict[PlaneName, float] = {}
        counter = Counter(
            "datum_events",
            "Events for users, by what became of them: written, repeated, limited (too many of "
            "one object), dropped (buffer full, plane gone or silent) or failed.",
            ("outcome",),
            registry=registry or CollectorRegistry(),
        )
        outcomes = ("written", "repeated", "limited", "dropped", "failed")
        self._count = {outcome: counter.labels(outcome) for outcome in outcomes}

    def record(self, request: EventRequest) -> None:
        """Never waits, never raises."""
        if isinstance(request.message, str) and len(request.message) > NOTE_BYTES_MAX:
            # Whatever comes after is never read; nor need it be kept until the plane answers.
            note = cut_bytes(printable(request.message[: NOTE_BYTES_MAX + 1]), NOTE_BYTES_MAX)
            request = replace(request, message=note)
        shared = replace(request, member="") if request.member else request
        if shared in self._waiting:
            self._waiting[shared].add(request.member)
        elif len(self._waiting) >= BUFFER_MAX:
            self._count["dropped"].inc()
        elif not self._limits.allow(request, self._elapsed_s()):
            self._count["limited"].inc()
        else:
            self._waiting[shared] = _Told()
            self._waiting[shared].add(request.member)
            self._news.set()

    async def run(self) -> None:
        """Write what is told until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await asyncio.sleep(PAUSE_S)
                several = min(AT_ONCE, len(self._waiting))
                batch = [self._waiting.popitem(last=False) for _ in range(several)]
                await asyncio.gather(*(self._write_if_possible(*item) for item in batch))

    async def _write_if_possible(self, request: EventRequest, told: _Told) -> None:
        client = self._client_of(request.plane)
        if client is None or self._is_muted(request.plane):
            self._count["dropped"].inc()
            return
        try:
            async with asyncio.timeout(WRITE_S):
                outcome = await self._write(client, self._event(request, told))
        except (Unreachable, TimeoutError) as error:
            self._muted_until_s[request.plane] = self._elapsed_s() + MUTED_S
            outcome = self._failed(request, error)
        except (ApiError, NotSynced) as error:  # a namespace that goes, a lease that is lost
            outcome = self._failed(request, error)
        except Exception:
            _log.exception("an event on %s cannot be written", request.plane)
            outcome = "failed"
        self._count[outcome].inc()

    def _is_muted(self, plane: PlaneName) -> bool:
        until_s = self._muted_until_s.get(plane)
        return until_s is not None and self._elapsed_s() < until_s

    def _failed(self, request: EventRequest, error: Exception) -> str:
        _log.debug("event %s on %s was not written: %s", request.reason, request.plane, error)
        return "failed"

    async def _write(self, client: Client, event: Event) -> str:
        try:
            await client.create(EVENT, event)
        except AlreadyExists:
            return await self._repeat(client, event)
        return "written"

    async def _repeat(self, client: Client, event: Event) -> str:
        """It happened before: the event that says so counts on."""
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
        except NotFound:  # its time was over just now
            await client.create(EVENT, event)
        return "repeated"

    def _event(self, request: EventRequest, told: _Told) -> Event:
        now, about = timestamp(self._unix_s()), request.object
        return Event(
            metadata=ObjectMeta(
                name=_name(request, told, self._component),
                namespace=about.namespace or _SPARE_NAMESPACE,
            ),
            involved_object=about,
            type=request.type,
            reason=cut_bytes(printable(request.reason), REASON_BYTES_MAX),
            message=cut_bytes(printable(_text(request, told)), NOTE_BYTES_MAX),
            source=EventSource(component=self._component),
            reporting_component=self._component,
            first_timestamp=now,
            last_timestamp=now,
            count=1 if told.members else told.times,
        )


class _Limits:
    """A bucket of events for each object; those that were not asked for long are forgotten."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[tuple[PlaneName, str, bool], tuple[float, float]] = OrderedDict()

    def allow(self, request: EventRequest, now_s: float) -> bool:
        about = request.object
        whose = about.uid or f"{about.kind}/{about.namespace}/{about.name}"
        key = (request.plane, whose, bool(request.member))
        left, at_s = self._buckets.pop(key, (float(BURST), now_s))
        refill_s = MEMBERS_REFILL_S if request.member else REFILL_S
        left = min(float(BURST), left + (now_s - at_s) / refill_s)
        allowed = left >= 1.0
        self._buckets[key] = (left - 1.0 if allowed else left, now_s)
        if len(self._buckets) > _OBJECTS_MAX:
            self._buckets.popitem(last=False)
        return allowed


def _text(request: EventRequest, told: _Told) -> str:
    if not told.members:
        return request.message
    more = len(told.members) - MEMBERS_SHOWN
    names = ", ".join(islice(told.members, MEMBERS_SHOWN)) + (
        f" and {more} more" if more > 0 else ""
    )
    return f"{request.message} {names}" + (f": {request.cause}" if request.cause else "")


def _name(request: EventRequest, told: _Told, component: str) -> str:
    """In whichever order members are told of, it is the same event."""
    about = request.object
    happened = (request.type, request.reason, request.message, request.cause)
    said = (component, about.kind, about.uid, *happened, *sorted(told.members))
    digest = hashlib.sha256("\n".join(said).encode("utf-8", errors="replace")).hexdigest()[:16]
    return f"{about.name[:_NAME_MAX].rstrip('.-')}.{digest}"
