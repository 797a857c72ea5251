"""Leader election with a Lease: one process leads, and no process writes after its lease ended.

- Clocks are not compared. A candidate takes a lease over when the record has not changed for the
  whole lease duration by the candidate's own monotonic clock. Timestamps in the record are for
  people.
- The fence expires before the lease: its time starts when a renewal is sent, and is shorter by a
  margin for clock drift. So the fence of the old leader has expired before a new leader starts. If
  a process was suspended for longer than its lease, its fence has expired when it resumes.
- The fence blocks only requests that have not been sent. Requests in flight are harmless because
  each write contains a version or uid, and each create a deterministic name.
- The lease is released after the work has ended, so that the next leader does not have to wait.
- If the server rejects requests or does not respond, the candidate logs this immediately, then
  every REMINDER_INTERVAL_S, and when the server responds again. A candidate on standby logs
  nothing.

A process that loses its lease ends, because its caches cannot be trusted any more. Its supervisor
restarts it as a candidate.

    election = Election(client, config, clock=clock, unix_s=unix_s, random=random)
    fenced = FencedTransport(transport, election.fence.check)  # for the writes of the work
    await election.lead(work)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import Random

import msgspec

from datum_compute.api.core import LEASE, Lease, LeaseSpec
from datum_compute.api.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.meta.timestamps import micro_timestamp
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.runtime.cache import NotSynced

REMINDER_INTERVAL_S = 60.0
_RELEASE_TIMEOUT_S = 2.0
_READ_METHODS = ("GET", "HEAD")
_NEVER_S = float("-inf")

_log = logging.getLogger(__name__)


class NotLeading(NotSynced):
    """This process does not hold the lease, so it may not write."""


class LeadershipLost(Exception):
    """The lease could not be renewed in time, or another process holds it."""


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Parameters of an election. ``identity`` is unique to the process.

    ``margin_s`` is the largest drift between two clocks during ``duration_s``.
    """

    ref: Ref
    identity: str
    duration_s: int = 15
    renew_within_s: float = 10.0
    retry_s: float = 2.0
    margin_s: float = 2.0

    def __post_init__(self) -> None:
        assert self.identity, "the identity of a candidate is empty"
        fenced_s = self.duration_s - self.margin_s
        assert 0 < self.retry_s < self.renew_within_s <= fenced_s < self.duration_s


class Fence:
    """Allows writes while this process holds the lease, by its own clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until_s = _NEVER_S

    @property
    def is_up(self) -> bool:
        return self._clock() < self._until_s

    def check(self) -> None:
        """Raise if this process may not write."""
        if not self.is_up:
            raise NotLeading("the lease has expired: another process may lead now")

    def extend(self, until_s: float) -> None:
        self._until_s = max(self._until_s, until_s)

    def take_down(self) -> None:
        self._until_s = _NEVER_S


def check_all(fences: Iterable[Fence]) -> Callable[[], None]:
    """Return one check for a process that holds several leases."""
    all_fences = tuple(fences)

    def check() -> None:
        for fence in all_fences:
            fence.check()

    return check


@dataclass(frozen=True, slots=True)
class FencedTransport:
    """Calls ``check`` before each write.

    It must be below a transport that retries, so that every attempt is checked: retries may take
    longer than a lease.
    """

    inner: Transport
    check: Callable[[], None]

    async def send(self, request: Request) -> Response:
        if request.method not in _READ_METHODS:
            self.check()
        return await self.inner.send(request)


@dataclass(frozen=True, slots=True)
class _ObservedLease:
    """The Lease after its last change, and the local time when this process first read it."""

    lease: Lease
    first_read_s: float


class _ProblemLog:
    """Logs that the lease is unreachable, repeats this at intervals, and logs its return."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logged_s = _NEVER_S

    def report(self, ref: Ref, cause: str) -> None:
        if self._clock() - self._logged_s >= REMINDER_INTERVAL_S:
            self._logged_s = self._clock()
            _log.warning("lease %s can be neither taken nor renewed: %s; retrying", ref, cause)

    def resolve(self, ref: Ref) -> None:
        if self._logged_s != _NEVER_S:
            _log.info("lease %s is reachable again", ref)
        self._logged_s = _NEVER_S


class Election:
    """A candidate for a lease.

    ``clock`` must not stop while the machine is suspended. ``unix_s`` is only for the timestamps in
    the record.
    """

    def __init__(
        self,
        client: Client,
        config: LeaseConfig,
        *,
        clock: Callable[[], float],
        unix_s: Callable[[], float],
        random: Random,
    ) -> None:
        self.config = config
        self.fence = Fence(clock)
        self._client = client
        self._clock = clock
        self._unix_s = unix_s
        self._random = random
        self._observed: _ObservedLease | None = None
        self._problem_log = _ProblemLog(clock)

    @property
    def not_ready_reason(self) -> str:
        """Empty once the lease has been read.

        The cause of a failure is only in the log, because probes are public.
        """
        return (
            "" if self._observed is not None else f"lease {self.config.ref} has not been read yet"
        )

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, work, and release it. Raise LeadershipLost if the lease is lost.

        If cancelled, end the work first and then release the lease.
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
            working.result()  # an error of the work is more specific than LeadershipLost
        if lost:
            renewing.result()

    async def _acquire(self) -> float:
        _log.info("waiting for lease %s as %s", self.config.ref, self.config.identity)
        while True:
            sent_s = self._clock()
            if await self._take_or_renew():
                _log.info("leading with lease %s", self.config.ref)
                return sent_s
            # Jitter, so that candidates do not conflict repeatedly.
            await asyncio.sleep(self.config.retry_s * self._random.uniform(0.8, 1.2))

    async def _renew_until_lost(self, renewed_s: float) -> None:
        config = self.config
        while True:
            await asyncio.sleep(config.retry_s)
            sent_s = self._clock()
            if await self._take_or_renew():
                renewed_s = sent_s
            elif self._is_held_by_other() or self._clock() - renewed_s >= config.renew_within_s:
                raise LeadershipLost(
                    f"lease {config.ref} is lost; holder: {self._holder() or 'none'}"
                )

    async def _take_or_renew(self) -> bool:
        """Take or renew the lease once. Return False if that failed."""
        sent_s = self._clock()
        try:
            async with asyncio.timeout(self.config.renew_within_s / 2):
                taken = await self._take()
        except (ApiError, Unreachable, TimeoutError) as error:
            self._problem_log.report(self.config.ref, str(error) or "no response in time")
            return False
        self._problem_log.resolve(self.config.ref)
        if taken:
            self.fence.extend(sent_s + self.config.duration_s - self.config.margin_s)
        return taken

    async def _take(self) -> bool:
        try:
            present = await self._client.get(LEASE, self.config.ref)
        except NotFound:
            return await self._create()
        self._observe(present)
        if self._is_held_by_other() and not self._has_expired():
            return False
        return await self._write(present, self._next_spec(present.spec))

    async def _create(self) -> bool:
        namespace, name = self.config.ref.namespace, self.config.ref.name
        lease = Lease(
            metadata=ObjectMeta(namespace=namespace, name=name), spec=self._next_spec(LeaseSpec())
        )
        try:
            self._observe(await self._client.create(LEASE, lease))
        except AlreadyExists:
            return False
        return True

    async def _write(self, present: Lease, spec: LeaseSpec) -> bool:
        """Write the Lease. Return False if it has changed since it was read."""
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
            self._observe(await self._client.patch(LEASE, self.config.ref, patch))
        except (Conflict, NotFound):
            return False
        return True

    def _next_spec(self, present: LeaseSpec) -> LeaseSpec:
        now = micro_timestamp(self._unix_s())
        is_renewal = present.holder_identity == self.config.identity
        transitions = present.lease_transitions or 0
        return LeaseSpec(
            holder_identity=self.config.identity,
            lease_duration_seconds=self.config.duration_s,
            acquire_time=present.acquire_time if is_renewal else now,
            renew_time=now,
            lease_transitions=transitions
            if is_renewal or not present.acquire_time
            else transitions + 1,
        )

    def _observe(self, lease: Lease) -> None:
        version = lease.metadata.resource_version
        if self._observed is None or self._observed.lease.metadata.resource_version != version:
            self._observed = _ObservedLease(lease, self._clock())
        if self._is_held_by_other():
            self.fence.take_down()  # now, because the work takes time to end

    def _holder(self) -> str:
        return (
            (self._observed.lease.spec.holder_identity or "") if self._observed is not None else ""
        )

    def _is_held_by_other(self) -> bool:
        return self._holder() not in ("", self.config.identity)

    def _has_expired(self) -> bool:
        """Return True if the record has not changed for the duration that its holder wrote."""
        assert self._observed is not None
        duration_s = self._observed.lease.spec.lease_duration_seconds or self.config.duration_s
        return self._clock() - self._observed.first_read_s >= duration_s

    async def _release(self) -> None:
        """Release the lease. If that fails, it expires."""
        if self._observed is None or self._holder() != self.config.identity:
            return
        present = self._observed.lease
        released = msgspec.structs.replace(
            present.spec,
            holder_identity="",
            lease_duration_seconds=1,
            renew_time=micro_timestamp(self._unix_s()),
        )
        try:
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                await self._write(present, released)
        except (ApiError, Unreachable, TimeoutError) as error:
            _log.info("lease %s was not released (%s); it expires", self.config.ref, error)
        else:
            _log.info("lease %s was released", self.config.ref)


async def lead_all(elections: Iterable[Election], work: Callable[[], Awaitable[None]]) -> None:
    """Work while holding all leases.

    They are taken in the given order, which must be the same in all processes to avoid a deadlock.
    """
    first, *others = elections
    await first.lead((lambda: lead_all(others, work)) if others else work)
