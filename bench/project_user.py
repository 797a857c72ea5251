"""A user of one project, who creates Workloads and watches their instances."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random

from datum_compute.api.compute.instance import READY, Instance
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import is_true
from datum_compute.api.kinds import INSTANCE, WORKLOAD
from datum_compute.api.labels import WORKLOAD_NAME
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.client.client import Client
from datum_compute.client.responses import ListResult
from datum_compute.client.watch import Watched, follow

SPACE = "default"
BURST_REPLICAS, BURST_A_SECOND = 10, 10  # a hundred instances a second
_TIMEOUT_S = 1800


@dataclass
class ProjectUser:
    project: Client
    # Times at which instances were first ready in the project, by the name of the workload.
    ready_s: dict[str, list[float]] = field(default_factory=dict)
    on_instance: Callable[[Instance], None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def create(self, name: str, city: str, replicas: int) -> float:
        """Create a Workload and return the time before the request."""
        began_s = time.perf_counter()
        await self.project.create_plain(WORKLOAD, workload(name, city, replicas))
        return began_s

    async def wait_until_rolled_out(self, names: Iterable[str]) -> None:
        for name in names:
            await self.project.wait(WORKLOAD, Ref(SPACE, name), is_done, timeout_s=_TIMEOUT_S)

    async def wait_until_ready(self, name: str, replicas: int) -> list[float]:
        while len(self.ready_s.get(name, ())) < replicas:
            self._changed.clear()
            await self._changed.wait()
        return self.ready_s[name]

    async def create_one_by_one(self, cities: Sequence[str], times: int) -> list[float]:
        """Create Workloads of one instance; return the seconds until each is ready."""
        taken = []
        for number in range(times):
            name = f"idle-{number}"
            began_s = await self.create(name, cities[number % len(cities)], 1)
            (ready_s,) = await self.wait_until_ready(name, 1)
            taken.append(ready_s - began_s)
            await asyncio.sleep(0.02)
        return taken

    async def create_burst(self, cities: Sequence[str], seconds: int) -> list[float]:
        """Create 100 instances per second, ten in each Workload; return the time of each."""
        began: dict[str, float] = {}
        start_s = time.perf_counter()
        for number in range(BURST_A_SECOND * seconds):
            due_s = start_s + number / BURST_A_SECOND
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            name = f"burst-{number}"
            began[name] = await self.create(name, cities[number % len(cities)], BURST_REPLICAS)
        taken = []
        for name, began_s in began.items():
            taken += [s - began_s for s in await self.wait_until_ready(name, BURST_REPLICAS)]
        return taken

    async def create_all(
        self, cities: Sequence[str], workloads: int, replicas: int
    ) -> tuple[float, float]:
        """Return the seconds until all Workloads are ready, and until all instances are shown."""
        names = [f"w{number}" for number in range(workloads)]
        start_s = time.perf_counter()
        for number, name in enumerate(names):
            await self.create(name, cities[number % len(cities)], replicas)
        await self.wait_until_rolled_out(names)
        settled_s = time.perf_counter() - start_s
        for name in names:
            await self.wait_until_ready(name, replicas)
        return settled_s, time.perf_counter() - start_s

    async def watch(self) -> None:
        """Watch instances until cancelled."""
        seen: set[tuple[str, str]] = set()
        news = follow(self.project, Watched(INSTANCE), Random(1))
        async with aclosing(news) as items:
            async for item in items:
                found = item.items if isinstance(item, ListResult) else [item.object]
                for instance in found:
                    if instance is not None:
                        self._note(instance, seen)

    def _note(self, instance: Instance, seen: set[tuple[str, str]]) -> None:
        if self.on_instance is not None:
            self.on_instance(instance)
        key = (instance.metadata.name, instance.metadata.uid)
        if key not in seen and is_true(instance.status.conditions, READY):
            seen.add(key)
            name = instance.metadata.labels[WORKLOAD_NAME]
            self.ready_s.setdefault(name, []).append(time.perf_counter())
            self._changed.set()


def workload(name: str, city: str, replicas: int, image: str = "web:1") -> JsonObject:
    scale = {
        "minReplicas": replicas,
        "instanceManagementPolicy": "Parallel",
        "maxUnavailable": "25%",
    }
    container = {"name": "app", "image": image}
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
            "placements": [{"name": "main", "cityCodes": [city.upper()], "scaleSettings": scale}],
        },
    }


def is_done(found: Workload | None) -> bool:
    if found is None or found.status.observed_generation != found.metadata.generation:
        return False
    status, wanted = found.status, found.spec.placements[0].scale_settings.min_replicas
    return status.replicas == status.ready_replicas == status.updated_replicas == wanted
