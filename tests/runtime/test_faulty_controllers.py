"""Defects of a controller affect only that controller, and are logged."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane
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
    """Not an Exception, and not one that ends the process."""


def manager_of(*controllers: Controller[Any]) -> Manager[Any]:
    return Manager(controllers, lambda manager: manager, Random(1))


def calls_of(answer: Callable[[int], Any], *, seconds: float = 30.0) -> list[float]:
    """Return when a reconcile was called. ``answer`` maps the number of the call to a result."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[float]:
        calls: list[float] = []

        async def reconcile(_manager: Manager[Any], _key: Key) -> Outcome:
            calls.append(loop.time())
            return answer(len(calls))  # type: ignore[no-any-return]

        manager = manager_of(Controller("faulty", "cell", reconcile, (for_(NAMESPACE),)))
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(seconds)
        running.cancel()
        return calls

    return with_planes(test)


@pytest.mark.parametrize("result", [None, 5, Done, "done"])
def test_a_result_that_is_no_outcome_is_an_error_and_retried(
    result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls = calls_of(lambda number: result if number < 3 else Done())
    assert len(calls) == 3
    assert "Done, Requeue or Terminal" in caplog.text


@pytest.mark.parametrize("seconds", [math.nan, math.inf, "soon", None])
def test_an_invalid_delay_is_an_error_and_retried(
    seconds: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls = calls_of(lambda number: Requeue(seconds) if number < 3 else Done())
    assert len(calls) == 3
    assert "faulty cell/one:a failed" in caplog.text


def test_a_negative_delay_is_the_minimum_delay() -> None:
    calls = calls_of(lambda number: Requeue(-5) if number < 3 else Done())
    assert len(calls) == 3
    assert calls[-1] < 1


def test_requeue_without_delay_does_not_spin() -> None:
    calls = calls_of(lambda _number: Requeue(0), seconds=10)
    assert 100 < len(calls) < 5000


@pytest.mark.parametrize("error", [OddError, asyncio.CancelledError])
def test_every_exception_is_retried(error: type[BaseException]) -> None:
    def answer(number: int) -> Outcome:
        if number < 3:
            raise error
        return Done()

    assert len(calls_of(answer)) == 3


# --- mapping functions


INVALID_MAPPINGS: list[Any] = [
    lambda _client, _change: None,
    lambda _client, _change: 5,
    lambda _client, _change: [None],
    lambda _client, _change: ["a"],
    lambda _client, _change: [Ref("", "a")],
    lambda _client, _change: "cell/one",
    lambda cached_client, _change: Key(cached_client.plane, Ref("", "a")),
    lambda cached_client, _change: [Key(cached_client.plane, ["unhashable"])],  # type: ignore[arg-type]
    lambda _client, _change: [Key(PlaneName(""), Ref("", "a"))],
    lambda _client, _change: [Key(None, Ref("", "a"))],  # type: ignore[arg-type]
    lambda _client, _change: 1 / 0,
]


def keys_of_other_controller(edge: Edge, **options: Any) -> list[str]:
    """Return the keys that a second, correct controller reconciles."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        seen: list[str] = []

        async def record(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(key.ref.name)
            return Done()

        async def done(_manager: Manager[Any], _key: Key) -> Outcome:
            return Done()

        manager = manager_of(
            Controller("faulty", "cell", done, (edge,), **options),
            Controller("correct", "cell", record, (for_(NAMESPACE),)),
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


@pytest.mark.parametrize("mapping", INVALID_MAPPINGS)
def test_a_mapping_that_returns_no_keys_affects_only_its_controller(mapping: Any) -> None:
    assert keys_of_other_controller(watches(NAMESPACE, mapping)) == ["a", "a", "b"]
    assert keys_of_other_controller(watches(NAMESPACE, mapping, must_map_to_one="x")) == [
        "a",
        "a",
        "b",
    ]


def test_a_filter_that_raises_affects_only_its_controller() -> None:
    def fail(*_objects: Any) -> bool:
        raise ValueError("failed")

    for edge in (
        for_(NAMESPACE, update_filter=fail),
        for_(NAMESPACE, create_filter=fail),
    ):
        assert keys_of_other_controller(edge) == ["a", "a", "b"]


def test_a_lane_function_that_raises_affects_only_its_controller() -> None:
    def fail(_key: Key) -> str:
        raise ValueError("failed")

    assert keys_of_other_controller(for_(NAMESPACE), lane=fail) == ["a", "a", "b"]


@pytest.mark.parametrize("seed", range(3))
def test_a_lane_function_without_a_stable_result_loses_and_duplicates_nothing(
    seed: int,
) -> None:
    """A key stays in the lane that it was added to."""
    random = Random(seed)

    def random_lane(_key: Key) -> str:
        if random.random() < 0.1:
            raise ValueError("failed")
        return str(random.randrange(3))

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[int, dict[str, str], int]:
        held: list[Key] = []
        doubled, seen, calls = 0, {}, 0

        async def slow(manager: Manager[Any], key: Key) -> Outcome:
            nonlocal doubled, calls
            doubled, calls = doubled + (key in held), calls + 1
            held.append(key)
            await asyncio.sleep(0.3)
            cached_client = manager.cached_client(key.plane)
            found = (
                cached_client.read(NAMESPACE).get(key.ref) if cached_client is not None else None
            )
            seen[key.ref.name] = found.metadata.labels.get("x", "") if found is not None else ""
            held.remove(key)
            return Requeue(0.2) if calls % 3 == 0 else Done()

        manager = manager_of(
            Controller("faulty", "cell", slow, (for_(NAMESPACE),), lane=random_lane, timeout_s=20)
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


def test_engaging_an_invalid_name_changes_nothing() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[PlaneName]:
        async def done(_manager: Manager[Any], _key: Key) -> Outcome:
            return Done()

        manager = manager_of(Controller("any", "cell", done, (for_(NAMESPACE),)))
        with pytest.raises(ValueError, match="is not a plane name"):
            manager.engage(PlaneName("nonsense"), planes.client(ONE))
        return manager.engaged_planes()

    assert with_planes(test) == []


def test_a_running_reconcile_does_not_write_to_a_disengaged_plane() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        started = asyncio.Event()

        async def slow(manager: Manager[Any], key: Key) -> Outcome:
            cached_client = manager.cached_client(key.plane)
            assert cached_client is not None
            started.set()
            await asyncio.sleep(2)
            await cached_client.create(NAMESPACE, a_namespace("late"))
            return Done()

        manager = manager_of(Controller("slow", "cell", slow, (for_(NAMESPACE),)))
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        client = planes.client(ONE)
        await client.create(NAMESPACE, a_namespace("a"))
        await started.wait()
        manager.disengage(ONE)
        await asyncio.sleep(10)
        running.cancel()
        return [found.metadata.name for found in (await client.list(NAMESPACE)).items]

    assert "late" not in with_planes(test)


def test_a_plane_engaged_again_waits_for_a_write_in_flight() -> None:
    """The plane is engaged again during a create with a generated name: it must not repeat."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> int:
        requested = asyncio.Event()

        async def one_child(manager: Manager[Any], key: Key) -> Outcome:
            cached_client = manager.cached_client(key.plane)
            assert cached_client is not None
            if key.ref.name == "a" and not cached_client.read(CONFIG_MAP).list_in_namespace("a"):
                child = ObjectMeta(generate_name="child-", namespace="a")
                await cached_client.create(CONFIG_MAP, ConfigMap(metadata=child))
            return Done()

        async def delay_requests(request: Any) -> None:
            if request.method == "POST" and request.path.endswith("/configmaps"):
                requested.set()
                await asyncio.sleep(3)
            if request.path.endswith("/configmaps") and "watch" in str(request.query):
                await asyncio.sleep(4)

        manager = manager_of(
            Controller("one", "cell", one_child, (for_(NAMESPACE), watches(CONFIG_MAP, no_keys)))
        )
        client = await planes.create(ONE)
        await client.create(NAMESPACE, a_namespace("a"))
        manager.engage(ONE, client)
        planes.intercept = delay_requests
        running = loop.create_task(manager.run())
        await requested.wait()
        manager.disengage(ONE)
        manager.engage(ONE, client)
        await asyncio.sleep(60)
        running.cancel()
        return len((await client.list(CONFIG_MAP)).items)

    assert with_planes(test) == 1


def no_keys(_client: CachedClient, _change: ObjectChange[Any]) -> list[Key]:
    return []


def test_a_key_without_a_plane_does_not_end_the_manager() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        seen: list[str] = []

        async def record(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(key.ref.name)
            return Done()

        def to_empty_plane(_client: CachedClient, _change: ObjectChange[Any]) -> list[Key]:
            return [Key(PlaneName(""), Ref("", "a"))]

        edges = (watches(NAMESPACE, to_empty_plane), for_(NAMESPACE), reads(NAMESPACE, on="hub"))
        manager = manager_of(Controller("faulty", "cell", record, edges))
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


def test_an_external_source_that_ignores_cancellation_does_not_delay_stop() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> float:
        async def done(_manager: Manager[Any], _key: Key) -> Outcome:
            return Done()

        async def ignore_cancel(
            _manager: Manager[Any], _client: CachedClient
        ) -> AsyncIterator[Key]:
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    continue
                yield Key(ONE, Ref("", "a"))

        manager = manager_of(
            Controller(
                "faulty", "cell", done, (for_(NAMESPACE),), external_sources=(ignore_cancel,)
            )
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
