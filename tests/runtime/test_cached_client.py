"""A view is never older than what this process wrote, also when it does not know what it wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from datum_compute.api.configmap import ConfigMap
from datum_compute.api.errors import AlreadyExists, Invalid, Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.plane import HUB
from datum_compute.client.transport import is_watch
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import FORGET_S, QUIET_S, CachedClient
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.client.recorded import Recorded, listed, namespace, status, stream
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

A = Ref("", "a")


async def a_view(loop: VirtualLoop, planes: InProcessPlanes) -> CachedClient:
    view = CachedClient(HUB, planes.client(), Random(1))
    informer = view.declare(NAMESPACE)
    loop.create_task(informer.run())
    await informer.first_sync.wait()
    return view


class LaggingWatch:
    """Watches bring their news only when they are released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self, request: Request, response: Response) -> Response:
        if is_watch(request):
            await self.released.wait()
        return response


def is_behind(view: CachedClient) -> bool:
    try:
        view.read(NAMESPACE)
    except NotSynced:
        return True
    return False


async def create(view: CachedClient) -> None:
    await view.create(NAMESPACE, a_namespace("b"))


async def change(view: CachedClient) -> None:
    await view.patch(NAMESPACE, A, {"metadata": {"labels": {"x": "y"}}})


async def begin_to_delete(view: CachedClient) -> None:
    found = await view.client.get(NAMESPACE, A)  # which has a finalizer
    await view.delete(NAMESPACE, A, uid=found.metadata.uid)


@pytest.mark.parametrize("write", [create, change, begin_to_delete])
def test_what_was_written_is_waited_for(write: Callable[[CachedClient], Awaitable[None]]) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool]:
        client = await planes.create()
        await client.create(NAMESPACE, a_namespace("a"))
        planes.afterwards = lag = LaggingWatch()
        view = await a_view(loop, planes)
        await write(view)
        before = is_behind(view)
        lag.released.set()
        await asyncio.sleep(1)
        return before, is_behind(view)

    assert with_planes(test) == (True, False)


def test_an_object_that_we_deleted_is_not_shown_any_more() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool]:
        client = await planes.create()
        other = await client.create(NAMESPACE, a_namespace("a"))
        await client.finalize_namespace(other)
        planes.afterwards = lag = LaggingWatch()
        view = CachedClient(HUB, client, Random(1))
        informer = view.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        await view.delete(NAMESPACE, A, uid=other.metadata.uid)
        behind = is_behind(view)
        lag.released.set()
        await asyncio.sleep(1)
        return behind, view.read(NAMESPACE).get(A) is None

    assert with_planes(test) == (True, True)


def test_a_delete_that_the_plane_does_not_show_is_not_waited_for_for_ever() -> None:
    async def main(loop: VirtualLoop) -> tuple[bool, bool]:
        story = (
            listed(5, namespace("a", 3, uid="u")),
            stream(then="is silent"),
            status(404, "NotFound"),
        )
        view = CachedClient(HUB, Recorded(*story).client(), Random(1))
        informer = view.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        await asyncio.sleep(1)
        await view.delete(NAMESPACE, A, uid="u")
        before = is_behind(view)
        await asyncio.sleep(FORGET_S + 1)
        return before, is_behind(view)

    assert run_virtual(Random(1), main) == (True, False)


def test_a_create_whose_answer_is_lost_is_not_made_twice() -> None:
    """The write happened; the view must show it before anybody may look."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        await planes.create()
        view = await a_view(loop, planes)

        async def lose_answers(request: Request, response: Response) -> Response:
            if request.method == "POST":
                raise Unreachable("the answer was lost")
            if is_watch(request):
                await asyncio.sleep(20)
            return response

        planes.afterwards = lose_answers
        with pytest.raises(Unreachable):
            await view.create(NAMESPACE, a_namespace("a"))
        doubtful = is_behind(view)
        await asyncio.sleep(2)
        planes.afterwards = None
        await asyncio.sleep(30)
        return doubtful, is_behind(view), view.read(NAMESPACE).get(A) is not None

    assert with_planes(test) == (True, False, True)


def test_a_create_that_never_arrived_does_not_block_the_view() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        await planes.create()
        view = await a_view(loop, planes)
        unreachable = True

        async def lose_requests(request: Request) -> Response | None:
            if unreachable and not is_watch(request):
                raise Unreachable("no route")
            return None

        planes.intercept = lose_requests
        with pytest.raises(Unreachable):
            await view.create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(20)
        still_doubtful = is_behind(view)  # the plane could not be asked
        unreachable = False
        await asyncio.sleep(40)
        return still_doubtful, is_behind(view), view.read(NAMESPACE).get(A) is None

    assert with_planes(test) == (True, False, True)


def test_a_doubt_does_not_outlive_a_bug_in_asking_about_it() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool]:
        await planes.create()
        view = await a_view(loop, planes)
        failures: dict[str, Exception] = {"POST": Unreachable("no route"), "GET": RuntimeError()}

        async def fail_once(request: Request) -> Response | None:
            if not is_watch(request) and (failure := failures.pop(request.method, None)):
                raise failure
            return None

        planes.intercept = fail_once
        with pytest.raises(Unreachable):
            await view.create(NAMESPACE, a_namespace("a"))
        doubtful = is_behind(view)
        await asyncio.sleep(3)
        return doubtful, is_behind(view)

    assert with_planes(test) == (True, False)


def test_a_doubt_about_a_quiet_kind_does_not_wait_for_a_bookmark() -> None:
    """The plane went on with other kinds, so the stream of this one says nothing for long. Seen
    when a plane died before it could let a claim go, and nothing happened to claims for 30 s."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        client = await planes.create()
        await client.create(NAMESPACE, a_namespace("home"))
        view = await a_view(loop, planes)

        async def lose_requests(request: Request) -> Response | None:
            if request.method == "POST":
                raise Unreachable("no route")
            return None

        planes.intercept = lose_requests
        with pytest.raises(Unreachable):
            await view.create(NAMESPACE, a_namespace("a"))
        planes.intercept = None
        await client.create(
            CONFIG_MAP, ConfigMap(metadata=ObjectMeta(name="other", namespace="home"))
        )
        doubtful = is_behind(view)
        await asyncio.sleep(QUIET_S / 2)
        patient = is_behind(view)
        await asyncio.sleep(QUIET_S)
        return doubtful, patient, is_behind(view)

    assert with_planes(test) == (True, True, False)


def test_a_refused_write_leaves_no_doubt() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        await planes.create()
        view = await a_view(loop, planes)
        with pytest.raises(Invalid):
            await view.create(NAMESPACE, a_namespace("Not A Name"))
        return is_behind(view)

    assert with_planes(test) is False


def test_what_exists_already_shows_that_the_cache_is_behind() -> None:
    """Such as by an attempt that was not answered: without it in view, what hangs on it would be
    taken for gone. Seen when a hub died while it made a Work."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        planes.afterwards = lag = LaggingWatch()
        await planes.create()
        view = await a_view(loop, planes)
        await planes.client().create(NAMESPACE, a_namespace("a"))
        before = is_behind(view)
        with pytest.raises(AlreadyExists):
            await view.create(NAMESPACE, a_namespace("a"))
        known = is_behind(view)
        lag.released.set()
        await asyncio.sleep(1)
        return before, known, view.read(NAMESPACE).get(A) is not None

    assert with_planes(test) == (False, True, True)


def test_a_live_read_sees_what_the_cache_does_not() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool, bool]:
        planes.afterwards = LaggingWatch()
        await planes.create()
        view = await a_view(loop, planes)
        absent = await view.get_uncached(NAMESPACE, A) is None
        await planes.client().create(NAMESPACE, a_namespace("a"))
        present = await view.get_uncached(NAMESPACE, A) is not None
        return absent, present, is_behind(view)

    assert with_planes(test) == (True, True, True)


def test_writes_of_an_earlier_life_of_the_plane_are_not_waited_for() -> None:
    async def main(loop: VirtualLoop) -> tuple[bool, bool]:
        older = [listed(7) for _ in range(4)]
        story = (listed(50), stream(lives_s=5), status(410, "Expired"), *older)
        view = CachedClient(HUB, Recorded(*story, stream(then="is silent")).client(), Random(1))
        informer = view.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        view.record_write(NAMESPACE, 60)
        before = is_behind(view)
        await asyncio.sleep(40)
        return before, is_behind(view)

    assert run_virtual(Random(1), main) == (True, False)


def test_a_kind_that_is_not_served_is_not_taken_for_empty() -> None:
    async def main(loop: VirtualLoop) -> tuple[bool, bool]:
        view = CachedClient(HUB, Recorded(status(404, "NotFound")).client(), Random(1))
        informer = view.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.answered.wait()
        with pytest.raises(NotSynced, match="not served"):
            view.read(NAMESPACE)
        return informer.served, informer.synced

    assert run_virtual(Random(1), main) == (False, False)


def test_no_write_passes_the_fence() -> None:
    class NotLeading(Exception):
        pass

    def fence() -> None:
        raise NotLeading

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        client = await planes.create()
        view = CachedClient(HUB, client, Random(1), fence=fence)
        with pytest.raises(NotLeading):
            await view.create(NAMESPACE, a_namespace("a"))
        return await view.get_uncached(NAMESPACE, A) is None

    assert with_planes(test)
