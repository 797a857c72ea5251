"""CachedClient: reads contain every write of this process, including those without a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest

from datum_compute.api.core import ConfigMap
from datum_compute.api.errors import AlreadyExists, Invalid, Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB
from datum_compute.client.transport.interface import is_watch
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import DELETED_UID_KEPT_S, WATCH_CATCH_UP_S, CachedClient
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.client.replay_transport import (
    ReplayTransport,
    json_response,
    list_response,
    namespace,
    status,
    stream,
    unreachable,
)
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

A = Ref("", "a")


async def start_client(loop: VirtualLoop, planes: InProcessPlanes) -> CachedClient:
    cached = CachedClient(HUB, planes.client(), Random(1))
    informer = cached.declare(NAMESPACE)
    loop.create_task(informer.run())
    await informer.first_sync.wait()
    return cached


class LaggingWatch:
    """Delays every watch until ``released`` is set."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self, request: Request, response: Response) -> Response:
        if is_watch(request):
            await self.released.wait()
        return response


def is_stale(cached: CachedClient) -> bool:
    try:
        cached.read(NAMESPACE)
    except NotSynced:
        return True
    return False


async def create(cached: CachedClient) -> None:
    await cached.create(NAMESPACE, a_namespace("b"))


async def change(cached: CachedClient) -> None:
    await cached.patch(NAMESPACE, A, {"metadata": {"labels": {"x": "y"}}})


async def start_deletion(cached: CachedClient) -> None:
    found = await cached.uncached.get(NAMESPACE, A)  # it has a finalizer
    await cached.delete(NAMESPACE, A, uid=found.metadata.uid)


@pytest.mark.parametrize("write", [create, change, start_deletion])
def test_reads_wait_for_own_writes(write: Callable[[CachedClient], Awaitable[None]]) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool]:
        client = await planes.create()
        await client.create(NAMESPACE, a_namespace("a"))
        planes.afterwards = lag = LaggingWatch()
        cached = await start_client(loop, planes)
        await write(cached)
        before = is_stale(cached)
        lag.released.set()
        await asyncio.sleep(1)
        return before, is_stale(cached)

    assert with_planes(test) == (True, False)


@pytest.mark.parametrize("created", [json_response(namespace("b", 7), 201), unreachable()])
@pytest.mark.parametrize("listed", [9, 2])
def test_a_created_object_is_reported_as_deleted_if_a_later_list_does_not_contain_it(
    created: Response | Unreachable, listed: int
) -> None:
    """A list of a lower version shows that the plane was restored."""

    async def main(loop: VirtualLoop) -> list[tuple[str, bool]]:
        first, second = list_response(5), list_response(listed)
        silent = stream(then="is silent")
        transport = ReplayTransport(first, silent, created, second, second, second, silent)
        cached = CachedClient(HUB, transport.client(), Random(1))
        informer = cached.declare(NAMESPACE)
        changes: list[tuple[str, bool]] = []
        informer.subscribe(lambda c: changes.append((c.latest.metadata.name, c.new is not None)))
        loop.create_task(informer.run())
        await asyncio.sleep(1)
        with suppress(Unreachable):
            await create(cached)
        assert changes == []
        informer.relist()
        await asyncio.sleep(60)
        return changes

    assert run_virtual(Random(1), main) == [("b", False)]


def test_a_rejected_create_is_not_reported_as_deleted() -> None:
    async def main(loop: VirtualLoop) -> list[object]:
        silent, invalid = stream(then="is silent"), status(422, "Invalid")
        transport = ReplayTransport(list_response(5), silent, invalid, list_response(9), silent)
        cached = CachedClient(HUB, transport.client(), Random(1))
        informer = cached.declare(NAMESPACE)
        changes: list[object] = []
        informer.subscribe(changes.append)
        loop.create_task(informer.run())
        await asyncio.sleep(1)
        with pytest.raises(Invalid):
            await create(cached)
        informer.relist()
        await asyncio.sleep(60)
        return changes

    assert run_virtual(Random(1), main) == []


def test_reads_wait_until_a_deleted_object_has_left_the_cache() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool]:
        client = await planes.create()
        other = await client.create(NAMESPACE, a_namespace("a"))
        await client.finalize_namespace(other)
        planes.afterwards = lag = LaggingWatch()
        cached = CachedClient(HUB, client, Random(1))
        informer = cached.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        await cached.delete(NAMESPACE, A, uid=other.metadata.uid)
        before = is_stale(cached)
        lag.released.set()
        await asyncio.sleep(1)
        return before, cached.read(NAMESPACE).get(A) is None

    assert with_planes(test) == (True, True)


def test_a_delete_that_the_watch_never_reports_is_awaited_for_a_limited_time() -> None:
    async def main(loop: VirtualLoop) -> tuple[bool, bool]:
        responses = (
            list_response(5, namespace("a", 3, uid="u")),
            stream(then="is silent"),
            status(404, "NotFound"),
        )
        cached = CachedClient(HUB, ReplayTransport(*responses).client(), Random(1))
        informer = cached.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        await asyncio.sleep(1)
        await cached.delete(NAMESPACE, A, uid="u")
        before = is_stale(cached)
        await asyncio.sleep(DELETED_UID_KEPT_S + 1)
        return before, is_stale(cached)

    assert run_virtual(Random(1), main) == (True, False)


def test_a_create_without_a_response_is_not_repeated() -> None:
    """The write succeeded, so reads wait until the cache contains it."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        await planes.create()
        cached = await start_client(loop, planes)

        async def lose_responses(request: Request, response: Response) -> Response:
            if request.method == "POST":
                raise Unreachable("the response was lost")
            if is_watch(request):
                await asyncio.sleep(20)
            return response

        planes.afterwards = lose_responses
        with pytest.raises(Unreachable):
            await cached.create(NAMESPACE, a_namespace("a"))
        before = is_stale(cached)
        await asyncio.sleep(2)
        planes.afterwards = None
        await asyncio.sleep(30)
        return before, is_stale(cached), cached.read(NAMESPACE).get(A) is not None

    assert with_planes(test) == (True, False, True)


def test_a_create_that_never_arrived_does_not_block_reads() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        await planes.create()
        cached = await start_client(loop, planes)
        unreachable = True

        async def lose_requests(request: Request) -> Response | None:
            if unreachable and not is_watch(request):
                raise Unreachable("no route")
            return None

        planes.intercept = lose_requests
        with pytest.raises(Unreachable):
            await cached.create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(20)
        before = is_stale(cached)  # the version request fails too
        unreachable = False
        await asyncio.sleep(40)
        return before, is_stale(cached), cached.read(NAMESPACE).get(A) is None

    assert with_planes(test) == (True, False, True)


def test_an_error_in_the_version_request_does_not_block_reads() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool]:
        await planes.create()
        cached = await start_client(loop, planes)
        failures: dict[str, Exception] = {"POST": Unreachable("no route"), "GET": RuntimeError()}

        async def fail_once(request: Request) -> Response | None:
            if not is_watch(request) and (failure := failures.pop(request.method, None)):
                raise failure
            return None

        planes.intercept = fail_once
        with pytest.raises(Unreachable):
            await cached.create(NAMESPACE, a_namespace("a"))
        before = is_stale(cached)
        await asyncio.sleep(3)
        return before, is_stale(cached)

    assert with_planes(test) == (True, False)


def test_an_unknown_write_of_a_kind_without_events_does_not_wait_for_a_bookmark() -> None:
    """The version of the plane increases through other kinds, and the watch has no event.

    Regression: no claim was reconciled for 30 s after a plane failed during a release.
    """

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        client = await planes.create()
        await client.create(NAMESPACE, a_namespace("home"))
        cached = await start_client(loop, planes)

        async def lose_requests(request: Request) -> Response | None:
            if request.method == "POST":
                raise Unreachable("no route")
            return None

        planes.intercept = lose_requests
        with pytest.raises(Unreachable):
            await cached.create(NAMESPACE, a_namespace("a"))
        planes.intercept = None
        await client.create(
            CONFIG_MAP, ConfigMap(metadata=ObjectMeta(name="other", namespace="home"))
        )
        before = is_stale(cached)
        await asyncio.sleep(WATCH_CATCH_UP_S / 2)
        during = is_stale(cached)
        await asyncio.sleep(WATCH_CATCH_UP_S)
        return before, during, is_stale(cached)

    assert with_planes(test) == (True, True, False)


def test_reads_do_not_wait_after_a_rejected_write() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        await planes.create()
        cached = await start_client(loop, planes)
        with pytest.raises(Invalid):
            await cached.create(NAMESPACE, a_namespace("Not A Name"))
        return is_stale(cached)

    assert with_planes(test) is False


def test_already_exists_marks_the_cache_stale() -> None:
    """An earlier attempt without a response may have created the object.

    Regression: a hub stopped while it created a Work; resources of the Work were deleted.
    """

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        planes.afterwards = lag = LaggingWatch()
        await planes.create()
        cached = await start_client(loop, planes)
        await planes.client().create(NAMESPACE, a_namespace("a"))
        before = is_stale(cached)
        with pytest.raises(AlreadyExists):
            await cached.create(NAMESPACE, a_namespace("a"))
        after = is_stale(cached)
        lag.released.set()
        await asyncio.sleep(1)
        return before, after, cached.read(NAMESPACE).get(A) is not None

    assert with_planes(test) == (False, True, True)


def test_an_uncached_read_returns_what_the_cache_does_not_contain() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        planes.afterwards = LaggingWatch()
        await planes.create()
        cached = await start_client(loop, planes)
        absent = await cached.get_uncached(NAMESPACE, A) is None
        await planes.client().create(NAMESPACE, a_namespace("a"))
        present = await cached.get_uncached(NAMESPACE, A) is not None
        return absent, present, is_stale(cached)

    assert with_planes(test) == (True, True, True)


def test_writes_of_an_earlier_epoch_are_not_awaited() -> None:
    async def main(loop: VirtualLoop) -> tuple[bool, bool]:
        older = [list_response(7) for _ in range(4)]
        responses = (list_response(50), stream(lives_s=5), status(410, "Expired"), *older)
        cached = CachedClient(
            HUB, ReplayTransport(*responses, stream(then="is silent")).client(), Random(1)
        )
        informer = cached.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        cached.record_write(NAMESPACE, 60)
        before = is_stale(cached)
        await asyncio.sleep(40)
        return before, is_stale(cached)

    assert run_virtual(Random(1), main) == (True, False)


@pytest.mark.parametrize("is_written_after_detection", [False, True])
def test_a_write_to_a_plane_that_was_replaced_is_not_awaited(
    is_written_after_detection: bool,
) -> None:
    """The version of the new plane may be that of the cache, so the list does not reveal it."""

    async def main(loop: VirtualLoop) -> tuple[bool, bool]:
        silent = stream(then="is silent")
        cached = CachedClient(
            HUB,
            ReplayTransport(list_response(33), silent, list_response(33), silent).client(),
            Random(1),
        )
        informer = cached.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        if not is_written_after_detection:
            cached.record_write(NAMESPACE, 37)
        cached.relist()
        if is_written_after_detection:
            cached.record_write(NAMESPACE, 37)
        before = is_stale(cached)
        await asyncio.sleep(1)
        return before, is_stale(cached)

    assert run_virtual(Random(1), main) == (True, is_written_after_detection)


def test_reading_a_kind_that_is_not_served_raises() -> None:
    async def main(loop: VirtualLoop) -> tuple[bool, bool]:
        cached = CachedClient(HUB, ReplayTransport(status(404, "NotFound")).client(), Random(1))
        informer = cached.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.answered.wait()
        with pytest.raises(NotSynced, match="not served"):
            cached.read(NAMESPACE)
        return informer.is_served, informer.is_synced

    assert run_virtual(Random(1), main) == (False, False)


def test_the_fence_stops_writes_and_not_reads() -> None:
    class NotLeading(Exception):
        pass

    def fence() -> None:
        raise NotLeading

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        client = await planes.create()
        cached = CachedClient(HUB, client, Random(1), fence=fence)
        with pytest.raises(NotLeading):
            await cached.create(NAMESPACE, a_namespace("a"))
        return await cached.get_uncached(NAMESPACE, A) is None

    assert with_planes(test)
