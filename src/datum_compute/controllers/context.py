"""What every controller is given: the planes, the drivers of their cells, and the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from datum_compute.api.holdings import Holdings
from datum_compute.api.plane import PlaneName
from datum_compute.api.timestamps import timestamp
from datum_compute.controllers.cell.addressbook import AddressBook
from datum_compute.controllers.patience import Patience
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.traffic import Traffic
from datum_compute.planes.lifecycle import PlaneLifecycle
from datum_compute.planes.membership import ProjectMembership
from datum_compute.planes.planes import Planes
from datum_compute.runtime.controller import Key


def uncounted(_edge: str, _outcome: str) -> None:
    """Nobody collects metrics."""


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
    # The project of all namespaces that do not say whose they are, where there is only one.
    single_project: str = ""
    # Which projects this process works on; where they are one API server there is no choice.
    membership: ProjectMembership | None = None
    # For the controller of projects, which only runs beside the server of their planes.
    plane_lifecycle: PlaneLifecycle | None = None
    # Counts whether an object leads to one other, to none or to many: by edge and outcome.
    mapped: Callable[[str, str], None] = uncounted
    # How connections from outside get to machines, where there are any.
    traffic: Traffic | None = None
    # What this process has promised and not yet put on record: addresses that it has chosen, and
    # claims (by the uid that they have) that it is about to release.
    addresses: AddressBook = field(default_factory=AddressBook)
    leaving: dict[Key, str] = field(default_factory=dict)
    # By cell: how long to wait for it, and since when (by ``elapsed_s``) it has not answered.
    patience: Patience = field(default_factory=Patience)
    silent_since_s: dict[str, float] = field(default_factory=dict)
    # Instances that a driver has confirmed to serve since this process started, by deployment.
    confirmed: dict[Key, frozenset[str]] = field(default_factory=dict)
    # Since when (by ``elapsed_s``) the owner of a copy on the hub has not been found.
    unresolved_since_s: dict[Key, float] = field(default_factory=dict)

    def now(self) -> str:
        return timestamp(self.unix_s())
