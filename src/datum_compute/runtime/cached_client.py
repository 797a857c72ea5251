"""One plane as controllers see it: reads from caches, writes to the API, never older than itself.

Rules it keeps:
- Only declared kinds can be read, so that every read has a wake-up edge.
- A read from a cache that is incomplete, or has not seen this process's own writes, raises
  NotSynced: nobody acts on absence that is not proven. The worker waits a moment for the cache and
  calls the reconcile again. That holds for creates, changes and deletes.
- A write without an answer may have happened. Until the plane has been asked how far it is, and
  the cache has come that far, the kind counts as not synced; so nothing is created twice.
- ``get_uncached`` asks the plane itself, for the decision that must not rest on a cache.
- A plane that was disengaged is not written to any more. What was on its way then is a doubt of
  the view that follows, if the plane is engaged anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from datum_compute.api.codec import ApiStruct, JsonObject
from datum_compute.api.errors import AlreadyExists, ApiError, NotFound, Unreachable
from datum_compute.api.meta import ApiObject, KindInfo, Ref
from datum_compute.api.plane import PlaneName
from datum_compute.client.backoff import Backoff
from datum_compute.client.client import Client, Patch
from datum_compute.runtime.cache import Lister, NotSynced
from datum_compute.runtime.informer import Informer

T = TypeVar("T", bound=ApiObject)
R = TypeVar("R")

# Asking a plane how far it is, after a write without an answer.
ASK_S = 5.0
# How long the watch has to bring what the plane spoke of, before the kind is listed instead.
QUIET_S = 1.0
# By then a view that lives has heard from its plane, and what it still shows is there.
FORGET_S = 60.0

_BACKOFF = Backoff(first_s=0.05, most_s=10.0)

_log = logging.getLogger(__name__)


# The labels by which a process that sees only its part of a plane selects, by resource.
LabelScope = Mapping[str, Mapping[str, str]]


def noop() -> None:
    """The fence of a process that is alone."""


def _nobody() -> None:
    """The heir of a view whose plane is engaged once."""


class _Written(NamedTuple):
    """Own writes up to this version, in one life of the plane."""

    version: int
    life: int


class _AnswerMeta(ApiStruct, frozen=True):
    resource_version: str = ""


class _Answer(ApiStruct, frozen=True):
    """All that is read of what a plane answers to a write: the watch brings the object."""

    metadata: _AnswerMeta = _AnswerMeta()


class CachedClient:
    """``fence`` is called before every write and raises when this process may not write (any
    more). Of the kinds in ``scope``, by resource, only what bears the labels is seen. ``successor``
    finds the view of the same plane that is in use once this one is closed."""

    def __init__(
        self,
        plane: PlaneName,
        client: Client,
        random: Random,
        *,
        fence: Callable[[], None] = noop,
        scope: LabelScope | None = None,
        successor: Callable[[], CachedClient | None] = _nobody,
    ) -> None:
        self._scope = scope or {}
        self._successor = successor
        self.plane = plane
        self.client = client
        self._random = random
        self._fence = fence
        self._informers: dict[str, Informer[Any]] = {}
        self._briefs: dict[str, KindInfo[Any]] = {}  # the kinds, for answers to writes
        self._written: dict[str, _Written] = {}
        self._deleted: dict[str, dict[Ref, tuple[str, float]]] = {}
        self._doubts: dict[str, asyncio.Task[None] | None] = {}  # and who is asking
        self._closed = False
        self.identity = ""  # of the plane that answered last, for whoever probes it

    def declare(self, kind: KindInfo[T]) -> Informer[T]:
        """The shared informer of a kind, made on first use."""
        found = self._informers.get(kind.resource)
        if found is None:
            labels = self._scope.get(kind.resource)
            found = Informer(self.client, kind, self._random, labels, self.plane)
            self._informers[kind.resource] = found
        return found

    def informer(self, kind: KindInfo[T]) -> Informer[T] | None:
        """The informer of a kind, if somebody declared it."""
        return self._informers.get(kind.resource)

    def informers(self) -> list[Informer[Any]]:
        return list(self._informers.values())

    # --- reading

    def read(self, kind: KindInfo[T]) -> Lister[T]:
        """The cache, complete and not older than our own writes; else NotSynced."""
        informer = self._informer(kind)
        if not self._is_fresh(informer):

            async def wait(timeout_s: float) -> bool:
                return await informer.wait_for(lambda: self._is_fresh(informer), timeout_s)

            behind = "is behind" if informer.served else "is empty: they are not served"
            raise NotSynced(f"{self.plane}: the view of {kind.plural} {behind}", wait)
        return informer.strict

    def cached(self, kind: KindInfo[T]) -> Lister[T]:
        """The cache as it is, for mapping events only: it may be incomplete."""
        return self._informer(kind).lenient

    async def get_uncached(self, kind: KindInfo[T], ref: Ref) -> T | None:
        """The object as the plane holds it now; None if it is not there."""
        try:
            found = await self.client.get(kind, ref)
        except NotFound:
            return None
        self.record_write(kind, found.version)  # the cache must not fall behind what was seen
        return found

    # --- writing

    async def create(self, kind: KindInfo[T], obj: T) -> None:
        await self._write(kind, lambda brief: self.client.create(brief, obj))

    async def create_with_status(self, kind: KindInfo[T], obj: T) -> T:
        """The object as it is now: without its status where the plane keeps none from a create."""
        made = await self._certain(kind, partial(self.client.create, kind, obj, with_status=True))
        self.record_write(kind, int(made.metadata.resource_version or 0))
        return made

    async def patch(self, kind: KindInfo[Any], ref: Ref, patch: Patch) -> None:
        await self._write(kind, lambda brief: self.client.patch(brief, ref, patch))

    async def patch_status(
        self, kind: KindInfo[Any], ref: Ref, status: JsonObject, *, version: str
    ) -> None:
        """Merge into the status of the object as it was read at ``version``."""
        await self._write(
            kind, lambda brief: self.client.patch_status(brief, ref, status, version=version)
        )

    async def delete(self, kind: KindInfo[Any], ref: Ref, *, uid: str, version: str = "") -> None:
        """Delete this very object; one that is gone already is fine."""
        try:
            left = await self._certain(
                kind, lambda: self.client.delete(kind, ref, uid=uid, version=version)
            )
        except NotFound:
            left = ""
        if left:
            self.record_write(kind, int(left))
        elif kind.resource in self._informers:
            until_s = asyncio.get_running_loop().time() + FORGET_S
            self._deleted.setdefault(kind.resource, {})[ref] = (uid, until_s)

    def record_write(self, kind: KindInfo[Any], version: int) -> None:
        """A write made past this view: reads wait until the cache has seen it."""
        informer = self._informers.get(kind.resource)
        if informer is None:
            return
        known = self._written.get(kind.resource)
        if known is None or known.life != informer.epoch or known.version < version:
            self._written[kind.resource] = _Written(version, informer.epoch)

    def relist(self) -> None:
        """List every kind again: another plane answers in place of the one that was listed."""
        for informer in self._informers.values():
            informer.relist()

    def mark_stale(self, kind: KindInfo[Any]) -> None:
        """Reads wait until the cache has caught up: a live read has contradicted it."""
        self._doubt(kind)

    def close(self) -> None:
        """Nobody uses the view any more."""
        self._closed = True
        for asking in self._doubts.values():
            if asking is not None:
                asking.cancel()

    # --- own writes

    async def _write(
        self, kind: KindInfo[Any], write: Callable[[KindInfo[Any]], Awaitable[_Answer]]
    ) -> None:
        brief = self._briefs.get(kind.resource)
        if brief is None:
            brief = self._briefs[kind.resource] = replace(kind, model=_Answer)
        written = await self._certain(kind, partial(write, brief))
        self.record_write(kind, int(written.metadata.resource_version or 0))

    async def _certain(self, kind: KindInfo[Any], write: Callable[[], Awaitable[R]]) -> R:
        """The answer to a write; one that does not come leaves a doubt behind."""
        if self._closed:
            raise NotSynced(f"{self.plane} is not engaged any more: nothing is written there")
        self._fence()
        try:
            return await write()
        except ApiError as error:
            # What exists already and is not in the cache shows that the cache is behind.
            if error.code >= 500 or isinstance(error, AlreadyExists):
                self._doubt(kind)
            raise
        except BaseException:  # also when the reconcile ran out of time meanwhile
            self._doubt(kind)
            raise
        finally:
            self._pass_on(kind)

    def _doubt(self, kind: KindInfo[Any]) -> None:
        if kind.resource in self._informers:
            asking = self._doubts.get(kind.resource)
            if asking is not None:
                asking.cancel()  # its answer may be too old for this write
            self._doubts[kind.resource] = None

    def _pass_on(self, kind: KindInfo[Any]) -> None:
        """Who follows this view may have listed before a write of ours arrived."""
        successor = self._successor() if self._closed else None
        if successor is not None:
            successor._doubt(kind)

    async def _settle(self, kind: KindInfo[Any], informer: Informer[Any]) -> None:
        """Ask the plane how far it is, until it says so, and let the cache come that far."""
        version = await self._insist(kind, lambda: self._asked(kind, informer))
        self.record_write(kind, version)
        if not await informer.wait_for_version(version, QUIET_S):
            await self._insist(kind, informer.refresh)
        if self._doubts.get(kind.resource) is asyncio.current_task():
            del self._doubts[kind.resource]
        informer.notify_waiters()

    async def _asked(self, kind: KindInfo[Any], informer: Informer[Any]) -> int:
        async with asyncio.timeout(ASK_S):
            try:
                return int(await self.client.version(kind, labels=informer.labels))
            except NotFound:
                return 0

    async def _insist(self, kind: KindInfo[Any], ask: Callable[[], Awaitable[R]]) -> R:
        failures = 0
        while True:
            try:
                return await ask()
            except (ApiError, Unreachable, TimeoutError, ValueError) as error:
                _log.debug("%s: %s cannot be asked for: %s", self.plane, kind.plural, error)
            except Exception:  # a bug, which must not leave the kind in doubt for ever
                _log.exception("%s: %s cannot be asked for", self.plane, kind.plural)
            failures += 1
            await asyncio.sleep(_BACKOFF.delay_s(failures, self._random))

    def _is_fresh(self, informer: Informer[Any]) -> bool:
        resource = informer.kind.resource
        if resource in self._doubts:
            if self._doubts[resource] is None and not self._closed:
                settling = self._settle(informer.kind, informer)
                self._doubts[resource] = asyncio.get_running_loop().create_task(settling)
            return False
        if not informer.synced:
            return False
        written = self._written.get(resource)
        if written is not None:
            if informer.epoch == written.life and informer.version < written.version:
                return False
            del self._written[resource]
        pending = self._deleted.get(resource)
        return not pending or not self._still_shown(informer, pending)

    def _still_shown(self, informer: Informer[Any], pending: dict[Ref, tuple[str, float]]) -> bool:
        """Whether the cache shows something that we have seen go."""
        now_s = asyncio.get_running_loop().time()
        for ref, (uid, until_s) in list(pending.items()):
            entry = informer.cache.entry(ref)
            if entry is None or entry.uid != uid or now_s > until_s:
                del pending[ref]
        return bool(pending)

    def _informer(self, kind: KindInfo[T]) -> Informer[T]:
        found = self._informers.get(kind.resource)
        assert found is not None, (
            f"{kind.kind} is read on {self.plane} but no controller declares it"
        )
        return found
