"""Reconciles end to end: they wait, fail or hang without effect on other keys and planes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import pytest

from datum_compute.api.core import Namespace
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, cell_plane, path_prefix
from datum_compute.client.transport.interface import is_watch
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


def test_an_unresponsive_plane_does_not_slow_down_others() -> None:
    """Each reconcile sends a request. Requests to one plane never end."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[float], int]:
        worked: list[float] = []
        hung = 0

        async def request_object(manager: Manager[Any], key: Key) -> Outcome:
            nonlocal hung
            cached_client = manager.cached_client(key.plane)
            assert cached_client is not None
            hung += key.plane == ONE
            await cached_client.get_uncached(NAMESPACE, key.ref)
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
        manager = manager_of(request_object)
        for plane in (ONE, TWO):
            manager.engage(plane, planes.client(plane))
        running = loop.create_task(manager.run())
        await asyncio.sleep(30)
        running.cancel()
        return worked, hung

    worked, hung = with_planes(test)
    assert len(worked) == 50
    assert max(worked) < 1, "all keys of the other plane, at once"
    assert hung == 2, "no more than the lane concurrency of the plane that hangs"


def test_a_reconcile_beyond_its_time_limit_is_cancelled_and_retried() -> None:
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


def test_a_cancelled_future_inside_a_reconcile_leads_to_a_retry() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> int:
        calls = 0

        async def await_cancelled_future(_manager: Manager[Any], _key: Key) -> Outcome:
            nonlocal calls
            calls += 1
            if calls == 1:
                future = loop.create_future()
                future.cancel()
                await future
            return Done()

        manager = manager_of(await_cancelled_future)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(10)
        running.cancel()
        return calls

    assert with_planes(test) == 2


def test_after_terminal_only_a_change_of_the_object_leads_to_a_reconcile() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[int]:
        calls = 0

        async def fail_terminally(_manager: Manager[Any], _key: Key) -> Outcome:
            nonlocal calls
            calls += 1
            return Terminal("no such thing")

        def to_a(cached_client: CachedClient, _change: ObjectChange[Any]) -> list[Key]:
            return [Key(ONE, Ref("", "a"))]

        manager = manager_of(fail_terminally, watches(NAMESPACE, to_a, on="hub"))
        manager.engage(ONE, await planes.create(ONE))
        manager.engage(HUB, await planes.create(HUB))
        running = loop.create_task(manager.run())
        counts = []

        async def wait_and_count() -> None:
            await asyncio.sleep(60)
            counts.append(calls)

        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await wait_and_count()
        await planes.client(HUB).create(NAMESPACE, a_namespace("other"))
        await wait_and_count()
        labels = {"metadata": {"labels": {"x": "y"}}}
        await planes.client(ONE).patch(NAMESPACE, Ref("", "a"), labels)
        await wait_and_count()
        await planes.client(HUB).patch(NAMESPACE, Ref("", "other"), labels)
        await wait_and_count()
        running.cancel()
        return counts

    assert with_planes(test) == [1, 1, 2, 2]


@pytest.mark.parametrize("ignores_cancel", [False, True])
def test_stop_takes_less_than_five_seconds(ignores_cancel: bool) -> None:
    """Short reconciles finish. Long ones are cancelled, or abandoned if they ignore it."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], float, bool]:
        ended: list[str] = []

        async def work(_manager: Manager[Any], key: Key) -> Outcome:
            try:
                await asyncio.sleep(2 if key.ref.name == "short" else 100)
                ended.append(key.ref.name)
            except asyncio.CancelledError:
                if not ignores_cancel:
                    raise
                await asyncio.sleep(100)
            return Done()

        manager = manager_of(work)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        for name in ("short", "long", "never-started"):
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


def test_the_next_reconcile_reads_own_writes() -> None:
    """Counts in a label. A stale read would count a value twice."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[str, int]:
        reads: list[str] = []

        async def count_up(manager: Manager[Any], key: Key) -> Outcome:
            cached_client = manager.cached_client(key.plane)
            assert cached_client is not None
            found = cached_client.read(NAMESPACE).get(key.ref)
            assert found is not None
            value = found.metadata.labels.get("count", "0")
            reads.append(value)
            if int(value) < 20:
                labels = {"count": str(int(value) + 1)}
                await cached_client.patch(NAMESPACE, key.ref, {"metadata": {"labels": labels}})
            return Done()

        async def delay_watch(request: Request, response: Response) -> Response:
            if is_watch(request):
                await asyncio.sleep(0.2)
            return response

        planes.afterwards = delay_watch
        manager = manager_of(count_up)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(60)
        running.cancel()
        return reads[-1], len(set(reads))

    assert with_planes(test) == ("20", 21)


def test_a_kind_that_a_plane_does_not_serve_does_not_block_others() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], list[str]]:
        seen: list[str] = []

        async def record(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(key.ref.name)
            return Done()

        served = False

        async def hide_config_maps(request: Request) -> Response | None:
            missing = not served and request.path.endswith("/configmaps")
            return Response(404, b'{"reason":"NotFound","code":404}') if missing else None

        def to_own_key(cached_client: CachedClient, change: ObjectChange[Any]) -> list[Key]:
            return [Key(cached_client.plane, Ref("", f"map-{change.latest.metadata.name}"))]

        planes.intercept = hide_config_maps
        client = await planes.create(ONE)
        await ensure_plane(client, ONE)
        manager = manager_of(record, watches(CONFIG_MAP, to_own_key))
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


def test_entitled_only_controllers_ignore_planes_that_are_not_entitled() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []

        async def record(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append((key.plane, key.ref.name))
            return Done()

        manager = manager_of(record, entitled_only=True)
        assert manager.uses_entitlement
        for plane in (ONE, TWO):
            await (await planes.create(plane)).create(NAMESPACE, a_namespace("a"))
            manager.engage(plane, planes.client(plane), entitled=plane == TWO)
        running = loop.create_task(manager.run())
        await manager.wait_for_sync()
        await asyncio.sleep(5)
        assert (manager.is_entitled(ONE), manager.is_entitled(TWO)) == (False, True)
        manager.disengage(ONE)
        seen.append(("engaged", ""))
        manager.engage(ONE, planes.client(ONE))
        await asyncio.sleep(5)
        running.cancel()
        return [entry for entry in seen if entry[1] in ("a", "")]

    assert with_planes(test) == [(TWO, "a"), ("engaged", ""), (ONE, "a")]


def test_wait_for_sync_follows_a_plane_that_is_engaged_again() -> None:
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


def test_an_external_source_that_raises_is_restarted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        seen: list[str] = []
        starts = 0

        async def record(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(key.ref.name)
            return Done()

        async def source(_manager: Manager[Any], cached_client: CachedClient) -> AsyncIterator[Key]:
            nonlocal starts
            starts += 1
            if starts == 1:
                raise OSError("driver not ready")
            yield Key(cached_client.plane, Ref("", "machine"))

        manager = manager_of(record, external_sources=(source,))
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await asyncio.sleep(10)
        running.cancel()
        return seen

    assert with_planes(test) == ["machine"]
    assert "driver not ready" in caplog.text


def test_filters_skip_updates_and_creations_and_never_deletions() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[int]:
        calls, counts = 0, []

        async def count(_manager: Manager[Any], _key: Key) -> Outcome:
            nonlocal calls
            calls += 1
            return Done()

        def label_changed(old: Namespace, new: Namespace) -> bool:
            return old.metadata.labels.get("x") != new.metadata.labels.get("x")

        edge = for_(
            NAMESPACE,
            update_filter=label_changed,
            create_filter=lambda new: new.metadata.name != "filtered",
        )
        controller = Controller(name="test", role="cell", reconcile=count, edges=(edge,))
        manager: Manager[Any] = Manager([controller], lambda manager: manager, Random(1))
        client = await planes.create(ONE)
        manager.engage(ONE, client)
        running = loop.create_task(manager.run())
        await client.create(NAMESPACE, a_namespace("filtered"))
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
