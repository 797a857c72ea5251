"""Every controller, by hand; the house test fails on a forgotten line."""

from __future__ import annotations

from datum_compute.controllers.cell import (
    claim,
    claimrelease,
    deployment,
    instance,
    machine,
    provisioner,
    writeback,
)
from datum_compute.controllers.context import Context
from datum_compute.controllers.hub import binding, cluster, execution, work
from datum_compute.controllers.management import (
    attachment,
    catalogue,
    federator,
    ipallocation,
    network,
    networkbinding,
    networkcontext,
    policy,
    projector,
    quota,
    registration,
    subnet,
    subnetclaim,
    workload,
)
from datum_compute.controllers.neighbours import contents, definition, garbage, namespace
from datum_compute.runtime.controller import Controller

MANAGEMENT: tuple[Controller[Context], ...] = (
    workload.CONTROLLER,
    federator.CONTROLLER,
    policy.CONTROLLER,
    projector.CONTROLLER,
    catalogue.CONTROLLER,
    network.CONTROLLER,
    networkbinding.CONTROLLER,
    networkcontext.CONTROLLER,
    subnetclaim.CONTROLLER,
    subnet.CONTROLLER,
    attachment.CONTROLLER,
    ipallocation.CONTROLLER,
    registration.CONTROLLER,
    *quota.CONTROLLERS,
)

HUB: tuple[Controller[Context], ...] = (
    *binding.CONTROLLERS,
    *work.CONTROLLERS,
    execution.CONTROLLER,
    cluster.CONTROLLER,
)

CELL: tuple[Controller[Context], ...] = (
    deployment.CONTROLLER,
    instance.CONTROLLER,
    claim.CONTROLLER,
    claimrelease.CONTROLLER,
    *provisioner.CONTROLLERS,
    *machine.CONTROLLERS,
    writeback.CONTROLLER,
)

NEIGHBOURS: tuple[Controller[Context], ...] = (
    *garbage.CONTROLLERS,
    *namespace.CONTROLLERS,
    *contents.CONTROLLERS,
    *definition.CONTROLLERS,
)

# What only makes sense where planes are many: the way to the hub and back, and copies.
_OF_MANY_PLANES: tuple[Controller[Context], ...] = (
    federator.CONTROLLER,
    policy.CONTROLLER,
    projector.CONTROLLER,
    catalogue.CONTROLLER,
    writeback.CONTROLLER,
)


def single_cluster(project: str) -> tuple[Controller[Context], ...]:
    """Both groups where one API server is everything, for this project."""
    kept = (c for c in (*MANAGEMENT, *CELL) if c not in _OF_MANY_PLANES)
    released = claimrelease.controller(project)
    return tuple(released if c is claimrelease.CONTROLLER else c for c in kept)
