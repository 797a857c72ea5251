"""All controllers, by the process that runs them. A test fails if a controller is missing."""

from __future__ import annotations

from datum_compute.controllers.cluster import definitions, garbage_collector, namespaces
from datum_compute.controllers.context import SINGLE_CLUSTER, Context
from datum_compute.controllers.federation import deployment as federated_deployment
from datum_compute.controllers.federation import hub_namespaces, instances, referenced_objects
from datum_compute.controllers.karmada import bindings, clusters, works
from datum_compute.controllers.network import attachment, ip_allocations, networks, subnets
from datum_compute.controllers.platform import (
    cell_members,
    entitlements,
    instance_types,
    locations,
    membership,
    projects,
    services,
)
from datum_compute.controllers.quota import claims, decisions
from datum_compute.controllers.workload import (
    deployment,
    endpoints,
    instance,
    machine,
    server,
    workload,
)
from datum_compute.runtime.controller import Controller

MANAGEMENT: tuple[Controller[Context], ...] = (
    workload.WORKLOAD_CONTROLLER,
    federated_deployment.CONTROLLER,
    hub_namespaces.POLICY_CONTROLLER,
    referenced_objects.SOURCE_RESOLUTION_CONTROLLER,
    *referenced_objects.SOURCE_COPY_CONTROLLERS,
    hub_namespaces.NAMESPACE_CONTROLLER,
    *claims.ORPHANED_CLAIM_CONTROLLERS,
    instances.PROJECT_COPY_CONTROLLER,
    instances.QUARANTINE_CONTROLLER,
    instance_types.COPY_CONTROLLER,
    networks.DEFAULT_NETWORK_CONTROLLER,
    instance_types.INSTANCE_TYPE_CONTROLLER,
    networks.NETWORK_CONTROLLER,
    networks.BINDING_CONTROLLER,
    networks.CONTEXT_CONTROLLER,
    subnets.SUBNET_CLAIM_CONTROLLER,
    subnets.SUBNET_CONTROLLER,
    attachment.CONTROLLER,
    ip_allocations.CONTROLLER,
    decisions.REGISTRATION_CONTROLLER,
    locations.LOCATION_CONTROLLER,
    *decisions.DECISION_CONTROLLERS,
    workload.REVISION_CONTROLLER,
)

# Controllers that replace Karmada on the embedded hub. A real Karmada runs its own instead.
HUB: tuple[Controller[Context], ...] = (
    *bindings.CONTROLLERS,
    *works.WORK_CONTROLLERS,
    works.EXECUTION_CONTROLLER,
    clusters.CLUSTER_CONTROLLER,
    clusters.CLUSTER_REMOVAL_CONTROLLER,
)

CELL: tuple[Controller[Context], ...] = (
    deployment.CONTROLLER,
    instance.CONTROLLER,
    claims.CLAIM_CONTROLLER,
    claims.RELEASE_CONTROLLER,
    *server.CONTROLLERS,
    *machine.CONTROLLERS,
    instances.HUB_COPY_CONTROLLER,
)

# Only with real machines: simulated ones have no ports to publish.
PUBLISHING: tuple[Controller[Context], ...] = (endpoints.CONTROLLER,)

# Controllers of a Kubernetes cluster and of the platform. They run with the planes of the embedded
# server; a real cluster or platform runs its own.
CLUSTER: tuple[Controller[Context], ...] = (
    *garbage_collector.CONTROLLERS,
    *namespaces.NAMESPACE_CONTROLLERS,
    *namespaces.CONTENT_CONTROLLERS,
    *definitions.CONTROLLERS,
    projects.ORGANIZATION_CONTROLLER,
    projects.PROJECT_CONTROLLER,
    *services.SERVICE_CONTROLLERS,
    services.CONSUMER_CONTROLLER,
    entitlements.CONTROLLER,
)

# These select the projects on which a process works. A process with the platform plane watches its
# projects; a cell without it watches the hub namespaces, or if it has joined, its own namespaces.
PROJECT_MEMBERSHIP: tuple[Controller[Context], ...] = (membership.PROJECT_CONTROLLER,)
HUB_NAMESPACE_MEMBERSHIP: tuple[Controller[Context], ...] = (membership.HUB_NAMESPACE_CONTROLLER,)
CELL_NAMESPACE_MEMBERSHIP: tuple[Controller[Context], ...] = (membership.CELL_NAMESPACE_CONTROLLER,)

# Connects the process to the cells that have joined its hub.
CELL_MEMBERS: tuple[Controller[Context], ...] = (cell_members.CONTROLLER,)

# For platforms where an operator lists the projects and the cities that each may use.
LOCATION_BINDINGS: tuple[Controller[Context], ...] = (locations.BINDING_CONTROLLER,)

# A platform of several processes: one for the hub, and one for each cell.
HUB_PROCESS: tuple[Controller[Context], ...] = (
    *MANAGEMENT,
    *HUB,
    *(c for c in CLUSTER if c.role != "cell"),
    *PROJECT_MEMBERSHIP,
)
CELL_PROCESS: tuple[Controller[Context], ...] = (
    *CELL,
    *(c for c in CLUSTER if c.role == "cell"),
    *CELL_NAMESPACE_MEMBERSHIP,
)

# Groups that an operator can switch off (``--feature-gates``). No other controller waits for their
# work or depends on them for cleanup.
FEATURES: dict[str, tuple[Controller[Context], ...]] = {
    # Off: operators maintain the instance types of every plane.
    "InstanceTypes": (instance_types.COPY_CONTROLLER, instance_types.INSTANCE_TYPE_CONTROLLER),
    # Off: a namespace has only the networks that its users create.
    "DefaultNetworks": (networks.DEFAULT_NETWORK_CONTROLLER,),
    # Off: hub copies without a valid target are retried and never quarantined.
    "Quarantine": (instances.QUARANTINE_CONTROLLER,),
    # Off: workloads have no revision history.
    "WorkloadRevisions": (workload.REVISION_CONTROLLER,),
}

# Metrics that controllers compute from cached objects.
GAUGES = (instances.quarantine_gauge,)


def runs_in(controller: Controller[Context], mode: str) -> bool:
    return not controller.modes or mode in controller.modes


def single_cluster(project: str) -> tuple[Controller[Context], ...]:
    """Return the controllers of a single cluster, which belongs to `project`."""
    selected = (c for c in (*MANAGEMENT, *CELL) if runs_in(c, SINGLE_CLUSTER))
    release = claims.controller(project)
    binding = locations.controller(single_cluster=True)
    return (*(release if c is claims.RELEASE_CONTROLLER else c for c in selected), binding)
