"""A project whose networks are reconciled, with the platform and the hub."""

from __future__ import annotations

from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.planes import HUB, PLATFORM, project_plane
from datum_compute.client.client import Client
from datum_compute.controllers.network.networks import (
    BINDING_CONTROLLER,
    CONTEXT_CONTROLLER,
    DEFAULT_NETWORK_CONTROLLER,
    NETWORK_CONTROLLER,
)
from datum_compute.controllers.network.subnets import SUBNET_CLAIM_CONTROLLER, SUBNET_CONTROLLER
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace

PROJECT = project_plane("shop")
NETWORK_CONTROLLERS = (
    NETWORK_CONTROLLER,
    DEFAULT_NETWORK_CONTROLLER,
    BINDING_CONTROLLER,
    CONTEXT_CONTROLLER,
    SUBNET_CONTROLLER,
    SUBNET_CLAIM_CONTROLLER,
)


async def a_network_project(planes: InProcessPlanes) -> Client:
    """Return a client of a project with an empty namespace and no location."""
    await planes.create(PLATFORM)
    await planes.create(HUB)
    project = await planes.create(PROJECT)
    await project.create(NAMESPACE, a_namespace("default"))
    return project
