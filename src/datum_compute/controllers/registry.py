"""All controllers, by the process that runs them. A house test fails if one is missing."""

from __future__ import annotations

from datum_compute.controllers.cell import claimrelease, writeback
from datum_compute.controllers.cluster import definitions as definition
from datum_compute.controllers.cluster import garbage_collector as garbage
from datum_compute.controllers.cluster import namespaces as namespace
from datum_compute.controllers.context import SINGLE_CLUSTER, Context
from datum_compute.controllers.federation import deployment as federator
from datum_compute.controllers.federation import hub_namespaces as home
from datum_compute.controllers.federation import instances as projector
from datum_compute.controllers.federation import referenced_objects as companion
from datum_compute.controllers.hub import execution, leaving
from datum_compute.controllers.karmada import bindings as binding
from datum_compute.controllers.karmada import clusters as cluster
from datum_compute.controllers.karmada import works as work
from datum_compute.controllers.management import (
    catalogue,
    defaultnetwork,
    leftclaim,
    locationbinding,
    networkbinding,
    networkcontext,
    policy,
    quarantine,
    referenceddata,
    registration,
    revision,
    subnetclaim,
)
from datum_compute.controllers.membership import homes as homes_membership
from datum_compute.controllers.neighbours import contents
from datum_compute.controllers.network import attachment
from datum_compute.controllers.network import ip_allocations as ipallocation
from datum_compute.controllers.network import networks as network
from datum_compute.controllers.network import subnets as subnet
from datum_compute.controllers.platform import consumer, organization
from datum_compute.controllers.platform import entitlements as entitlement
from datum_compute.controllers.platform import instance_types as instancetype
from datum_compute.controllers.platform import locations as location
from datum_compute.controllers.platform import membership as projects_membership
from datum_compute.controllers.platform import projects as project
from datum_compute.controllers.platform import services as service
from datum_compute.controllers.quota import claims as claim
from datum_compute.controllers.quota import decisions as quota
from datum_compute.controllers.workload import deployment, instance, machine, workload
from datum_compute.controllers.workload import endpoints as publishing
from datum_compute.controllers.workload import server as provisioner
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
