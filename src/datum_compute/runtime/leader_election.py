"""One of several processes leads: it holds a Lease, and nobody writes past the time it holds it.

Rules it keeps:
- No clock is compared with another. A candidate takes a lease over only when its own clock has
  counted the whole duration since it last saw the record change; times in the record are for
  people.
- The fence ends before the lease does. It is counted from the moment a renewal was *sent*, and a
  margin is taken off for clocks that do not run alike, so that the old leader's fence is down
  before a new one can be up. A process that was paused past its lease finds its fence down when
  it wakes, before it has learned anything.
- A fence stops what has not been sent. What is on the wire already must be harmless by itself:
  every write carries a version or a uid, every create a name that does not change.
- The lease is let go only after the work has ended, so that the next leader need not wait.
- A server that refuses or does not answer is told of: at once, then every REMIND_S, and when it is
  over. Whoever waits for such a lease waits in vain, and must not look like one that stands by.

Whoever lost its lease ends: what it knew is not trusted any more. A process that wants to lead
again starts anew (``compute-manager`` exits; what supervises it starts it, and it waits).

    election = Election(client, terms, clock=clock, unix_s=unix_s, random=random)
    fenced = FencedTransport(transport, election.fence.check)  # what the work writes through
    await election.lead(work)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import Random

import msgspec

from datum_compute.api.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.lease import KIND as LEASE
from datum_compute.api.lease import Lease, LeaseSpec
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.timestamps import micro_timestamp
from datum_compute.client.client import Client
from datum_compute.client.transport import Transport
from datum_compute.runtime.cache import NotSynced

_READS = ("GET", "HEAD")
_RELEASE_S = 2.0
REMIND_S = 60.0
_NEVER = float("-inf")

_log = logging.getLogger(__name__)


class NotLeading(NotSynced):
    """Our lease has run out, or was never ours: nothing may be written."""


class LeadershipLost(Exception):
    """The lease could not be renewed in time, or somebody else holds it."""


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Which lease, who asks for it, and how long it holds.

    ``margin_s`` must cover by how much two clocks may differ over one duration.
    """

    ref: Ref
    identity: str
    duration_s: int = 15
    renew_within_s: float = 10.0
    every_s: float = 2.0
    margin_s: float = 2.0

    def __post_init__(self) -> None:
        assert self.identity, "a leader has a name of its own"
        fenced_s = self.duration_s - self.margin_s
        assert 0 < self.every_s < self.renew_within_s <= fenced_s < self.duration_s


class Fence:
    """Up while a lease is ours by our own clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until_s = _NEVER

    @property
    def is_up(self) -> bool:
        return self._clock() < self._until_s

    def check(self) -> None:
        """Before every write; raises when it is not ours to make."""
        if not self.is_up:
            raise NotLeading("the lease has run out: another process may lead now")

    def extend(self, until_s: float) -> None:
        self._until_s = max(self._until_s, until_s)

    def take_down(self) -> None:
        self._until_s = _NEVER


def check_all(fences: Iterable[Fence]) -> Callable[[], None]:
    """One check for a process that holds several leases."""
    held = tuple(fences)

    def check() -> None:
        for fence in held:
            fence.check()

    return check


@dataclass(frozen=True, slots=True)
class FencedTransport:
    """Checks before each write; put it under retries, which may take longer than a lease."""

    inner: Transport
    check: Callable[[], None]

    async def send(self, request: Request) -> Response:
        if request.method not in _READS:
            self.check()
        return await self.inner.send(request)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The record as it was when it last changed, and when that was by our clock."""

    lease: Lease
    at_s: float


class _Troubles:
    """What keeps a candidate from its lease; said when it begins, now and then, and at its end."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told_s = _NEVER

    def tell(self, ref: Ref, why: str) -> None:
        if self._clock() - self._told_s >= REMIND_S:
            self._told_s = self._clock()
            _log.warning("lease %s can be neither taken nor renewed: %s; trying again", ref, why)

    def end(self, ref: Ref) -> None:
        if self._told_s != _NEVER:
            _log.info("lease %s can be had again", ref)
        self._told_s = _NEVER


class Election:
    """One candidate for one lease. ``clock`` counts on while the machine sleeps; ``unix_s`` is
    only written down, for people."""

    def __init__(
        self,
        client: Client,
        terms: LeaseConfig,
        *,
        clock: Callable[[], float],
        unix_s: Callable[[], float],
        random: Random,
    ) -> None:
        self.terms = terms
        self.fence = Fence(clock)
        self._client = client
        self._clock = clock
        self._unix_s = unix_s
        self._random = random
        self._seen: _Seen | None = None
        self._troubles = _Troubles(clock)

    @property
    def not_ready_reason(self) -> str:
        """Empty once this candidate knows the lease. Why it does not is for the log: probes are
        answered to everybody."""
        return "" if self._seen is not None else f"lease {self.terms.ref} has not been read yet"

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait to lead, work, and let go; raises LeadershipLost when the lease is lost.

        Cancelled, it ends the work first and then gives the lease back.
        """
        renewed_s = await self._acquire()
        try:
            await self._work_while_leading(work, renewed_s)
        finally:
            self.fence.take_down()
            await self._release()

    async def _work_while_leading(
        self, work: Callable[[], Awaitable[None]], renewed_s: float
    ) -> None:
        working = asyncio.ensure_future(work())
        renewing = asyncio.ensure_future(self._renew_until_lost(renewed_s))
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost = renewing.done()
            for task in (working, renewing):
                task.cancel()
            await asyncio.wait((working, renewing))
        if not working.cancelled():
            working.result()  # its failure says more than that we stopped
        if lost:
            renewing.result()

    async def _acquire(self) -> float:
        _log.info("waiting to lead by lease %s as %s", self.terms.ref, self.terms.identity)
        while True:
            sent_s = self._clock()
            if await self._attempt():
                _log.info("leading by lease %s", self.terms.ref)
                return sent_s
            # Not all at once, or candidates would conflict again and again.
            await asyncio.sleep(self.terms.every_s * self._random.uniform(0.8, 1.2))

    async def _renew_until_lost(self, renewed_s: float) -> None:
        terms = self.terms
        while True:
            await asyncio.sleep(terms.every_s)
            sent_s = self._clock()
            if await self._attempt():
                renewed_s = sent_s
            elif self._is_anothers() or self._clock() - renewed_s >= terms.renew_within_s:
                raise LeadershipLost(
                    f"lease {terms.ref} is lost; it is held by {self._holder() or 'nobody'}"
                )

    async def _attempt(self) -> bool:
        """Take the lease or renew it; whatever goes wrong, it is tried again soon."""
        sent_s = self._clock()
        try:
            async with asyncio.timeout(self.terms.renew_within_s / 2):
                taken = await self._take()
        except (ApiError, Unreachable, TimeoutError) as error:
            self._troubles.tell(self.terms.ref, str(error) or "no answer in time")
            return False
        self._troubles.end(self.terms.ref)
        if taken:
            self.fence.extend(sent_s + self.terms.duration_s - self.terms.margin_s)
        return taken

    async def _take(self) -> bool:
        try:
            present = await self._client.get(LEASE, self.terms.ref)
        except NotFound:
            return await self._create()
        self._observe(present)
        if self._is_anothers() and not self._has_run_out():
            return False
        return await self._write(present, self._next_spec(present.spec))

    async def _create(self) -> bool:
        namespace, name = self.terms.ref.namespace, self.terms.ref.name
        lease = Lease(
            metadata=ObjectMeta(namespace=namespace, name=name), spec=self._next_spec(LeaseSpec())
        )
        try:
            self._observe(await self._client.create(LEASE, lease))
        except AlreadyExists:
            return False
        return True

    async def _write(self, present: Lease, spec: LeaseSpec) -> bool:
        """Only over the very record that was read; the rest of it stays as others wrote it."""
        patch = {
            "metadata": {"resourceVersion": present.metadata.resource_version},
            "spec": {
                "holderIdentity": spec.holder_identity,
                "leaseDurationSeconds": spec.lease_duration_seconds,
                "acquireTime": spec.acquire_time,
                "renewTime": spec.renew_time,
                "leaseTransitions": spec.lease_transitions,
            },
        }
        try:
            self._observe(await self._client.patch(LEASE, self.terms.ref, patch))
        except (Conflict, NotFound):
            return False
        return True

    def _next_spec(self, present: LeaseSpec) -> LeaseSpec:
        now = micro_timestamp(self._unix_s())
        ours = present.holder_identity == self.terms.identity
        transitions = present.lease_transitions or 0
        return LeaseSpec(
            holder_identity=self.terms.identity,
            lease_duration_seconds=self.terms.duration_s,
            acquire_time=present.acquire_time if ours else now,
            renew_time=now,
            lease_transitions=transitions if ours or not present.acquire_time else transitions + 1,
        )

    def _observe(self, lease: Lease) -> None:
        version = lease.metadata.resource_version
        if self._seen is None or self._seen.lease.metadata.resource_version != version:
            self._seen = _Seen(lease, self._clock())
        if self._is_anothers():
            self.fence.take_down()  # at once: ending the work takes its time

    def _holder(self) -> str:
        return (self._seen.lease.spec.holder_identity or "") if self._seen is not None else ""

    def _is_anothers(self) -> bool:
        return self._holder() not in ("", self.terms.identity)

    def _has_run_out(self) -> bool:
        """As the holder promised, counted from when we saw its last sign of life."""
        assert self._seen is not None
        promised_s = self._seen.lease.spec.lease_duration_seconds or self.terms.duration_s
        return self._clock() - self._seen.at_s >= promised_s

    async def _release(self) -> None:
        """Best effort: a lease that nobody gives back runs out."""
        if self._seen is None or self._holder() != self.terms.identity:
            return
        present = self._seen.lease
        nobody = msgspec.structs.replace(
            present.spec,
            holder_identity="",
            lease_duration_seconds=1,
            renew_time=micro_timestamp(self._unix_s()),
        )
        try:
            async with asyncio.timeout(_RELEASE_S):
                await self._write(present, nobody)
        except (ApiError, Unreachable, TimeoutError) as error:
            _log.info("lease %s was not given back (%s); it runs out", self.terms.ref, error)
        else:
            _log.info("lease %s was given back", self.terms.ref)


async def lead_all(elections: Iterable[Election], work: Callable[[], Awaitable[None]]) -> None:
    """Work while holding all of the leases, taken in order: no two wait for each other if
    everybody sorts them alike."""
    first, *others = elections
    await first.lead((lambda: lead_all(others, work)) if others else work)
