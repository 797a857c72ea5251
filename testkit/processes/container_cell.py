"""A driver on the real engine, without the platform, that tests start and kill."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from datum_compute.api.compute.instance import (
    Container,
    InterfaceAddress,
    NetworkInterfaceStatus,
    Probe,
)
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.planes import cell_plane
from datum_compute.app.container_host import build_containers_driver
from datum_compute.app.debounced_file import DebouncedFile
from datum_compute.app.environment import process_environment
from datum_compute.app.state_directory import ensure_private_directory
from datum_compute.drivers.containers.driver import ContainersDriver
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.driver import DriverError, MachineState, Observation
from testkit.processes.container_engine import TestEngine

ID = "ns/web-0/uid-1"
WAIT_S = 30.0


class Cell:
    def __init__(self, engine: TestEngine, state: Path) -> None:
        self.engine = engine
        self.state = state
        self.driver: ContainersDriver
        self._client: Engine
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._client = Engine(self.engine.socket)
        state, environment = ensure_private_directory(self.state), process_environment()
        self.driver = build_containers_driver(state, cell_plane("dfw"), self._client, environment)
        self._running = asyncio.create_task(self.driver.run())
        await self.until(self._is_read)

    async def kill(self) -> None:
        """Simulate a killed process: its unfinished operations stay as they are."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
            self._running = None
            await self._client.aclose()
            await self.until(self._has_saved)

    async def _has_saved(self) -> bool:
        """Return True if no save is pending, because the next driver writes the same file."""
        saves = self.driver._save
        return not isinstance(saves, DebouncedFile) or saves._task is None

    async def clean(self, within_s: float = WAIT_S) -> None:
        if self._running is None:
            await self.start()
        for machine_id in await self.driver.machines():
            await self.driver.remove(machine_id)
        await self.until(self._is_empty, within_s)
        await self.kill()

    async def _is_read(self) -> bool:
        try:
            await self.driver.machines()
        except DriverError:
            return False
        return True

    async def _is_empty(self) -> bool:
        return not await self.driver.machines()

    async def until(self, predicate: Callable[[], Any], within_s: float = WAIT_S) -> None:
        async with asyncio.timeout(within_s):
            while not await predicate():  # noqa: ASYNC110 - the engine is another process
                await asyncio.sleep(0.02)

    async def wait_for_state(
        self,
        predicate: Callable[[MachineState], bool],
        machine_id: str = ID,
        within_s: float = WAIT_S,
    ) -> MachineState:
        """Return the first state of the machine for which `holds` returns True."""
        last: Observation = None
        try:
            async with asyncio.timeout(within_s):
                while True:
                    last = await self.driver.observe(machine_id)
                    if isinstance(last, MachineState) and predicate(last):
                        return last
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not within {within_s} s; last seen: {last}") from None

    async def wait_until_running(self, machine_id: str = ID) -> MachineState:
        return await self.wait_for_state(
            lambda state: state.phase == "Running" and not state.reason, machine_id
        )

    async def wait_until_gone(self, machine_id: str = ID) -> None:
        async def is_gone() -> bool:
            return await self.driver.observe(machine_id) is None

        await self.until(is_gone)

    def spec(self, *command: str, image: str = "web:1", **fields: Any) -> ServerSpec:
        """Return a machine with one container; `fields` are for the Server or the container."""
        own = {f.name for f in msgspec.structs.fields(ServerSpec)}
        of_server = {name: value for name, value in fields.items() if name in own}
        of_container = {name: value for name, value in fields.items() if name not in own}
        container = Container(
            name="app", image=self.engine.image(image), command=list(command), **of_container
        )
        return self.of_containers(container, **of_server)

    def of_containers(self, *containers: Container, **fields: Any) -> ServerSpec:
        fields.setdefault("termination_grace_period_seconds", 1)
        return ServerSpec(
            instance_type="d1", template_hash="hash", containers=list(containers), **fields
        )

    def containers(self) -> list[str]:
        """Return the names of all containers, running or not."""
        return self.engine.podman("ps", "--all", "--format", "{{.Names}}").split()


def an_interface(address: str, gateway: str, prefix_length: int) -> NetworkInterfaceStatus:
    given = InterfaceAddress(
        family="IPv6" if ":" in address else "IPv4",
        address=address,
        prefix_length=prefix_length,
        gateway=gateway,
    )
    return NetworkInterfaceStatus(addresses=[given], mtu=1400)


def a_probe(**fields: Any) -> Probe:
    return msgspec.convert(fields, type=Probe)
