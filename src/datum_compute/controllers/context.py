"""Context: what every controller receives, and the state that the process keeps in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from datum_compute.api.holdings import Holdings
from datum_compute.api.plane import PlaneName
from datum_compute.api.timestamps import timestamp
from datum_compute.controllers.address_allocator import AddressAllocator
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.traffic import Traffic
from datum_compute.planes.lifecycle import PlaneLifecycle
from datum_compute.planes.membership import ProjectMembership
from datum_compute.planes.planes import Planes
from datum_compute.runtime.controller import Key


@dataclass(frozen=True, slots=True)
class CellProbing:
    """How often the hub probes a cell, and when it reports the cell as unreachable.

    Every cell is probed every ``probe_s``. A cell that was Ready becomes not Ready when probes have
    failed for ``grace_s``. The reported time is that of the first failed probe.
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

    # Addresses that were chosen and are not in an Instance status yet. The network gate writes and
    # reads them. A new process fills the book from the recorded Instances and Servers; a choice
    # that was not recorded was given to no machine.
    addresses: AddressAllocator = field(default_factory=AddressAllocator)

    # Claims whose deletion has begun, with their uid. The claim-release controller writes them
    # before it reads from the cell that the slot is empty; the quota gate reads them and clears no
    # gate by such a claim. So no instance gets a machine between that read and the deletion. A new
    # process reads from the cell again before it deletes, and the quota gate reads a claim from
    # its project before it clears a gate, unless the claim was granted seconds ago.
    claims_being_released: dict[Key, str] = field(default_factory=dict)

    # By cell, since when (``elapsed_s``) probes have failed. Only the cluster controller writes and
    # reads it. In a new leader the grace period starts again: a Ready cell that does not answer is
    # reported later, never earlier.
    unreachable_since_s: dict[str, float] = field(default_factory=dict)

    # By deployment, uids of instances whose recorded readiness the driver has confirmed. Only the
    # deployment controller writes and reads it. A new process queries the driver again and
    # removes no instance because of an unconfirmed record.
    confirmed_instances: dict[Key, frozenset[str]] = field(default_factory=dict)

    # By copy on the hub, since when (``elapsed_s``) its owner has not been found. Written and read
    # by the quarantine and projector controllers. In a new leader the grace period starts again: a
    # copy is quarantined later, never earlier.
    unresolved_since_s: dict[Key, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    planes: Planes
    drivers: Mapping[PlaneName, Driver]
    unix_s: Callable[[], float]
    # Monotonic clock for durations.
    elapsed_s: Callable[[], float]
    # For controllers that only run beside the server of their planes.
    holdings: Callable[[PlaneName], Holdings]
    authority: str  # the certificates that clients of the planes trust, as PEM
    # In a single cluster, the project of all namespaces without an identity; otherwise empty.
    single_project: str = ""
    # Which projects this process works on. None if one API server is all planes.
    membership: ProjectMembership | None = None
    # For the controller of projects, which only runs beside the server of their planes.
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
