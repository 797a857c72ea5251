"""Planes come and go; keys of absent planes are dropped; outcomes are interpreted in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random

import pytest

from datum_compute.api.errors import Conflict
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB, PlaneName, cell_plane
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
    """The context of these controllers: what they were asked, and when."""

    def __init__(self, manager: Manager[Log]) -> None:
        self.manager = manager
        self.seen: list[tuple[float, str]] = []

    def note(self, key: Key) -> int:
        name = f"{key.plane}:{key.ref.name}"
        self.seen.append((asyncio.get_running_loop().time(), name))
        return sum(1 for _, other in self.seen if other == name)


def a_manager(reconcile: Reconcile, *edges: Edge) -> tuple[Manager[Log], Log]:
    controller = Controller(
        name="test", role="cell", reconcile=reconcile, edges=(for_(NAMESPACE), *edges)
    )
    logs: list[Log] = []

    def context(manager: Manager[Log]) -> Log:
        logs.append(Log(manager))
        return logs[0]

    return Manager([controller], context, Random(1)), logs[0]


async def just_note(log: Log, key: Key) -> Outcome:
    log.note(key)
    return Done()


def test_engaged_planes_are_served_and_disengaged_ones_are_not() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        manager, log = a_manager(just_note)
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
        return [name for _, name in log.seen]

    assert with_planes(test) == ["cell/one:a", "cell/two:b"]


@pytest.mark.parametrize("name", ["", ONE])
def test_no_plane_can_be_engaged_without_a_name_or_twice(name: str) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        manager, _ = a_manager(just_note)
        client = await planes.create(ONE)
        manager.engage(ONE, client)
        with pytest.raises(AssertionError):
            manager.engage(PlaneName(name), client)
        return True

    assert with_planes(test)


def outcomes(reconcile: Reconcile, for_s: float) -> list[float]:
    """At which times a key is reconciled."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[float]:
        manager, log = a_manager(reconcile)
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(for_s)
        running.cancel()
        return [at_s for at_s, _ in log.seen]

    return with_planes(test)


def test_done_rests_and_later_comes_back() -> None:
    async def later(log: Log, key: Key) -> Outcome:
        log.note(key)
        return Requeue(10)

    assert len(outcomes(just_note, for_s=100)) == 1
    gaps = [after - before for before, after in pairwise(outcomes(later, for_s=95))]
    assert len(gaps) >= 8
    assert all(10 <= gap <= 11 for gap in gaps), "no sooner than asked for, and with jitter"


def test_an_exception_is_retried_with_growing_delays_until_it_succeeds() -> None:
    async def fail_thrice(log: Log, key: Key) -> Outcome:
        if log.note(key) <= 3:
            raise Conflict("somebody else wrote")
        return Done()

    times = outcomes(fail_thrice, for_s=100)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) == 4
    assert gaps == sorted(gaps)


def test_a_bug_in_one_reconcile_does_not_end_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def buggy(log: Log, key: Key) -> Outcome:
        if log.note(key) == 1:
            raise KeyError("a bug")
        return Done()

    assert len(outcomes(buggy, for_s=100)) == 2
    assert "a bug" in caplog.text


def test_an_odd_object_does_not_end_the_view_that_all_share(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def choke_on_odd(view: CachedClient, change: ObjectChange[Namespace]) -> list[Key]:
        if change.latest.metadata.name == "odd":
            raise KeyError("no such label")
        return [Key(view.plane, Ref("", change.latest.metadata.name))]

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        wakes = watches(NAMESPACE, choke_on_odd, on="hub")
        manager, log = a_manager(just_note, wakes)
        manager.engage(HUB, await planes.create(HUB))
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        for name in ("odd", "fine"):
            await planes.client(HUB).create(NAMESPACE, a_namespace(name))
        await asyncio.sleep(1)
        running.cancel()
        return [name for _, name in log.seen]

    assert with_planes(test) == ["hub:fine"]
    assert "odd" in caplog.text


def test_terminal_is_recorded_and_not_retried(caplog: pytest.LogCaptureFixture) -> None:
    async def hopeless(log: Log, key: Key) -> Outcome:
        log.note(key)
        return Terminal("no such kind")

    assert len(outcomes(hopeless, for_s=1000)) == 1
    assert "no such kind" in caplog.text


def test_an_incomplete_view_is_looked_at_again_soon() -> None:
    async def behind_once(log: Log, key: Key) -> Outcome:
        if log.note(key) == 1:
            raise NotSynced("behind")
        return Done()

    first, second = outcomes(behind_once, for_s=100)
    assert second - first < 1


async def caught_up(view: CachedClient) -> Lister[Namespace]:
    """What a worker does for a reconcile whose view is behind."""
    try:
        return view.read(NAMESPACE)
    except NotSynced as behind:
        if behind.wait is not None:
            await behind.wait(1.0)
        return view.read(NAMESPACE)


def test_a_read_never_misses_our_own_write() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> int:
        view = CachedClient(ONE, await planes.create(ONE), Random(1))
        informer = view.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        missed = 0
        for number in range(30):
            name = f"n{number}"
            await view.create(NAMESPACE, a_namespace(name))
            missed += (await caught_up(view)).get(Ref("", name)) is None
        return missed

    assert with_planes(test) == 0


def test_a_view_that_has_not_seen_our_own_write_is_not_read() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        view = CachedClient(ONE, await planes.create(ONE), Random(1))
        view.declare(NAMESPACE)
        with pytest.raises(NotSynced):
            view.read(NAMESPACE)
        informer = view.declare(NAMESPACE)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        view.record_write(NAMESPACE, informer.version + 1)
        with pytest.raises(NotSynced):
            view.read(NAMESPACE)
        return True

    assert with_planes(test)
