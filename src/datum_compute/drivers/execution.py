"""A command that runs in a machine, as whoever watches over it sees it."""

from __future__ import annotations

from typing import Protocol

from datum_compute.drivers.driver import DriverError


class NotRunning(DriverError):
    """The machine is there and nothing runs in it now."""


class NoSuchContainer(DriverError):
    """The machine has no container of that name."""


class ExecSession(Protocol):
    """Messages of ``api/remotecommand.py``, both ways."""

    async def receive(self) -> bytes | None:
        """The next message of the process; None after the one that said how it ended."""
        ...

    async def send(self, message: bytes) -> None: ...

    async def aclose(self) -> None:
        """Let go. A process that still runs is ended: nobody could reach it any more."""
        ...
