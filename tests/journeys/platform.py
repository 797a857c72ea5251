"""The whole platform in virtual time, and helpers for short tests that act as a user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.server import Server
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import Condition, find_condition
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import cell_plane, project_plane
from datum_compute.app.platform import EVERYTHING
from datum_compute.client.client import Client
from datum_compute.controllers.context import Context
from datum_compute.planning.rollout.slots import is_ready
from datum_compute.runtime.controller import Controller
from datum_compute.store.journal import Change
from testkit.sim.loop import VirtualLoop, run_virtual
from testkit.sim.single_host import SingleHost, single_host

T = TypeVar("T")

PROJECT, CELL = project_plane("default"), cell_plane("dfw")
WEB = Ref("default", "web")
TIMEOUT_S = 120.0


@dataclass
class Platform:
    host: SingleHost
    project: Client
    cell: Client

    @property
    def writes(self) -> list[Change]:
        return self.host.writes

    async def wait_until_booted(self) -> None:
        async def is_up() -> bool:
            return self.host.host.is_up

        await self.until(is_up, "the platform is up")

    async def deploy(
        self,
        image: str = "web:1",
        *,
        replicas: int = 1,
        namespace: str = "default",
        **scale: Any,
    ) -> None:
        settings = {"minReplicas": replicas, **scale}
        body: JsonObject = {
            "apiVersion": WORKLOAD.api_version,
            "kind": "Workload",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "template": {"spec": _template(image)},
                "placements": [
                    {"name": "default", "cityCodes": ["DFW"], "scaleSettings": settings}
                ],
            },
        }
        while True:
            try:
                await self.project.create_plain(WORKLOAD, body)
            except (ApiError, Unreachable):
                await asyncio.sleep(0.5)  # still booting
            else:
                return

    async def change(self, **spec: Any) -> None:
        await self.project.patch(WORKLOAD, WEB, {"spec": spec})

    async def change_image(self, image: str) -> None:
        await self.change(template={"spec": _template(image)})

    async def workload(self) -> Workload:
        return await self.project.get(WORKLOAD, WEB)

    async def instances(self) -> list[Instance]:
        """Return the instances of the cell, not their copies."""
        found = (await self.cell.list(INSTANCE)).items
        return sorted(found, key=lambda i: i.metadata.name)

    async def servers(self) -> list[Server]:
        return (await self.cell.list(SERVER)).items

    async def deployment(self) -> WorkloadDeployment:
        (found,) = (await self.cell.list(DEPLOYMENT)).items
        return found

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        for _ in range(int(TIMEOUT_S / 0.1)):
            if await holds():
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"not after {TIMEOUT_S} s: {what}")

    async def until_ready(self, image: str, replicas: int = 1) -> None:
        async def holds() -> bool:
            found = await self.instances()
            images = [i.spec.runtime.sandbox.containers[0].image for i in found]
            status = (await self.workload()).status
            return (
                images == [image] * replicas
                and all(is_ready(i) for i in found)
                and (status.ready_replicas, status.updated_replicas) == (replicas, replicas)
            )

        await self.until(holds, f"{replicas} ready instances of {image}")

    async def available(self) -> Condition:
        found = find_condition((await self.workload()).status.conditions, "Available")
        return found or Condition(type="Available", status="Unknown", reason="")

    async def until_reason(self, reason: str) -> Condition:
        async def holds() -> bool:
            return (await self.available()).reason == reason

        await self.until(holds, f"the workload reports {reason}")
        return await self.available()

    def on_cell(self, resource: str) -> list[tuple[str, str, bool]]:
        """Return name, uid and whether it is a deletion, for every write on the cell in order."""
        found = []
        for change in self.writes:
            if change.plane == CELL and change.key.resource == resource:
                uid = decode(change.body)["metadata"]["uid"] if change.body else ""
                found.append((change.key.name, uid, change.body is None))
        return found

    def removals(self) -> list[int]:
        """Return the ordinals of the cell's instances in the order of their deletion."""
        gone = [name for name, _, is_gone in self.on_cell(INSTANCE.resource) if is_gone]
        return [int(name.rpartition("-")[2]) for name in gone]


def on_platform(
    story: Callable[[Platform], Awaitable[T]],
    *,
    boot_s: float = 0.2,
    controllers: tuple[Controller[Context], ...] = EVERYTHING,
) -> T:
    async def main(loop: VirtualLoop) -> T:
        host = single_host(
            loop, projects=(PROJECT,), cells=(CELL,), boot_s=boot_s, controllers=controllers
        )
        host.host.start()
        return await story(Platform(host, host.client(PROJECT), host.client(CELL)))

    return run_virtual(Random(1), main)


def _template(image: str) -> JsonObject:
    return {"runtime": {"sandbox": {"containers": [{"name": "app", "image": image}]}}}
