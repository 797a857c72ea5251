"""Manager: planes are engaged and disengaged; outcomes lead to requeues, retries or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random

import pytest

from datum_compute.api.core import Namespace
from datum_compute.api.errors import Conflict
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane
from datum_compute.runtime.cache import Lister, NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Edge,
    Key,
    Outcome,
    Requeue,
    Terminal,
    for_,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.manager import Manager
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

ONE, TWO = cell_plane("one"), cell_plane("two")

Reconcile = Callable[["Log", Key], Awaitable[Outcome]]


class Log:
    """The context of these controllers. Records the reconciled keys with their times."""

    def __init__(self, manager: Manager[Log]) -> None:
        self.manager = manager
        self.entries: list[tuple[float, str]] = []

    def record(self, key: Key) -> int:
        name = f"{key.plane}:{key.ref.name}"
        self.entries.append((asyncio.get_running_loop().time(), name))
        return sum(1 for _, other in self.entries if other == name)


def a_manager(reconcile: Reconcile, *edges: Edge) -> tuple[Manager[Log], Log]:
    controller = Controller(
        name="test", role="cell", reconcile=reconcile, edges=(for_(NAMESPACE), *edges)
    )
    logs: list[Log] = []

    def context(manager: Manager[Log]) -> Log:
        logs.append(Log(manager))
        return logs[0]

    return Manager([controller], context, Random(1)), logs[0]


async def record_key(log: Log, key: Key) -> Outcome:
    log.record(key)
    return Done()


def test_engaged_planes_are_served_and_disengaged_ones_are_not() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        manager, log = a_manager(record_key)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(1)
        manager.engage(TWO, await planes.create(TWO))
        await planes.client(TWO).create(NAMESPACE, a_namespace("b"))
        await asyncio.sleep(1)
        manager.disengage(ONE)
        await planes.client(ONE).create(NAMESPACE, a_namespace("c"))
        await asyncio.sleep(1)
        running.cancel()
        return [name for _, name in log.entries]

    assert with_planes(test) == ["cell/one:a", "cell/two:b"]


@pytest.mark.parametrize("name", ["", ONE])
def test_engaging_a_plane_without_a_name_or_twice_fails(name: str) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        manager, _ = a_manager(record_key)
        client = await planes.create(ONE)
        manager.engage(ONE, client)
        with pytest.raises(AssertionError):
            manager.engage(PlaneName(name), client)
        return True

    assert with_planes(test)


def test_a_plane_that_is_engaged_while_the_manager_ends_starts_no_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[PlaneName]:
        client = await planes.create(TWO)
        is_ending = asyncio.Event()

        async def engage_late(log: Log, key: Key) -> Outcome:
            try:
                await asyncio.sleep(60)
            finally:
                await is_ending.wait()
                log.manager.engage(TWO, client)
            return Done()

        manager, _ = a_manager(engage_late)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(1)
        running.cancel()
        is_ending.set()
        await asyncio.wait([running])
        assert running.cancelled()
        return manager.engaged_planes()

    assert with_planes(test) == [ONE, TWO]
    assert not caplog.records


def reconcile_times(reconcile: Reconcile, for_s: float) -> list[float]:
    """Return the times at which a key is reconciled."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[float]:
        manager, log = a_manager(reconcile)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(for_s)
        running.cancel()
        return [at_s for at_s, _ in log.entries]

    return with_planes(test)


def test_done_waits_for_an_event_and_requeue_for_its_delay() -> None:
    async def requeue(log: Log, key: Key) -> Outcome:
        log.record(key)
        return Requeue(10)

    assert len(reconcile_times(record_key, for_s=100)) == 1
    gaps = [after - before for before, after in pairwise(reconcile_times(requeue, for_s=95))]
    assert len(gaps) >= 8
    assert all(10 <= gap <= 11 for gap in gaps), "not before the delay, and with jitter"


def test_an_exception_is_retried_with_backoff_until_it_succeeds() -> None:
    async def fail_three_times(log: Log, key: Key) -> Outcome:
        if log.record(key) <= 3:
            raise Conflict("concurrent write")
        return Done()

    times = reconcile_times(fail_three_times, for_s=100)
    gaps = [after - before for before, after in pairwise(times)]
    assert len(times) == 4
    assert gaps == sorted(gaps)


def test_a_bug_in_one_reconcile_does_not_end_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def buggy(log: Log, key: Key) -> Outcome:
        if log.record(key) == 1:
            raise KeyError("a bug")
        return Done()

    assert len(reconcile_times(buggy, for_s=100)) == 2
    assert "a bug" in caplog.text


def test_a_mapping_that_raises_affects_only_its_object(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def map_all_but_odd(cached_client: CachedClient, change: ObjectChange[Namespace]) -> list[Key]:
        if change.latest.metadata.name == "odd":
            raise KeyError("no such label")
        return [Key(cached_client.plane, Ref("", change.latest.metadata.name))]

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        edge = watches(NAMESPACE, map_all_but_odd, on="hub")
        manager, log = a_manager(record_key, edge)
        manager.engage(HUB, await planes.create(HUB))
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        for name in ("odd", "valid"):
            await planes.client(HUB).create(NAMESPACE, a_namespace(name))
        await asyncio.sleep(1)
        running.cancel()
        return [name for _, name in log.entries]

    assert with_planes(test) == ["hub:valid"]
    assert "odd" in caplog.text


def test_terminal_is_logged_and_not_retried(caplog: pytest.LogCaptureFixture) -> None:
    async def fail_terminally(log: Log, key: Key) -> Outcome:
        log.record(key)
        return Terminal("no such kind")

    assert len(reconcile_times(fail_terminally, for_s=1000)) == 1
    assert "no such kind" in caplog.text


def test_not_synced_is_retried_soon() -> None:
    async def not_synced_once(log: Log, key: Key) -> Outcome:
        if log.record(key) == 1:
            raise NotSynced("stale")
        return Done()

    first, second = reconcile_times(not_synced_once, for_s=100)
    assert second - first < 1


async def read_when_synced(cached_client: CachedClient) -> Lister[Namespace]:
    """Read as a worker does: wait once if the cache is not synced."""
    try:
        return cached_client.read(NAMESPACE)
    except NotSynced as error:
        if error.wait is not None:
            await error.wait(1.0)
        return cached_client.read(NAMESPACE)


def test_a_read_contains_own_writes() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> int:
        cached_client = CachedClient(ONE, await planes.create(ONE), Random(1))
        informer = cached_client.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        missed = 0
        for number in range(30):
            name = f"n{number}"
            await cached_client.create(NAMESPACE, a_namespace(name))
            missed += (await read_when_synced(cached_client)).get(Ref("", name)) is None
        return missed

    assert with_planes(test) == 0


def test_reading_raises_until_the_cache_contains_own_writes() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        cached_client = CachedClient(ONE, await planes.create(ONE), Random(1))
        cached_client.declare(NAMESPACE)
        with pytest.raises(NotSynced):
            cached_client.read(NAMESPACE)
        informer = cached_client.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        cached_client.record_write(NAMESPACE, informer.version + 1)
        with pytest.raises(NotSynced):
            cached_client.read(NAMESPACE)
        return True

    assert with_planes(test)
