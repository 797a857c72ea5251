"""Metrics of the runtime, and reports of ambiguous mappings."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from datum_compute.api.errors import Conflict
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.planes import cell_plane
from datum_compute.runtime.controller import Controller, Key, Outcome, Requeue, for_
from datum_compute.runtime.manager import Manager
from datum_compute.runtime.metrics import RuntimeMetrics
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

ONE = cell_plane("one")
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "runtime.md"


def test_reconciles_queues_and_caches_are_counted() -> None:
    registry = CollectorRegistry()
    calls = 0

    async def flaky(_manager: Manager[Any], _key: Key) -> Outcome:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Conflict("a race")
        return Requeue(1000)

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bytes:
        controller = Controller("test", "cell", flaky, (for_(NAMESPACE),))
        manager: Manager[Any] = Manager(
            [controller], lambda made: made, Random(1), metrics=RuntimeMetrics(registry)
        )
        manager.engage(ONE, await planes.create(ONE))
        running = loop.create_task(manager.run())
        await planes.client(ONE).create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(20)
        shown = generate_latest(registry)
        running.cancel()
        return shown

    shown = with_planes(test).decode().splitlines()
    for line in (
        'runtime_reconciles_total{controller="test",outcome="retry"} 1.0',
        'runtime_reconciles_total{controller="test",outcome="later"} 1.0',
        'runtime_retries_total{controller="test"} 1.0',
        'runtime_reconcile_seconds_count{controller="test"} 2.0',
        'runtime_queue_wait_seconds_count{controller="test"} 2.0',
        'runtime_queue_depth{controller="test"} 0.0',
        'runtime_queue_delayed{controller="test"} 1.0',
        'runtime_in_flight{controller="test"} 0.0',
        "runtime_planes 1.0",
        'runtime_view_objects{kind="namespaces"} 1.0',
        'runtime_views_not_synced{plane="cell/one"} 0.0',
        'runtime_view_age_seconds{plane="cell/one"} 20.0',
    ):
        assert line in shown, line


def test_every_metric_is_documented() -> None:
    registry = CollectorRegistry()
    Manager([], lambda _manager: None, Random(1), metrics=RuntimeMetrics(registry))
    text = GUIDE.read_text()
    names = {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in registry.collect()
    }
    assert len(names) > 10
    missing = [name for name in sorted(names) if not re.search(rf"`{name}`", text)]
    assert not missing
