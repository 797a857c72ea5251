"""``compute-manager``: the controllers without the planes, against any Kubernetes-like APIs.

The planes are the contexts of a kubeconfig: ``hub``, ``project/<name>``, ``cell/<name>``. Each
group of controllers runs only if its flag is given; the planes it needs must be there.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.app.files import private_directory
from datum_compute.app.loop import run_until_stopped
from datum_compute.app.machines import simulated_driver
from datum_compute.app.ports import real_ports
from datum_compute.app.settings import ManagerSettings, configure_logging, manager_settings
from datum_compute.app.wiring import build_manager
from datum_compute.client.client import Client
from datum_compute.client.connecting import open_transport
from datum_compute.client.credentials import Outside
from datum_compute.client.kubeconfig import (
    KubeconfigError,
    build_client,
    connection_of,
    load_kubeconfig,
)
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller

_log = logging.getLogger("datum_compute.manager")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = manager_settings(sys.argv[1:] if arguments is None else arguments)
    configure_logging(settings.log_level)
    try:
        return run_until_stopped(lambda stop: manage(settings, stop))
    except KubeconfigError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201
        return 1


async def manage(settings: ManagerSettings, stop: asyncio.Event) -> None:
    async with AsyncExitStack() as connections:
        ports = real_ports()
        outside = Outside(
            environ=settings.environment,
            is_terminal=False,
            unix_s=ports.unix_s,
            random=ports.random,
        )
        clients = await _clients(settings, connections, outside)
        state = private_directory(settings.state_dir)
        drivers = {
            plane: simulated_driver(
                state / f"machines-{plane.replace('/', '-')}.json",
                ports.unix_s,
                boot_s=settings.boot_s,
            )
            for plane in clients
            if plane_role(plane) == "cell"
        }
        manager = build_manager(_controllers(settings), drivers, ports)
        for plane, client in clients.items():
            manager.engage(plane, client)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            _log.info("running on %s", ", ".join(sorted(clients)))
            await stop.wait()
            running.cancel()


def _controllers(settings: ManagerSettings) -> tuple[Controller[Context], ...]:
    return (
        *(registry.MANAGEMENT if settings.management else ()),
        *(registry.HUB if settings.propagator else ()),
        *(registry.CELL if settings.cell else ()),
    )


async def _clients(
    settings: ManagerSettings, connections: AsyncExitStack, outside: Outside
) -> dict[PlaneName, Client]:
    """A client for every context that names a plane the chosen controllers work on."""
    config = load_kubeconfig([settings.kubeconfig])
    roles = {"hub"} | ({"platform", "project"} if settings.management else set())
    roles |= {"cell"} if settings.cell or settings.propagator else set()
    roles |= {"project"} if settings.cell else set()  # the quota claims of its instances
    clients = {}
    for name in sorted(config.contexts):
        plane = PlaneName(name)
        if plane_role(plane) in roles:
            connection = connection_of(config, name)
            transport = await connections.enter_async_context(open_transport(connection, outside))
            clients[plane] = build_client(connection, transport)
    missing = roles - {plane_role(plane) for plane in clients}
    if missing:
        listed = ", ".join(sorted(missing))
        raise KubeconfigError(f"{settings.kubeconfig} has no context for: {listed}")
    return clients
