"""A cache that follows its plane through everything a watch can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from random import Random

from datum_compute.api.errors import Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.namespace import Namespace
from datum_compute.client.watching import STALL_S
from datum_compute.runtime.informer import Change, Informer
from datum_compute.testing.virtual_loop import VirtualLoop
from tests.runtime.planes import Planes, a_namespace, with_planes


def names(informer: Informer[Namespace]) -> list[str]:
    return sorted(ref.name for ref in informer.cache.refs())


async def an_informer(loop: VirtualLoop, planes: Planes) -> Informer[Namespace]:
    informer = Informer(await planes.create(), NAMESPACE, Random(1))
    loop.create_task(informer.run())
    await informer.first_sync.wait()
    return informer


def test_it_follows_creates_changes_and_deletes() -> None:
    async def test(loop: VirtualLoop, planes: Planes) -> list[str]:
        informer = await an_informer(loop, planes)
        seen: list[str] = []

        def note(change: Change[Namespace]) -> None:
            seen.append(f"{'+' if change.old is None else ''}{'-' if change.new is None else ''}")

        informer.subscribe(note)
        client = planes.client()
        await client.create(NAMESPACE, a_namespace("a"))
        await client.patch(NAMESPACE, Ref("", "a"), {"metadata": {"labels": {"x": "y"}}})
        await asyncio.sleep(1)
        assert informer.cache.labelled("x", "y")
        return seen

    assert with_planes(test) == ["+", ""]


def test_it_lists_again_when_its_place_in_the_history_is_gone() -> None:
    async def test(loop: VirtualLoop, planes: Planes) -> tuple[list[str], int]:
        client = await planes.create()
        informer = Informer(client, NAMESPACE, Random(1))
        lists = 0

        async def end_watches_at_once(request: Request) -> Response | None:
            nonlocal lists
            lists += not request.query.get("watch") and request.method == "GET"
            if request.query.get("watch") and len(informer.cache) == 1:
                await asyncio.sleep(30)  # meanwhile the history moves on
            return None

        planes.intercept = end_watches_at_once
        await client.create(NAMESPACE, a_namespace("old"))
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        for number in range(60):  # the window of these planes is 20
            await planes.client().create(NAMESPACE, a_namespace(f"n{number}"))
        await asyncio.sleep(60)
        return names(informer), lists

    found, lists = with_planes(test)
    assert len(found) == 61
    assert lists == 2


def test_a_watch_that_goes_quiet_is_replaced() -> None:
    async def test(loop: VirtualLoop, planes: Planes) -> tuple[list[str], list[str]]:
        client = await planes.create()
        informer = Informer(client, NAMESPACE, Random(1))
        stalled = True

        async def silence() -> AsyncGenerator[bytes, None]:
            await asyncio.Event().wait()
            yield b""

        async def stall(request: Request) -> Response | None:
            if stalled and request.query.get("watch"):
                return Response(200, stream=silence())
            return None

        planes.intercept = stall
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        await client.create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(1)
        before = names(informer)
        stalled = False
        await asyncio.sleep(STALL_S + 1)
        return before, names(informer)

    assert with_planes(test) == ([], ["a"])


def test_an_unreachable_plane_is_tried_again() -> None:
    async def test(loop: VirtualLoop, planes: Planes) -> bool:
        informer = Informer(await planes.create(), NAMESPACE, Random(1))
        failures = 3

        async def fail_first(request: Request) -> Response | None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise Unreachable("not yet")
            return None

        planes.intercept = fail_first
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        return informer.synced

    assert with_planes(test)


def test_caught_up_waits_for_a_version_and_gives_up_in_time() -> None:
    async def test(loop: VirtualLoop, planes: Planes) -> tuple[bool, bool]:
        informer = await an_informer(loop, planes)
        created = await planes.client().create(NAMESPACE, a_namespace("a"))
        return (
            await informer.caught_up(created.version, 1),
            await informer.caught_up(created.version + 100, 1),
        )

    assert with_planes(test) == (True, False)
