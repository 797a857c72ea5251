"""Construction of a runtime manager with controllers, the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from datum_compute.api.inventory import Holdings
from datum_compute.api.labels import FEDERATION_FINALIZERS
from datum_compute.api.planes import PlaneName, plane_role
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.client.client import Client
from datum_compute.controllers import registry
from datum_compute.controllers.context import CellProbing, Context, ignore_mapping
from datum_compute.controllers.events import ambiguous_mapping_event
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.traffic import Traffic
from datum_compute.planes.cell_members import CellMemberOptions, CellMembers
from datum_compute.planes.lifecycle import PlaneLifecycle
from datum_compute.planes.membership import ProjectMembership, Reach
from datum_compute.planes.planes import Planes, discard_event
from datum_compute.runtime.cached_client import LabelScope, noop
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.event_recorder import EventRecorder, EventRequest
from datum_compute.runtime.manager import Manager
from datum_compute.runtime.metrics import RuntimeMetrics
from datum_compute.runtime.worker import instrument
from datum_compute.telemetry.context import Tracer

COMPONENT = "compute-manager"  # the source of events


def _no_inventory(plane: PlaneName) -> Holdings:
    raise AssertionError(f"another process serves {plane}; its inventory is not available")


@dataclass(frozen=True, slots=True)
class ServedPlanes:
    """What only the process that serves the planes can provide to controllers."""

    inventory: Callable[[PlaneName], Holdings] = _no_inventory
    authority: str = ""  # the certificates that clients of the planes trust, as PEM
    lifecycle: PlaneLifecycle | None = None  # creates and deletes the planes of projects


@dataclass(frozen=True, slots=True)
class ManagerTelemetry:
    """Where controllers send events, spans and metrics."""

    record_event: Callable[[EventRequest], None] = discard_event
    tracer: Tracer | None = None
    registry: CollectorRegistry | None = None


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """How controllers reach planes and machines."""

    # In single-cluster mode, the only project.
    single_project: str = ""
    # Returns the client of a project that is created later; None if there are none.
    reach: Reach | None = None
    # The part of these projects that the process reads; None: everything.
    project_scope: LabelScope | None = None
    # How to connect to cells that have joined; None if the process does not connect to them.
    cell_members: CellMemberOptions | None = None
    # Called before every write; raises if the process does not lead.
    fence: Callable[[], None] = noop
    # How connections from outside reach machines; None if the process publishes no ports.
    traffic: Traffic | None = None
    cell_probing: CellProbing = field(default_factory=CellProbing)
    enforces_quota: bool = True


def build_manager(
    controllers: Sequence[Controller[Context]],
    drivers: Mapping[PlaneName, Driver],
    environment: ProcessEnvironment,
    *,
    served: ServedPlanes = ServedPlanes(),  # noqa: B008 - immutable
    telemetry: ManagerTelemetry = ManagerTelemetry(),  # noqa: B008 - immutable
    options: ManagerOptions = ManagerOptions(),  # noqa: B008 - immutable
) -> Manager[Context]:
    record_event, reach, members = telemetry.record_event, options.reach, options.cell_members
    metrics = RuntimeMetrics(telemetry.registry) if telemetry.registry is not None else None

    def build_context(manager: Manager[Context]) -> Context:
        is_single_cluster = bool(options.single_project)
        unmanaged_finalizers = FEDERATION_FINALIZERS if is_single_cluster else frozenset[str]()
        return Context(
            Planes(
                manager.cached_client, manager.engaged_planes, record_event, unmanaged_finalizers
            ),
            drivers,
            environment.unix_s,
            environment.elapsed_s,
            served.inventory,
            served.authority,
            options.single_project,
            enforces_quota=options.enforces_quota,
            membership=(
                ProjectMembership(
                    manager,
                    reach,
                    options.project_scope,
                    follows_platform=_has_membership(controllers),
                )
                if reach is not None
                else None
            ),
            cell_members=CellMembers(manager, members) if members is not None else None,
            plane_lifecycle=served.lifecycle,
            count_mapping=metrics.count_mapping if metrics is not None else ignore_mapping,
            traffic=options.traffic,
            cell_probing=options.cell_probing,
        )

    if members is not None:
        controllers = (*controllers, *registry.CELL_MEMBERS)
    manager = Manager(
        [instrument(controller, telemetry.tracer) for controller in controllers],
        build_context,
        environment.random,
        metrics=metrics,
        report=lambda ambiguous: record_event(ambiguous_mapping_event(ambiguous)),
        fence=options.fence,
    )
    if metrics is not None:
        metrics.register_gauges(tuple(gauge(manager.cached_client) for gauge in registry.GAUGES))
    return manager


def engage_configured_planes(
    manager: Manager[Context],
    clients: Mapping[PlaneName, Client],
    controllers: Sequence[Controller[Context]],
) -> None:
    """Engage the planes that are known when the process starts.

    If the process has the controller of membership, that controller reads on the platform plane
    whether a project is entitled and whether it is suspended. Until then the workloads of the
    project are not reconciled. Otherwise a restart would run the instances of a suspended project
    for a moment.
    """
    for plane, client in clients.items():
        is_undecided = _has_membership(controllers) and plane_role(plane) == "project"
        manager.engage(plane, client, entitled=not is_undecided)


def _has_membership(controllers: Sequence[Controller[Context]]) -> bool:
    return any(controller in registry.PROJECT_MEMBERSHIP for controller in controllers)


def build_event_recorder(
    client_of: Callable[[PlaneName], Client | None],
    environment: ProcessEnvironment,
    metrics: CollectorRegistry,
) -> EventRecorder:
    return EventRecorder(
        client_of,
        component=COMPONENT,
        unix_s=environment.unix_s,
        elapsed_s=environment.elapsed_s,
        registry=metrics,
    )
