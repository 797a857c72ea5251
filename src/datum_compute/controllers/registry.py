"""All controllers, by the process that runs them. A house test fails if one is missing."""

from __future__ import annotations

from datum_compute.controllers.cell import (
    claim,
    claimrelease,
    deployment,
    instance,
    machine,
    provisioner,
    publishing,
    writeback,
)
from datum_compute.controllers.context import SINGLE_CLUSTER, Context
from datum_compute.controllers.hub import binding, cluster, execution, leaving, work
from datum_compute.controllers.management import (
    attachment,
    catalogue,
    companion,
    defaultnetwork,
    federator,
    home,
    instancetype,
    ipallocation,
    leftclaim,
    locationbinding,
    network,
    networkbinding,
    networkcontext,
    policy,
    projector,
    quarantine,
    quota,
    referenceddata,
    registration,
    revision,
    subnet,
    subnetclaim,
    workload,
)
from datum_compute.controllers.membership import homes as homes_membership
from datum_compute.controllers.membership import projects as projects_membership
from datum_compute.controllers.neighbours import contents, definition, garbage, namespace
from datum_compute.controllers.platform import (
    consumer,
    entitlement,
    location,
    organization,
    project,
    service,
)
from datum_compute.runtime.controller import Controller

MANAGEMENT: tuple[Controller[Context], ...] = (
    workload.CONTROLLER,
    federator.CONTROLLER,
    policy.CONTROLLER,
    referenceddata.CONTROLLER,
    *companion.CONTROLLERS,
    home.CONTROLLER,
    *leftclaim.CONTROLLERS,
    projector.CONTROLLER,
    quarantine.CONTROLLER,
    catalogue.CONTROLLER,
    defaultnetwork.CONTROLLER,
    instancetype.CONTROLLER,
    network.CONTROLLER,
    networkbinding.CONTROLLER,
    networkcontext.CONTROLLER,
    subnetclaim.CONTROLLER,
    subnet.CONTROLLER,
    attachment.CONTROLLER,
    ipallocation.CONTROLLER,
    registration.CONTROLLER,
    location.CONTROLLER,
    *quota.CONTROLLERS,
    revision.CONTROLLER,
)

HUB: tuple[Controller[Context], ...] = (
    *binding.CONTROLLERS,
    *work.CONTROLLERS,
    execution.CONTROLLER,
    cluster.CONTROLLER,
    leaving.CONTROLLER,
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

# Only with real machines: simulated ones have no ports to publish.
PUBLISHING: tuple[Controller[Context], ...] = (publishing.CONTROLLER,)

NEIGHBOURS: tuple[Controller[Context], ...] = (
    *garbage.CONTROLLERS,
    *namespace.CONTROLLERS,
    *contents.CONTROLLERS,
    *definition.CONTROLLERS,
    organization.CONTROLLER,
    project.CONTROLLER,
    *service.CONTROLLERS,
    consumer.CONTROLLER,
    entitlement.CONTROLLER,
)

# Which projects a process works on: whoever sees the platform follows its projects, a cell alone
# the homes of their namespaces on the hub.
FOLLOW_PROJECTS: tuple[Controller[Context], ...] = (projects_membership.CONTROLLER,)
FOLLOW_HOMES: tuple[Controller[Context], ...] = (homes_membership.CONTROLLER,)

# Where projects, and the cities they may use, are listed by hand.
TELL_OF_CITIES: tuple[Controller[Context], ...] = (locationbinding.CONTROLLER,)

# The two halves of a platform in several processes: what works beside the hub, and what beside each
# cell. The neighbours stay with the planes whose store they look into.
BESIDE_HUB: tuple[Controller[Context], ...] = (
    *MANAGEMENT,
    *HUB,
    *(c for c in NEIGHBOURS if c.role != "cell"),
    *FOLLOW_PROJECTS,
)
BESIDE_CELL: tuple[Controller[Context], ...] = (
    *CELL,
    *(c for c in NEIGHBOURS if c.role == "cell"),
)


def runs_in(controller: Controller[Context], mode: str) -> bool:
    return not controller.modes or mode in controller.modes


def single_cluster(project: str) -> tuple[Controller[Context], ...]:
    """The controllers of a single cluster, which belongs to `project`."""
    kept = (c for c in (*MANAGEMENT, *CELL) if runs_in(c, SINGLE_CLUSTER))
    release = claimrelease.controller(project)
    bindings = locationbinding.controller(alone=True)
    return (*(release if c is claimrelease.CONTROLLER else c for c in kept), bindings)
