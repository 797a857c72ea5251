"""How connections from outside get to machines: one published port for each named port of a
deployment, over those of its machines that are ready.

The real one is a proxy of the process (``app/traffic``); where nothing real runs nothing is
published.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from datum_compute.api.plane import PlaneName
from datum_compute.api.scaletozero import SleepMode


@dataclass(frozen=True, slots=True)
class SleepPolicy:
    """When a machine without connections sleeps, and how long a connection waits for its wake."""

    idle_after_s: float
    mode: SleepMode
    hold_s: float


@dataclass(frozen=True, slots=True)
class Backend:
    """A machine that takes connections, perhaps after it was woken."""

    cell: PlaneName
    machine_id: str
    address: str
    port: int
    sleep: SleepPolicy | None = None  # None: it never does
    asleep: bool = False  # as it was last seen


class Traffic(Protocol):
    async def publish(
        self, owner: str, name: str, backends: Sequence[Backend], last_port: int
    ) -> tuple[str, int]:
        """Host and port under which the named port of the owner is reached from now on: the last
        one if it can be had. ``backends`` replace those of before; none means nobody is ready."""
        ...

    async def withdraw(self, owner: str, kept: Collection[str] = ()) -> None:
        """Stop to publish the owner's ports, but for the names that are kept."""
        ...
