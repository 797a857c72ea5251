"""What a reconcile may do to others: nothing. What it may do to itself: wait, fail, give up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import pytest

from datum_compute.api.exchange import Request, Response
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB, cell_plane, path_prefix, project_plane
from datum_compute.client.transport import is_watch
from datum_compute.planes.bootstrap import ensure_plane
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Edge,
    Key,
    Outcome,
    Terminal,
    for_,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.manager import Manager
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

ONE, TWO = cell_plane("one"), cell_plane("two")

Reconcile = Callable[[Manager[Any], Key], Awaitable[Outcome]]


def manager_of(reconcile: Reconcile, *edges: Edge, **options: Any) -> Manager[Any]:
    options = {"name": "test", "role": "cell", **options}
    controller = Controller(reconcile=reconcile, edges=(for_(NAMESPACE), *edges), **options)
    return Manager([controller], lambda manager: manager, Random(1))


def test_a_plane_that_never_answers_slows_nobody_else_down() -> None:
    """Each reconcile makes a request; those to one plane hang for ever."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[float], int]:
        worked: list[float] = []
        hung = 0

        async def ask(manager: Manager[Any], key: Key) -> Outcome:
            nonlocal hung
            view = manager.cached_client(key.plane)
            assert view is not None
            hung += key.plane == ONE
            await view.get_uncached(NAMESPACE, key.ref)
            hung -= key.plane == ONE
            worked.append(loop.time())
            return Done()

        async def hang(request: Request) -> Response | None:
            if request.path.startswith(f"{path_prefix(ONE)}/api/v1/namespaces/"):
                await asyncio.Event().wait()
            return None

        for plane in (ONE, TWO):
            client = await planes.create(plane)
            for number in range(50):
                await client.create(NAMESPACE, a_namespace(f"n{number}"))
        planes.intercept = hang
        manager = manager_of(ask)
        for plane in (ONE, TWO):
            manager.engage(plane, planes.client(plane))
        running = loop.create_task(manager.run())
        await asyncio.sleep(30)
        running.cancel()
        return worked, hung

    worked, hung = with_planes(test)
    assert len(worked) == 50
    assert max(worked) < 1, "all of the other plane, at once"
    assert hung == 2, "and of the silent one no more than its share"


def test_a_reconcile_that_takes_too_long_is_ended_and_tried_again() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[float]:
        started: list[float] = []

        async def hang_once(_manager: Manager[Any], _key: Key) -> Outcome:
            started.append(loop.time())
            if len(started) == 1:
                await asyncio.Event().wait()
            return Done()

        manager = manager_of(hang_once, timeout_s=20.0)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(100)
        running.cancel()
        return started

    first, second = with_planes(test)
    assert 20 <= second - first < 21


def test_a_cancellation_inside_a_reconcile_is_its_own_affair() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> int:
        calls = 0

        async def await_the_cancelled(_manager: Manager[Any], _key: Key) -> Outcome:
            nonlocal calls
            calls += 1
            if calls == 1:
                future = loop.create_future()
                future.cancel()
                await future
            return Done()

        manager = manager_of(await_the_cancelled)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(10)
        running.cancel()
        return calls

    assert with_planes(test) == 2


def test_terminal_waits_for_the_object_itself_and_for_nothing_else() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[int]:
        calls = 0

        async def hopeless(_manager: Manager[Any], _key: Key) -> Outcome:
            nonlocal calls
            calls += 1
            return Terminal("no such thing")

        def to_a(view: CachedClient, _change: ObjectChange[Any]) -> list[Key]:
            return [Key(ONE, Ref("", "a"))]

        manager = manager_of(hopeless, watches(NAMESPACE, to_a, on="hub"))
        manager.engage(ONE, await planes.create(ONE))
        manager.engage(HUB, await planes.create(HUB))
        running = loop.create_task(manager.run())
        counts = []

        async def settled() -> None:
            await asyncio.sleep(60)
            counts.append(calls)

        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await settled()
        await planes.client(HUB).create(NAMESPACE, a_namespace("other"))
        await settled()
        labels = {"metadata": {"labels": {"x": "y"}}}
        await planes.client(ONE).patch(NAMESPACE, Ref("", "a"), labels)
        await settled()
        await planes.client(HUB).patch(NAMESPACE, Ref("", "other"), labels)
        await settled()
        running.cancel()
        return counts

    assert with_planes(test) == [1, 1, 2, 2]


@pytest.mark.parametrize("stubborn", [False, True])
def test_stop_ends_everything_in_less_than_five_seconds(stubborn: bool) -> None:
    """Short reconciles come to their end, long ones are given up, also those that resist."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], float, bool]:
        ended: list[str] = []

        async def work(_manager: Manager[Any], key: Key) -> Outcome:
            try:
                await asyncio.sleep(2 if key.ref.name == "short" else 100)
                ended.append(key.ref.name)
            except asyncio.CancelledError:
                if not stubborn:
                    raise
                await asyncio.sleep(100)
            return Done()

        manager = manager_of(work)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        for name in ("short", "long", "never-begun"):
            await planes.client(ONE).create(NAMESPACE, a_namespace(name))
        await asyncio.sleep(1)
        before_s = loop.time()
        await manager.stop()
        took_s = loop.time() - before_s
        await asyncio.sleep(0.1)
        return ended, took_s, running.done()

    ended, took_s, done = with_planes(test)
    assert ended == ["short"]
    assert took_s < 5
    assert done


def test_a_flood_beyond_the_bound_is_worked_off_from_the_cache() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[set[str], int, int]:
        seen: set[str] = set()
        most = 0

        async def work(manager: Manager[Any], key: Key) -> Outcome:
            nonlocal most
            most = max(most, len(manager._queues["test"]))
            await asyncio.sleep(0.01)
            seen.add(key.ref.name)
            return Done()

        client = await planes.create(ONE)
        for number in range(200):
            await client.create(NAMESPACE, a_namespace(f"n{number}"))
        manager = manager_of(work, lane_max=20)
        manager.engage(ONE, client)
        running = loop.create_task(manager.run())
        await asyncio.sleep(60)
        running.cancel()
        return seen, most, len(manager._queues["test"])

    seen, most, left = with_planes(test)
    assert len(seen) == 200
    assert most <= 20
    assert left == 0


def test_an_own_write_is_seen_by_the_next_reconcile() -> None:
    """A counter kept in labels: a stale read would count something twice."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[str, int]:
        reads: list[str] = []

        async def count_up(manager: Manager[Any], key: Key) -> Outcome:
            view = manager.cached_client(key.plane)
            assert view is not None
            found = view.read(NAMESPACE).get(key.ref)
            assert found is not None
            value = found.metadata.labels.get("count", "0")
            reads.append(value)
            if int(value) < 20:
                labels = {"count": str(int(value) + 1)}
                await view.patch(NAMESPACE, key.ref, {"metadata": {"labels": labels}})
            return Done()

        async def lag(request: Request, response: Response) -> Response:
            if is_watch(request):
                await asyncio.sleep(0.2)
            return response

        planes.afterwards = lag
        manager = manager_of(count_up)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(60)
        running.cancel()
        return reads[-1], len(set(reads))

    assert with_planes(test) == ("20", 21)


def test_a_plane_that_is_engaged_later_gets_what_others_hold_for_it() -> None:
    project = project_plane("late")

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        seen: list[str] = []

        async def note(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(str(key))
            return Done()

        def to_project(_view: CachedClient, change: ObjectChange[Any]) -> list[Key]:
            return [Key(project, Ref("", change.latest.metadata.name))]

        manager = manager_of(note, watches(NAMESPACE, to_project, on="hub"), role="project")
        manager.engage(HUB, await planes.create(HUB))
        running = loop.create_task(manager.run())
        await planes.client(HUB).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(5)
        assert seen == []
        manager.engage(project, await planes.create(project))
        await asyncio.sleep(5)
        running.cancel()
        return seen

    assert with_planes(test) == ["project/late:a"]


def test_a_kind_that_one_plane_does_not_serve_holds_up_nothing_else() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], list[str]]:
        seen: list[str] = []

        async def note(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(key.ref.name)
            return Done()

        served = False

        async def not_yet(request: Request) -> Response | None:
            missing = not served and request.path.endswith("/configmaps")
            return Response(404, b'{"reason":"NotFound","code":404}') if missing else None

        def own(view: CachedClient, change: ObjectChange[Any]) -> list[Key]:
            return [Key(view.plane, Ref("", f"map-{change.latest.metadata.name}"))]

        planes.intercept = not_yet
        client = await planes.create(ONE)
        await ensure_plane(client, ONE)
        manager = manager_of(note, watches(CONFIG_MAP, own))
        manager.engage(ONE, client)
        running = loop.create_task(manager.run())
        async with asyncio.timeout(5):
            await manager.wait_for_sync()
        await asyncio.sleep(5)
        before = sorted(seen)
        path = f"{path_prefix(ONE)}/api/v1/namespaces/default/configmaps"
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"late"}}'
        token = {"authorization": "Bearer token"}
        await planes.server.dispatch(Request("POST", path, {}, token, body))
        served = True
        await asyncio.sleep(30)
        running.cancel()
        return before, [name for name in seen if name.startswith("map-")]

    before, maps = with_planes(test)
    assert "default" in before
    assert maps == ["map-late"]


def test_a_plane_that_is_not_entitled_is_not_seen_by_those_who_ask_for_it() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []

        async def note(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append((key.plane, key.ref.name))
            return Done()

        manager = manager_of(note, entitled_only=True)
        assert manager.uses_entitlement
        for plane in (ONE, TWO):
            await (await planes.create(plane)).create(NAMESPACE, a_namespace("a"))
            manager.engage(plane, planes.client(plane), entitled=plane == TWO)
        running = loop.create_task(manager.run())
        await manager.wait_for_sync()
        await asyncio.sleep(5)
        assert (manager.is_entitled(ONE), manager.is_entitled(TWO)) == (False, True)
        manager.disengage(ONE)
        seen.append(("then", ""))
        manager.engage(ONE, planes.client(ONE))
        await asyncio.sleep(5)
        running.cancel()
        return [place for place in seen if place[1] in ("a", "")]

    assert with_planes(test) == [(TWO, "a"), ("then", ""), (ONE, "a")]


def test_nobody_waits_for_a_view_that_was_replaced() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        async def done(_manager: Manager[Any], _key: Key) -> Outcome:
            return Done()

        manager = manager_of(done)
        client = await planes.create(ONE)
        manager.engage(ONE, client)
        waiting = loop.create_task(manager.wait_for_sync([ONE]))
        await asyncio.sleep(1)
        manager.disengage(ONE)
        manager.engage(ONE, client)
        running = loop.create_task(manager.run())
        await asyncio.sleep(5)
        running.cancel()
        return waiting.done()

    assert with_planes(test)


def test_what_wakes_a_controller_from_outside_may_fail_and_begins_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        seen: list[str] = []
        begun = 0

        async def note(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(key.ref.name)
            return Done()

        async def outside(_manager: Manager[Any], view: CachedClient) -> AsyncIterator[Key]:
            nonlocal begun
            begun += 1
            if begun == 1:
                raise OSError("the driver is not there yet")
            yield Key(view.plane, Ref("", "machine"))

        manager = manager_of(note, external_sources=(outside,))
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await asyncio.sleep(10)
        running.cancel()
        return seen

    assert with_planes(test) == ["machine"]
    assert "the driver is not there yet" in caplog.text


def test_what_does_not_matter_wakes_nobody_but_what_is_new_and_gone_does() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[int]:
        calls, counts = 0, []

        async def counted(_manager: Manager[Any], _key: Key) -> Outcome:
            nonlocal calls
            calls += 1
            return Done()

        def relabelled(old: Namespace, new: Namespace) -> bool:
            return old.metadata.labels.get("x") != new.metadata.labels.get("x")

        edge = for_(
            NAMESPACE,
            update_filter=relabelled,
            create_filter=lambda new: new.metadata.name != "dull",
        )
        controller = Controller(name="test", role="cell", reconcile=counted, edges=(edge,))
        manager: Manager[Any] = Manager([controller], lambda manager: manager, Random(1))
        client = await planes.create(ONE)
        manager.engage(ONE, client)
        running = loop.create_task(manager.run())
        await client.create(NAMESPACE, a_namespace("dull"))
        await client.create(NAMESPACE, a_namespace("a"))
        for labels in ({"other": "1"}, {"x": "1"}):
            await asyncio.sleep(1)
            counts.append(calls)
            await client.patch(NAMESPACE, Ref("", "a"), {"metadata": {"labels": labels}})
        await asyncio.sleep(1)
        counts.append(calls)
        await client.delete(NAMESPACE, Ref("", "a"))
        await client.finalize_namespace(await client.get(NAMESPACE, Ref("", "a")))
        await asyncio.sleep(1)
        running.cancel()
        return [*counts, calls]

    assert with_planes(test) == [1, 1, 2, 3]
