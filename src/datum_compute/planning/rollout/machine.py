"""The machine of a Server: when it is started and removed, and the Server status that reports it.

Rules:
- The Server has the driver's finalizer before its machine is started. The finalizer is removed when
  the driver no longer observes the machine.
- A machine that served and is gone is reported before a new one is started, because the start may
  take long or fail.
- A machine of the same name that belongs to no Server is removed first, so that a slot never has
  two machines.
- The versions of ConfigMaps and Secrets are recorded before the machine is started with them. A
  machine that exists was therefore started with the recorded versions, even after a crash.
- A permanent error of the driver is recorded as phase Failed. It is not retried.
- The machine of a suspended Server is drained, stopped and kept. A Server without a machine gets
  none while it is suspended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Protocol

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.instance import AVAILABLE, ImageRecord, Instance
from datum_compute.api.compute.referenced_data import Reference
from datum_compute.api.compute.scale_to_zero import Wake
from datum_compute.api.compute.server import Phase, Server, ServerStatus
from datum_compute.api.conditions import TRUE, Reason, is_true
from datum_compute.api.kinds import SERVER
from datum_compute.api.planes import PlaneName
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Plan, add_finalizer, drop_finalizer
from datum_compute.planning.rollout.referenced_data import (
    ObservedSources,
    check_sources,
    pinned_versions,
)
from datum_compute.planning.rollout.server import is_server_of
from datum_compute.planning.rollout.slots import has_gates, is_observed_not_ready

# Drivers report changes as events. These delays limit the effect of a lost event.
RECHECK_S = 1.0
UNSETTLED_S = 10.0
SETTLED_S = 300.0
SETTLED: tuple[Phase, ...] = ("Running", "Sleeping")
# Phases in which the Instance of the Server counts as serving. Unknown is one of them, because it
# is only recorded for a machine that was observed before.
MAY_SERVE: tuple[Phase, ...] = (*SETTLED, "Unknown")


class MachineReport(Protocol):
    """What a driver reports about a machine; ``MachineState`` of the drivers has these fields."""

    @property
    def phase(self) -> Phase: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def restarts(self) -> int: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def started_at(self) -> str | None: ...
    @property
    def addresses(self) -> tuple[str, ...]: ...
    @property
    def last_lines(self) -> tuple[str, ...]: ...
    @property
    def images(self) -> tuple[ImageRecord, ...]: ...
    @property
    def last_wake(self) -> Wake | None: ...
    @property
    def spec_fingerprint(self) -> str: ...
    @property
    def is_recovering(self) -> bool: ...
    @property
    def is_suspended(self) -> bool: ...


class MachineStep(Enum):
    """What the machine controller does next for a Server."""

    REMOVE = auto()  # remove the machine, and release the Server when it is gone
    ADD_FINALIZER = auto()
    OBSERVE = auto()
    REPORT = auto()  # write the status that follows from the observation
    START = auto()
    SUSPEND = auto()  # stop the machine and keep it
    RESUME = auto()  # start a machine that was stopped by SUSPEND


def machine_id_of(server: Server) -> str:
    """Return the id of the machine. It contains the uid of the Server, so it is never reused."""
    metadata = server.metadata
    return f"{metadata.namespace}/{metadata.name}/{metadata.uid}"


def first_step(server: Server) -> MachineStep:
    """Return the step that follows from the Server alone."""
    if server.is_terminating:
        return MachineStep.REMOVE
    if labels.DRIVER_FINALIZER not in server.metadata.finalizers:
        return MachineStep.ADD_FINALIZER
    return MachineStep.OBSERVE


def step_after_observation(
    server: Server, *, has_machine: bool, is_suspended: bool = False, is_stopped: bool = False
) -> MachineStep:
    """Return the step that follows from an observation.

    A machine that cannot be observed counts as present. ``is_suspended`` and ``is_stopped`` are
    what the driver reports about the machine: its suspension was requested, no process runs.
    Suspension is requested until the machine is stopped, because the first requests drain its
    connections.
    """
    if server.spec.suspended:
        is_running = has_machine and not is_stopped
        return MachineStep.SUSPEND if is_running else MachineStep.REPORT
    if is_suspended:
        return MachineStep.RESUME
    if has_machine or server.status.phase in MAY_SERVE:
        return MachineStep.REPORT
    return MachineStep.START


def orphan_machines(found: Iterable[str], servers: Iterable[Server | None]) -> list[str]:
    """Return the ids in ``found`` that belong to none of the Servers."""
    owned = {machine_id_of(server) for server in servers if server is not None}
    return [machine_id for machine_id in found if machine_id not in owned]


def plan_finalizer(plane: PlaneName, server: Server) -> Plan:
    return Plan(tuple(add_finalizer(plane, SERVER, server, labels.DRIVER_FINALIZER)))


def plan_machine_release(plane: PlaneName, server: Server, *, has_machine: bool) -> Plan:
    """Release a Server that is being deleted as soon as its machine is gone."""
    if has_machine:
        return Plan(requeue_after_s=RECHECK_S)
    return Plan(tuple(drop_finalizer(plane, SERVER, server, labels.DRIVER_FINALIZER)))


def plan_server_status(plane: PlaneName, server: Server, status: ServerStatus) -> Plan:
    is_stopped = server.spec.suspended and _is_stopped(status)
    if is_stopped or (status.phase in SETTLED and not server.spec.suspended):
        recheck_s = SETTLED_S
    else:
        recheck_s = RECHECK_S if server.spec.suspended else UNSETTLED_S
    return Plan(
        tuple(plan_status(plane, SERVER, server, status)),
        requeue_after_s=recheck_s,
    )


def _is_stopped(status: ServerStatus) -> bool:
    return (status.phase, status.reason) == ("Stopped", Reason.STOPPED)


def status_before_start(
    server: Server, wanted: Sequence[Reference], observed: ObservedSources
) -> ServerStatus | None:
    """Return the status to record before the machine may be started; None if it may start now."""
    value = check_sources(wanted, observed)
    if value.status != TRUE:
        return _without_machine(server, "Pending", value.reason, value.message)
    pins = pinned_versions(wanted, observed)
    if server.status.referenced_data == pins:
        return None
    starting = _without_machine(
        server, "Pending", Reason.STARTING, "reading its ConfigMaps and Secrets"
    )
    return msgspec.structs.replace(starting, referenced_data=pins)


def failed_status(server: Server, message: str) -> ServerStatus:
    """Return the status of a Server whose machine can never start."""
    return _without_machine(server, "Failed", Reason.CONFIGURATION_ERROR, message)


def observed_status(server: Server, state: MachineReport | None) -> ServerStatus:
    """Return the Server status that follows from an observation.

    Phase Unknown changes only phase, reason and message, so that addresses and images are kept. A
    Server that was never observed keeps its empty status. A machine that is stopped, because its
    Server is suspended, keeps its addresses and images in the same way. A missing
    machine of such a Server counts as stopped.
    """
    if state is None and server.spec.suspended:
        return _stopped_status(server, Reason.STOPPED, "the machine is stopped")
    is_suspended = server.spec.suspended or (state is not None and state.is_suspended)
    if state is not None and is_suspended and state.phase == "Stopped":
        return _stopped_status(server, state.reason, state.message)
    if state is None:
        return ServerStatus(
            phase="Pending",
            message="the machine is gone and is started again",
            observed_generation=server.metadata.generation,
            referenced_data=server.status.referenced_data,
        )
    if state.phase == "Unknown":
        if not server.status.observed_generation:
            return server.status
        return msgspec.structs.replace(
            server.status, phase=state.phase, reason=state.reason, message=state.message
        )
    return ServerStatus(
        phase=state.phase,
        reason=state.reason,
        message=state.message,
        restarts=state.restarts,
        exit_code=state.exit_code,
        started_at=state.started_at,
        addresses=list(state.addresses),
        last_lines=list(state.last_lines),
        observed_generation=server.metadata.generation,
        referenced_data=server.status.referenced_data,
        images=list(state.images),
        last_wake=state.last_wake or server.status.last_wake,
        spec_fingerprint=state.spec_fingerprint,
        recovering=state.is_recovering,
    )


def _stopped_status(server: Server, reason: str, message: str) -> ServerStatus:
    return msgspec.structs.replace(
        server.status,
        phase="Stopped",
        reason=reason,
        message=message,
        started_at=None,
        recovering=False,
        observed_generation=server.metadata.generation,
    )


# --- readiness that was recorded before a restart


def needs_confirmation(instance: Instance, server: Server) -> bool:
    """Return True if the instance is recorded as not ready and its machine may have recovered."""
    if has_gates(instance) or instance.is_terminating or not is_observed_not_ready(instance):
        return False
    return is_server_of(server, instance) and not server.is_terminating


def confirms_not_ready(instance: Instance, state: MachineReport | None) -> bool:
    """Return True if an observation confirms the record that the instance is not ready.

    A machine that does not serve confirms it. If the machine serves and the instance is recorded as
    not Available, the record is outdated and will be updated. If the instance is recorded as
    Available, it is not ready for a reason that no driver observes.
    """
    if state is not None and state.phase == "Unknown":
        return False
    return not machine_serves(state) or is_true(instance.status.conditions, AVAILABLE)


def machine_serves(state: MachineReport | None) -> bool:
    """Return True if the machine accepts connections. A sleeping one wakes for them."""
    if state is None:
        return False
    return state.phase == "Sleeping" or (state.phase == "Running" and not state.reason)


def _without_machine(server: Server, phase: Phase, reason: str, message: str) -> ServerStatus:
    return ServerStatus(
        phase=phase,
        reason=reason,
        message=message,
        observed_generation=server.metadata.generation,
        referenced_data=server.status.referenced_data,
        last_wake=server.status.last_wake,
    )
