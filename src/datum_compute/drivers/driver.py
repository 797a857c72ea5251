"""A driver that changes nothing while somebody else may be leading."""
# MERGED-DOC """The data of ConfigMaps and Secrets as a machine gets it: ready to use, and never shown.
#
# It is made for the start of a machine and lives no longer. Nothing here may be stored, logged or
# put into an error; ``sources`` alone (which versions they are) may be told.
# """
# MERGED-DOC """The protocol every driver keeps, and the state of a machine.
#
# DriverError
# |- TransientError   the engine did not answer or is busy: try again
# `- PermanentError   the machine can never start as it was asked for
# """

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from datum_compute.api.containeroptions import ImageRecord
from datum_compute.api.datasources import PinnedData
from datum_compute.api.reasons import Reason
from datum_compute.api.scaletozero import SleepMode, Wake
from datum_compute.api.server import Phase, ServerSpec


@dataclass(frozen=True, slots=True)
class DataFile:
    """``path`` is relative to where the volume is mounted."""

    path: str
    content: bytes = field(repr=False)
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class MachineData:
    """What the spec of a Server refers to, by the names that the spec uses."""

    sources: tuple[PinnedData, ...] = ()
    # Container -> its whole environment: what the spec says in words, and what it refers to.
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    # Volume -> its files.
    files: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    # Contents of .dockerconfigjson, in the order of imagePullSecrets.
    pull_configs: tuple[bytes, ...] = field(default=(), repr=False)


NO_DATA = MachineData()

# The recorded state of a machine that the driver cannot observe stays valid for this long, from
# the adoption of the machine or from the loss of the engine.
OBSERVATION_DEADLINE_S = 30.0


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
    images: tuple[ImageRecord, ...] = ()  # what the containers really run, once it is known
    last_wake: Wake | None = None
    # machine_fingerprint() of the spec that the machine was started from; empty if an earlier
    # release started it.
    spec_fingerprint: str = ""


class NotObserved(Enum):
    """The machine exists or may exist, and the driver cannot observe it at the moment."""

    NOT_OBSERVED = "NotObserved"


NOT_OBSERVED: Final = NotObserved.NOT_OBSERVED
# What observe() returns; None if there is no such machine.
Observation = MachineState | NotObserved | None


def unknown_state(message: str) -> MachineState:
    """The state of a machine that was not observed for OBSERVATION_DEADLINE_S."""
    return MachineState("Unknown", reason=Reason.NOT_OBSERVED, message=message)


def missing_observation(unobserved_for_s: float, message: str) -> MachineState | NotObserved:
    """Return what a driver reports of a machine that it cannot observe.

    ``message`` is the reason, reported when OBSERVATION_DEADLINE_S has passed.
    """
    if unobserved_for_s < OBSERVATION_DEADLINE_S:
        return NOT_OBSERVED
    return unknown_state(message)


class Driver(Protocol):
    """Every call is idempotent; a machine is named by an id that is never used again."""

    @property
    def is_simulated(self) -> bool:
        """Whether machines are simulated and no process runs.

        A simulated machine serves whenever it is Running, so its readiness needs no check.
        """
        ...

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        """Ask for the machine; it may take a while to run. ``data`` is what the spec refers to."""
        ...

    async def remove(self, machine_id: str) -> None:
        """Request its removal; the machine is gone when observe() returns None."""
        ...

    async def observe(self, machine_id: str) -> Observation:
        """Return the state of the machine, or None if there is no such machine.

        Returns NOT_OBSERVED for a machine of an earlier process until its containers have been
        inspected and its readiness has been checked, and for any machine while the engine does not
        answer. The recorded state stays valid meanwhile. After OBSERVATION_DEADLINE_S without an
        observation the phase is Unknown. An engine that does not answer therefore raises no error
        and never results in Pending or Failed.
        """
        ...

    async def machines(self, name: str = "") -> list[str]:
        """Ids of all machines there are, or of those of one name (``namespace/name/``)."""
        ...

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        """Put one that runs to sleep; it sleeps when this returns. One that is asleep, is not
        ready or is about to go stays as it is. Nothing but ``wake`` wakes it, also not a restart
        of whoever asked."""
        ...

    async def wake(self, machine_id: str) -> float:
        """It executes again when this returns, and is ready when observe() says so. How many
        seconds the engine itself took: none for one that is awake. Any number of callers wake it
        once. Until it is ready it is still called Sleeping, for a while."""
        ...

    def changes(self) -> AsyncIterator[str]:
        """Ids of machines as they change; what start() does need not be told, because whoever
        calls it looks next. Hints only: observe() is the truth."""
        ...


@dataclass(frozen=True, slots=True)
class FencedDriver:
    """``check`` raises when machines are not ours to touch."""

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

    def changes(self) -> AsyncIterator[str]:
        return self.inner.changes()
