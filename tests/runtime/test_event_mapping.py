"""Event mapping: changes become keys; failures, full lanes and ambiguous mappings are handled."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, PlaneName, project_plane
from datum_compute.client.transport.retry import Backoff
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Edge,
    Key,
    Outcome,
    for_,
    own_key,
    reads,
    watches,
)
from datum_compute.runtime.event_mapping import (
    REPORT_INTERVAL_S,
    AmbiguousMapping,
    EventMapper,
    MappingAudit,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.manager import Manager
from datum_compute.runtime.metrics import ControllerMetrics, RuntimeMetrics
from datum_compute.runtime.queue import WorkQueue
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes
from tests.runtime.test_reconcile import ONE, manager_of


def test_keys_rejected_by_a_full_lane_are_replayed_from_the_cache() -> None:
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


def test_keys_on_a_plane_engaged_later_are_mapped_again() -> None:
    project = project_plane("late")

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        seen: list[str] = []

        async def record(_manager: Manager[Any], key: Key) -> Outcome:
            seen.append(str(key))
            return Done()

        def to_project(_view: CachedClient, change: ObjectChange[Any]) -> list[Key]:
            return [Key(project, Ref("", change.latest.metadata.name))]

        manager = manager_of(record, watches(NAMESPACE, to_project, on="hub"), role="project")
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


def test_ambiguous_mappings_are_counted_and_reported_once() -> None:
    registry = CollectorRegistry()
    reports: list[AmbiguousMapping] = []

    async def done(_manager: Manager[Any], _key: Key) -> Outcome:
        return Done()

    def by_label(client: CachedClient, change: ObjectChange[Any]) -> list[Key]:
        names = change.latest.metadata.labels.get("parents", "").split(".")
        return [Key(client.plane, Ref("", name)) for name in names if name]

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        edge = watches(NAMESPACE, by_label, must_map_to_one="child-to-parent")
        controller = Controller("test", "cell", done, (edge,))
        manager: Manager[Any] = Manager(
            [controller],
            lambda made: made,
            Random(1),
            metrics=RuntimeMetrics(registry),
            report=reports.append,
        )
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        client = planes.client(ONE)
        await client.create(NAMESPACE, a_namespace("one", parents="p"))
        await client.create(NAMESPACE, a_namespace("many", parents="p.q"))
        await client.create(NAMESPACE, a_namespace("none"))
        for number in range(5):
            await client.patch(
                NAMESPACE, Ref("", "none"), {"metadata": {"labels": {"n": str(number)}}}
            )
        await asyncio.sleep(REPORT_INTERVAL_S + 1)
        await client.patch(NAMESPACE, Ref("", "none"), {"metadata": {"labels": {"n": "again"}}})
        await asyncio.sleep(1)
        running.cancel()

    with_planes(test)

    def counted(outcome: str) -> float | None:
        labels = {"edge": "child-to-parent", "outcome": outcome}
        return registry.get_sample_value("reverse_map_total", labels)

    assert (counted("one"), counted("none"), counted("many")) == (1, 7, 1)
    assert sorted((r.ref.name, r.outcome) for r in reports) == [
        ("many", "many"),
        ("none", "none"),
        ("none", "none"),
    ]
    assert "found cell/one:p, cell/one:q" in next(r.message for r in reports if r.outcome == "many")


# --- one mapper without a manager


def a_mapper(
    edge: Edge, *, lane_max: int = 1, metrics: ControllerMetrics | None = None
) -> tuple[EventMapper[None], WorkQueue, dict[PlaneName, CachedClient]]:
    """Return a mapper with its queue and the clients of its planes, which are none at first."""

    async def done(_context: None, _key: Key) -> Outcome:
        return Done()

    controller: Controller[None] = Controller("test", "cell", done, (edge,), lane_max=lane_max)
    queue = WorkQueue(Random(1), Backoff(first_s=1.0, most_s=1.0), lane_max=lane_max)
    clients: dict[PlaneName, CachedClient] = {}
    mapper = EventMapper(controller, queue, clients, MappingAudit(None, None), metrics)
    return mapper, queue, clients


def change_of(old: str, new: str) -> ObjectChange[Any]:
    """Return the change of a namespace. An empty name stands for no object."""
    return ObjectChange(a_namespace(old) if old else None, a_namespace(new) if new else None)


def queued(queue: WorkQueue) -> list[str]:
    names = []
    while (key := queue.pop()) is not None:
        names.append(key.ref.name)
        queue.done(key)
    return names


def test_a_full_lane_rejects_changes_but_never_deletions() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        edge = for_(NAMESPACE)
        mapper, queue, clients = a_mapper(edge, lane_max=1)
        client = clients[ONE] = CachedClient(ONE, await planes.create(ONE), Random(1))
        for change in (
            change_of("", "first"),
            change_of("", "rejected"),
            change_of("deleted", ""),
        ):
            mapper._handle(edge, client, change)
        return queued(queue)

    assert with_planes(test) == ["first", "deleted"]


def test_keys_on_a_plane_that_is_not_engaged_are_dropped() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        edge = for_(NAMESPACE)
        mapper, queue, clients = a_mapper(edge, lane_max=10)
        client = CachedClient(ONE, await planes.create(ONE), Random(1))
        mapper._handle(edge, client, change_of("", "early"))
        clients[ONE] = client
        mapper._handle(edge, client, change_of("", "engaged"))
        return queued(queue)

    assert with_planes(test) == ["engaged"]


def test_an_error_in_a_filter_or_mapping_is_counted_and_maps_to_no_key() -> None:
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry).for_controller("test")

    def fail(*_objects: Any) -> Any:
        raise ValueError("failed")

    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        keys = []
        client = CachedClient(ONE, await planes.create(ONE), Random(1))
        for edge in (for_(NAMESPACE, create_filter=fail), watches(NAMESPACE, fail)):
            mapper, queue, clients = a_mapper(edge, metrics=metrics)
            clients[ONE] = client
            mapper._handle(edge, client, change_of("", "a"))
            keys += queued(queue)
        return keys

    assert with_planes(test) == []
    labels = {"controller": "test"}
    assert registry.get_sample_value("runtime_mapping_errors_total", labels) == 2


def test_a_kind_that_is_only_read_is_cached_and_not_subscribed() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> tuple[int, int]:
        client = CachedClient(ONE, await planes.create(ONE), Random(1))
        counts = []
        for edge in (reads(NAMESPACE), for_(NAMESPACE)):
            mapper, _, _ = a_mapper(edge)
            mapper.attach(client)
            informer = client.informer(NAMESPACE)
            assert informer is not None
            counts.append(len(informer._handlers))
        return counts[0], counts[1]

    assert with_planes(test) == (0, 1)


@pytest.mark.parametrize(
    ("namespaces", "expected"),
    [(("a",), "a"), (("a", "a"), "a"), (("a", "b"), ""), (("a", ""), "")],
)
def test_an_informer_reads_one_namespace_if_no_edge_reads_another(
    namespaces: tuple[str, ...], expected: str
) -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> str:
        client = CachedClient(ONE, await planes.create(ONE), Random(1))
        for namespace in namespaces:
            mapper, _, _ = a_mapper(watches(CONFIG_MAP, own_key, namespace=namespace))
            mapper.attach(client)
        return client.declare(CONFIG_MAP).namespace

    assert with_planes(test) == expected


def test_an_edge_ignores_objects_of_other_namespaces() -> None:
    async def done(_context: None, _key: Key) -> Outcome:
        return Done()

    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[Key]:
        client = CachedClient(ONE, await planes.create(ONE), Random(1))
        edge = watches(CONFIG_MAP, own_key, namespace="a")
        controller = Controller("test", "project", done, (edge,))
        found: list[Key] = []
        for namespace in ("a", "b"):
            config = ConfigMap(metadata=ObjectMeta(name="c", namespace=namespace))
            found += controller.keys(edge, client, ObjectChange(None, config))
        return found

    assert with_planes(test) == [Key(ONE, Ref("a", "c"))]
