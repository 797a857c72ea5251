"""The protocol of drivers, and the values that they exchange with controllers.

- A machine realizes one Server. Its id is ``namespace/name/uid`` and is never used again.
- Every call is idempotent. `Driver.observe` returns the actual state, `Driver.changes` only hints.
- `MachineData` contains secrets. It is used to start a machine and is never stored, logged or part
  of an error; only its ``sources`` (which versions it came from) may be shown.

DriverError
|- TransientError   the engine did not respond or is busy: try again
`- PermanentError   the machine can never start as specified
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

import msgspec

from datum_compute.api.compute.data_sources import PinnedData
from datum_compute.api.compute.instance import ImageRecord
from datum_compute.api.compute.scale_to_zero import SleepMode, Wake
from datum_compute.api.compute.server import Phase, ServerSpec
from datum_compute.api.conditions import Reason

# The recorded state of a machine that the driver cannot observe stays valid for this long, from
# the adoption of the machine or from the loss of the engine.
OBSERVATION_DEADLINE_S = 30.0


class DriverError(Exception):
    """A request to a driver failed."""


class TransientError(DriverError):
    """The engine did not respond or is busy: try again."""


class PermanentError(DriverError):
    """The machine can never start as specified."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """``path`` is relative to the mount path of the volume."""

    path: str
    content: bytes = field(repr=False)
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class MachineData:
    """Contents of the ConfigMaps and Secrets that the spec of a Server refers to."""

    sources: tuple[PinnedData, ...] = ()
    # Container -> its whole environment, including the values that the spec itself contains.
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    # Volume -> its files.
    files: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    # Contents of .dockerconfigjson, in the order of imagePullSecrets.
    pull_configs: tuple[bytes, ...] = field(default=(), repr=False)


NO_DATA = MachineData()


class MachineState(msgspec.Struct, frozen=True):
    """The actual state of a machine. Thousands of machines are observed every few seconds."""

    phase: Phase
    reason: str = ""
    message: str = ""
    restarts: int = 0
    exit_code: int | None = None
    started_at: str | None = None
    addresses: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()  # of the output, if the machine crashed
    images: tuple[ImageRecord, ...] = ()  # with digests, as soon as they are known
    last_wake: Wake | None = None
    # machine_fingerprint() of the spec that the machine was started from; empty if an earlier
    # release started it.
    spec_fingerprint: str = ""
    # Failed after an exit, but restarted, and its ports accept connections again.
    is_recovering: bool = False
    # suspend() was called, and only resume() starts the machine again.
    is_suspended: bool = False


class NotObserved(Enum):
    """The machine exists or may exist, and the driver cannot observe it at the moment."""

    NOT_OBSERVED = "NotObserved"


NOT_OBSERVED: Final = NotObserved.NOT_OBSERVED
# What observe() returns; None if there is no such machine.
Observation = MachineState | NotObserved | None


def unknown_state(message: str) -> MachineState:
    """Return the state of a machine that was not observed for OBSERVATION_DEADLINE_S."""
    return MachineState("Unknown", reason=Reason.NOT_OBSERVED, message=message)


def missing_observation(unobserved_for_s: float, message: str) -> MachineState | NotObserved:
    """Return what a driver reports of a machine that it cannot observe.

    ``message`` is the reason, reported when OBSERVATION_DEADLINE_S has passed.
    """
    if unobserved_for_s < OBSERVATION_DEADLINE_S:
        return NOT_OBSERVED
    return unknown_state(message)


class Driver(Protocol):
    @property
    def is_simulated(self) -> bool:
        """Whether machines are simulated and no process runs.

        The state of a simulated machine contains its readiness, so it needs no check.
        """
        ...

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        """Request a machine; it may take a while until it runs."""
        ...

    async def remove(self, machine_id: str) -> None:
        """Request its removal; the machine is gone when observe() returns None."""
        ...

    async def observe(self, machine_id: str) -> Observation:
        """Return the state of the machine, or None if there is no such machine.

        Returns NOT_OBSERVED for a machine that an earlier process started, until its containers
        have been inspected and its readiness has been checked, and for any machine while the engine
        does not respond. The recorded state stays valid meanwhile. After OBSERVATION_DEADLINE_S
        without an observation the phase is Unknown. An unreachable engine therefore raises no error
        and never results in Pending or Failed.
        """
        ...

    async def machines(self, name: str = "") -> list[str]:
        """Return the ids of all machines, or of those of one Server (``namespace/name/``)."""
        ...

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        """Put a ready machine to sleep; return when it sleeps.

        A machine that sleeps, is not ready or is being removed does not change. Only wake() ends
        the sleep, also across restarts of this process.
        """
        ...

    async def wake(self, machine_id: str) -> float:
        """Return when the processes of the machine run again, with the seconds that it took.

        The result is 0 for a machine that is awake. Concurrent calls wake the machine once. It is
        reported as Sleeping until it is ready, for a limited time.
        """
        ...

    async def suspend(self, machine_id: str) -> None:
        """Request that the machine is stopped and kept.

        Its processes get their grace period, and their exits do not count as crashes. Only resume()
        starts the machine again, also after a restart of this process. Addresses and volumes stay.
        observe() returns phase Stopped, with reason Stopping until no process runs, and then with
        reason Stopped. A machine that does not exist, or is being removed, does not change.
        """
        ...

    async def resume(self, machine_id: str) -> None:
        """Request that a suspended machine is started again; it may take a while until it runs."""
        ...

    def changes(self) -> AsyncIterator[str]:
        """Yield the ids of machines whose state may have changed.

        A change caused by start() may be left out: the caller observes the machine next.
        """
        ...


@dataclass(frozen=True, slots=True)
class FencedDriver:
    """Changes machines only while this process leads: ``check`` raises when it does not."""

    inner: Driver
    check: Callable[[], None]

    @property
    def is_simulated(self) -> bool:
        return self.inner.is_simulated

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        self.check()
        await self.inner.start(machine_id, spec, data)

    async def remove(self, machine_id: str) -> None:
        self.check()
        await self.inner.remove(machine_id)

    async def observe(self, machine_id: str) -> Observation:
        return await self.inner.observe(machine_id)

    async def machines(self, name: str = "") -> list[str]:
        return await self.inner.machines(name)

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        self.check()
        await self.inner.sleep(machine_id, mode)

    async def wake(self, machine_id: str) -> float:
        self.check()
        return await self.inner.wake(machine_id)

    async def suspend(self, machine_id: str) -> None:
        self.check()
        await self.inner.suspend(machine_id)

    async def resume(self, machine_id: str) -> None:
        self.check()
        await self.inner.resume(machine_id)

    def changes(self) -> AsyncIterator[str]:
        return self.inner.changes()
