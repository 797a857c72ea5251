"""Controllers with bugs of every sort cost only themselves, and the runtime says what is wrong."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from datum_compute.api.configmap import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.plane import HUB, PlaneName, cell_plane
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Edge,
    Key,
    Outcome,
    Requeue,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.manager import Manager
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

ONE = cell_plane("one")


class OddError(BaseException):
    """No Exception, and none of those that end a process."""


def manager_of(*controllers: Controller[Any]) -> Manager[Any]:
    return Manager(controllers, lambda manager: manager, Random(1))


def calls_of(answer: Callable[[int], Any], *, seconds: float = 30.0) -> list[float]:
    """When a reconcile was called that answers so, by the number of the call."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[float]:
        calls: list[float] = []

        async def reconcile(_manager: Manager[Any], _key: Key) -> Outcome:
            calls.append(loop.time())
            return answer(len(calls))  # type: ignore[no-any-return]

        manager = manager_of(Controller("odd", "cell", reconcile, (for_(NAMESPACE),)))
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(seconds)
        running.cancel()
        return calls

    return with_planes(test)


@pytest.mark.parametrize("garbage", [None, 5, Done, "done"])
def test_an_answer_that_is_none_of_the_four_is_an_error_and_tried_again(
    garbage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls = calls_of(lambda number: garbage if number < 3 else Done())
    assert len(calls) == 3
    assert "Done, Requeue or Terminal" in caplog.text


@pytest.mark.parametrize("seconds", [math.nan, math.inf, "soon", None])
def test_a_delay_that_is_no_time_is_an_error_and_tried_again(
    seconds: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls = calls_of(lambda number: Requeue(seconds) if number < 3 else Done())
    assert len(calls) == 3
    assert "odd cell/one:a failed" in caplog.text


def test_a_moment_that_has_passed_is_now() -> None:
    calls = calls_of(lambda number: Requeue(-5) if number < 3 else Done())
    assert len(calls) == 3
    assert calls[-1] < 1


def test_one_who_always_asks_for_now_does_not_turn_for_ever() -> None:
    calls = calls_of(lambda _number: Requeue(0), seconds=10)
    assert 100 < len(calls) < 5000


@pytest.mark.parametrize("error", [OddError, asyncio.CancelledError])
def test_what_is_raised_is_tried_again_whatever_it_is(error: type[BaseException]) -> None:
    def answer(number: int) -> Outcome:
        if number < 3:
            raise error
        return Done()

    assert len(calls_of(answer)) == 3


# --- mapping functions


GARBAGE: list[Any] = [
    lambda _view, _change: None,
    lambda _view, _change: 5,
    lambda _view, _change: [None],
    lambda _view, _change: ["a"],
    lambda _view, _change: [Ref("", "a")],
    lambda _view, _change: "cell/one",
    lambda view, _change: Key(view.plane, Ref("", "a")),
    lambda view, _change: [Key(view.plane, ["unhashable"])],  # type: ignore[arg-type]
    lambda _view, _change: [Key(PlaneName(""), Ref("", "a"))],
    lambda _view, _change: [Key(None, Ref("", "a"))],  # type: ignore[arg-type]
    lambda _view, _change: 1 / 0,
]


def seen_by_another(edge: Edge, **options: Any) -> list[str]:
    """What a sound controller sees beside one with this edge, in a moment."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        seen: list[str] = []

        async def note(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(key.ref.name)
            return Done()

        async def rest(_manager: Manager[Any], _key: Key) -> Outcome:
            return Done()

        manager = manager_of(
            Controller("odd", "cell", rest, (edge,), **options),
            Controller("sound", "cell", note, (for_(NAMESPACE),)),
        )
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        client = planes.client(ONE)
        await asyncio.sleep(1)
        await client.create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(0.2)
        await client.patch(NAMESPACE, Ref("", "a"), {"metadata": {"labels": {"x": "y"}}})
        await asyncio.sleep(0.2)
        await client.create(NAMESPACE, a_namespace("b"))
        await asyncio.sleep(0.2)
        running.cancel()
        return seen

    return with_planes(test)


@pytest.mark.parametrize("mapping", GARBAGE)
def test_a_mapping_that_names_no_keys_costs_only_its_controller(mapping: Any) -> None:
    assert seen_by_another(watches(NAMESPACE, mapping)) == ["a", "a", "b"]
    assert seen_by_another(watches(NAMESPACE, mapping, must_map_to_one="x")) == ["a", "a", "b"]


def test_a_condition_of_an_edge_that_raises_costs_only_its_controller() -> None:
    def chokes(*_objects: Any) -> bool:
        raise ValueError("choked")

    for edge in (
        for_(NAMESPACE, update_filter=chokes),
        for_(NAMESPACE, create_filter=chokes),
    ):
        assert seen_by_another(edge) == ["a", "a", "b"]


def test_a_lane_that_cannot_be_told_costs_only_its_controller() -> None:
    def chokes(_key: Key) -> str:
        raise ValueError("choked")

    assert seen_by_another(for_(NAMESPACE), lane=chokes) == ["a", "a", "b"]


@pytest.mark.parametrize("seed", range(3))
def test_a_lane_that_is_told_differently_every_time_loses_doubles_and_wedges_nothing(
    seed: int,
) -> None:
    """Later, in flight and after it: a key stays in the lane that it was put into."""
    whims = Random(seed)

    def whimsical(_key: Key) -> str:
        if whims.random() < 0.1:
            raise ValueError("choked")
        return str(whims.randrange(3))

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[int, dict[str, str], int]:
        held: list[Key] = []
        doubled, seen, calls = 0, {}, 0

        async def slow(manager: Manager[Any], key: Key) -> Outcome:
            nonlocal doubled, calls
            doubled, calls = doubled + (key in held), calls + 1
            held.append(key)
            await asyncio.sleep(0.3)
            view = manager.cached_client(key.plane)
            found = view.read(NAMESPACE).get(key.ref) if view is not None else None
            seen[key.ref.name] = found.metadata.labels.get("x", "") if found is not None else ""
            held.remove(key)
            return Requeue(0.2) if calls % 3 == 0 else Done()

        manager = manager_of(
            Controller("odd", "cell", slow, (for_(NAMESPACE),), lane=whimsical, timeout_s=20)
        )
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        client = planes.client(ONE)
        for value in ("1", "2", "3"):
            for number in range(10):
                if value == "1":
                    await client.create(NAMESPACE, a_namespace(f"n{number}"))
                change = {"metadata": {"labels": {"x": value}}}
                await client.patch(NAMESPACE, Ref("", f"n{number}"), change)
                await asyncio.sleep(0.1)
        await asyncio.sleep(30)
        running.cancel()
        return doubled, seen, len(held)

    doubled, seen, held = with_planes(test)
    assert (doubled, held) == (0, 0)
    assert {name: value for name, value in seen.items() if name.startswith("n")} == {
        f"n{number}": "3" for number in range(10)
    }


# --- planes


def test_a_name_that_names_no_plane_leaves_nothing_behind() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[PlaneName]:
        async def rest(_manager: Manager[Any], _key: Key) -> Outcome:
            return Done()

        manager = manager_of(Controller("any", "cell", rest, (for_(NAMESPACE),)))
        with pytest.raises(ValueError, match="names no plane"):
            manager.engage(PlaneName("nonsense"), planes.client(ONE))
        return manager.engaged()

    assert with_planes(test) == []


def test_who_still_works_on_a_plane_that_is_gone_writes_nothing_more_there() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        begun = asyncio.Event()

        async def slow(manager: Manager[Any], key: Key) -> Outcome:
            view = manager.cached_client(key.plane)
            assert view is not None
            begun.set()
            await asyncio.sleep(2)
            await view.create(NAMESPACE, a_namespace("late"))
            return Done()

        manager = manager_of(Controller("slow", "cell", slow, (for_(NAMESPACE),)))
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        client = planes.client(ONE)
        await client.create(NAMESPACE, a_namespace("a"))
        await begun.wait()
        manager.disengage(ONE)
        await asyncio.sleep(10)
        running.cancel()
        return [found.metadata.name for found in (await client.list(NAMESPACE)).items]

    assert "late" not in with_planes(test)


def test_a_plane_engaged_anew_does_not_miss_what_was_on_its_way() -> None:
    """A reconcile waits for its write while the plane goes and comes back: the child of a chance
    name must be there once."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> int:
        asked = asyncio.Event()

        async def one_child(manager: Manager[Any], key: Key) -> Outcome:
            view = manager.cached_client(key.plane)
            assert view is not None
            if key.ref.name == "a" and not view.read(CONFIG_MAP).in_namespace("a"):
                child = ObjectMeta(generate_name="child-", namespace="a")
                await view.create(CONFIG_MAP, ConfigMap(metadata=child))
            return Done()

        async def slow_posts(request: Any) -> None:
            if request.method == "POST" and request.path.endswith("/configmaps"):
                asked.set()
                await asyncio.sleep(3)
            if request.path.endswith("/configmaps") and "watch" in str(request.query):
                await asyncio.sleep(4)

        manager = manager_of(
            Controller("one", "cell", one_child, (for_(NAMESPACE), watches(CONFIG_MAP, nobody)))
        )
        client = await planes.create(ONE)
        await client.create(NAMESPACE, a_namespace("a"))
        manager.engage(ONE, client)
        planes.intercept = slow_posts
        running = loop.create_task(manager.run())
        await asked.wait()
        manager.disengage(ONE)
        manager.engage(ONE, client)
        await asyncio.sleep(60)
        running.cancel()
        return len((await client.list(CONFIG_MAP)).items)

    assert with_planes(test) == 1


def nobody(_view: CachedClient, _change: ObjectChange[Any]) -> list[Key]:
    return []


def test_a_key_without_a_plane_does_not_end_the_manager_when_planes_come() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        seen: list[str] = []

        async def note(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(key.ref.name)
            return Done()

        def of_no_plane(_view: CachedClient, _change: ObjectChange[Any]) -> list[Key]:
            return [Key(PlaneName(""), Ref("", "a"))]

        edges = (watches(NAMESPACE, of_no_plane), for_(NAMESPACE), reads(NAMESPACE, on="hub"))
        manager = manager_of(Controller("odd", "cell", note, edges))
        client = await planes.create(ONE)
        await client.create(NAMESPACE, a_namespace("a"))
        manager.engage(ONE, client)
        running = loop.create_task(manager.run())
        await asyncio.sleep(1)
        manager.engage(HUB, await planes.create(HUB))
        await asyncio.sleep(1)
        await client.create(NAMESPACE, a_namespace("b"))
        await asyncio.sleep(1)
        running.cancel()
        return seen

    assert with_planes(test)[-1] == "b"


# --- stopping


def test_what_wakes_from_outside_and_will_not_end_does_not_hold_up_the_stop() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> float:
        async def rest(_manager: Manager[Any], _key: Key) -> Outcome:
            return Done()

        async def stubborn(_manager: Manager[Any], _view: CachedClient) -> AsyncIterator[Key]:
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    continue
                yield Key(ONE, Ref("", "a"))

        manager = manager_of(
            Controller("odd", "cell", rest, (for_(NAMESPACE),), external_sources=(stubborn,))
        )
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await asyncio.sleep(1)
        before_s = loop.time()
        async with asyncio.timeout(10):
            await manager.stop()
            await running
        return loop.time() - before_s

    assert with_planes(test) < 5
