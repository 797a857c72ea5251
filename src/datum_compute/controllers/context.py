"""Context: what every controller receives, and the state that the process keeps in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from datum_compute.api.inventory import Holdings
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import PlaneName
from datum_compute.controllers.address_allocator import AddressAllocator
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.traffic import Traffic
from datum_compute.planes.cell_members import CellMembers
from datum_compute.planes.lifecycle import PlaneLifecycle
from datum_compute.planes.membership import ProjectMembership
from datum_compute.planes.planes import Planes
from datum_compute.runtime.controller import Key


@dataclass(frozen=True, slots=True)
class CellProbing:
    """How often the hub probes a cell, and when it reports the cell as unreachable.

    Every cell is probed every ``probe_s``. A cell that was Ready becomes not Ready when it has not
    responded for ``grace_s``. The reported time is that of its last response.
    """

    probe_s: float = 10.0
    grace_s: float = 30.0


# Deployment modes, for `Controller.modes`. Federated: projects, hub and cells are separate planes.
# Single cluster: one API server serves all roles, so nothing is copied between planes.
FEDERATED, SINGLE_CLUSTER = "federated", "single-cluster"


def ignore_mapping(_edge: str, _outcome: str) -> None:
    """Ignore a mapping when no metrics are collected."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State of controllers that exists only in the memory of this process.

    Every other fact is read from a plane. Each field states who writes it, who reads it, and why
    the empty value of a new process or leader is safe. Two rules replace locks: only the event
    loop of the process accesses the fields, and the queue runs one reconcile per key at a time.
    """

    # Addresses of instances, including those that are not in an Instance status yet. Only the
    # network gate uses the allocator. A new process fills it from the recorded Instances and
    # Servers. An address that was not recorded was not used by any machine.
    addresses: AddressAllocator = field(default_factory=AddressAllocator)

    # Claims that are being released, with their uid. The claim-release controller adds a claim
    # before it confirms by a live read of the cell that the slot is empty. The quota gate does not
    # clear a gate with such a claim, so no instance gets a machine between that read and the
    # deletion. A new process starts empty, which is safe: it reads the cell again before it
    # deletes, and the quota gate confirms a claim by a live read, unless it was granted seconds
    # ago.
    claims_being_released: dict[Key, str] = field(default_factory=dict)

    # Instances that wait for quota, with the delay of their rechecks as it was last logged.
    logged_quota_rechecks: dict[Key, float] = field(default_factory=dict)

    # By cell, the times (``elapsed_s``) of its last response and since which it has not responded.
    # Only the cluster controller writes and reads them. In a new leader the grace period starts
    # again, so a Ready cell that does not respond is reported later, never earlier.
    last_response_s: dict[str, float] = field(default_factory=dict)
    unreachable_since_s: dict[str, float] = field(default_factory=dict)

    # By deployment, uids of instances whose recorded readiness the driver has confirmed. Only the
    # deployment controller writes and reads it. A new process queries the driver again and
    # removes no instance because of an unconfirmed record.
    confirmed_instances: dict[Key, frozenset[str]] = field(default_factory=dict)

    # By copy on the hub, the time (``elapsed_s``) since which its owner has not been found. The
    # quarantine and projector controllers write and read it. In a new leader the grace period
    # starts again, so a copy is quarantined later, never earlier.
    unresolved_since_s: dict[Key, float] = field(default_factory=dict)

    # By instance, its uid, if this process has planned its copy on the hub. Only the writeback
    # controller writes and reads it. If the copy is gone, the controller confirms the owner by a
    # live read before it creates the copy again. A new process does so for every instance that is
    # older than a few seconds.
    published_instances: dict[Key, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """What a controller needs besides the key: planes, drivers, clocks, settings and state."""

    planes: Planes
    drivers: Mapping[PlaneName, Driver]
    unix_s: Callable[[], float]
    # Monotonic clock for durations.
    elapsed_s: Callable[[], float]
    # All stored objects of a plane. Only the process that serves the plane can provide them.
    holdings: Callable[[PlaneName], Holdings]
    authority: str  # the certificates that clients of the planes trust, as PEM
    # In a single cluster, the project of all namespaces without an identity; otherwise empty.
    single_project: str = ""
    # Whether instances and workloads need quota. An operator can switch quota off.
    enforces_quota: bool = True
    # The projects that this process works on. None in a single cluster.
    membership: ProjectMembership | None = None
    # The cells that have joined. None if this process does not connect to cells.
    cell_members: CellMembers | None = None
    # Creates and deletes the planes of projects. Only set in the process that serves them.
    plane_lifecycle: PlaneLifecycle | None = None
    # Counts mappings from one object to another, by edge and outcome.
    count_mapping: Callable[[str, str], None] = ignore_mapping
    # How connections from outside reach machines. None if this process publishes no ports.
    traffic: Traffic | None = None
    # How the hub probes cells.
    cell_probing: CellProbing = field(default_factory=CellProbing)
    state: ProcessState = field(default_factory=ProcessState)

    def now(self) -> str:
        return timestamp(self.unix_s())
