"""``python -m examples.ordered_set [CONTEXT]``: run the controllers on a plane of a kubeconfig.

The name of the context is the name of the plane.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from datum_compute.api.errors import AlreadyExists
from datum_compute.api.kinds import DEFINITION
from datum_compute.api.planes import PlaneName, plane_role
from datum_compute.api.schema.derive import crd_manifest
from datum_compute.app.environment import process_environment
from datum_compute.app.process import run_until_stopped
from datum_compute.client.auth.credentials import AuthEnvironment
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client
from datum_compute.client.connect import open_transport
from datum_compute.planes.planes import Planes
from datum_compute.runtime.manager import Manager
from examples.ordered_set.controllers import controllers
from examples.ordered_set.kinds import MEMBER, ORDERED_SET


async def define(client: Client) -> None:
    """Create the CustomResourceDefinitions of both kinds, unless they exist."""
    for kind in (ORDERED_SET, MEMBER):
        try:
            await client.create_plain(DEFINITION, crd_manifest(kind))
        except AlreadyExists:
            continue


async def serve(context: str, stop: asyncio.Event) -> None:
    environment = process_environment()
    outside = AuthEnvironment(
        environ=dict(os.environ),
        is_terminal=False,
        unix_s=environment.unix_s,
        random=environment.random,
    )
    config = load_kubeconfig([Path(os.environ["KUBECONFIG"])])
    connection = connection_of(config, context)
    plane = PlaneName(context)
    async with open_transport(connection, outside) as transport:
        client = build_client(connection, transport)
        await define(client)
        manager = Manager(
            controllers(plane_role(plane)),
            lambda made: Planes(made.cached_client),
            environment.random,
        )
        manager.engage(plane, client)
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            await manager.wait_for_sync()
            logging.info("at work on %s", plane)
            await stop.wait()
            await manager.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    if "KUBECONFIG" not in os.environ:
        sys.exit("usage: KUBECONFIG=FILE python -m examples.ordered_set [CONTEXT]")
    chosen = sys.argv[1] if len(sys.argv) > 1 else "hub"
    sys.exit(run_until_stopped(lambda stop: serve(chosen, stop)))
