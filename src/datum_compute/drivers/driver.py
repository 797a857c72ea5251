"""The protocol every driver keeps, and the state of a machine.

DriverError
|- TransientError   the engine did not answer or is busy: try again
`- PermanentError   the machine can never start as it was asked for
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from datum_compute.api.server import Phase, ServerSpec
from datum_compute.drivers.machinedata import NO_DATA, MachineData


class DriverError(Exception):
    """A machine could not be started, stopped or seen."""


class TransientError(DriverError):
    """The engine did not answer or is busy: try again."""


class PermanentError(DriverError):
    """The machine can never start as it was asked for."""


@dataclass(frozen=True, slots=True)
class MachineState:
    phase: Phase
    reason: str = ""
    message: str = ""
    restarts: int = 0
    exit_code: int | None = None
    started_at: str | None = None
    addresses: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()  # of its output, when it ended badly


class Driver(Protocol):
    """Every call is idempotent; a machine is named by an id that is never used again."""

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        """Ask for the machine; it may take a while to run. ``data`` is what the spec refers to."""
        ...

    async def remove(self, machine_id: str) -> None:
        """Ask for its removal; it is gone when observe() answers None."""
        ...

    async def observe(self, machine_id: str) -> MachineState | None:
        """The machine as it is now, or None if there is none."""
        ...

    async def machines(self, name: str = "") -> list[str]:
        """Ids of all machines there are, or of those of one name (``namespace/name/``)."""
        ...

    def changes(self) -> AsyncIterator[str]:
        """Ids of machines as they change. Hints only: observe() is the truth."""
        ...
