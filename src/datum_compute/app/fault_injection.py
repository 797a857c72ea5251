"""Injected faults between planes of the local platform: ``datumctl compute local chaos``.

The command writes faults (``client/transport/faults.py``) to a file in the state directory, and the
server polls the file. Faults only affect the requests of controllers; other clients reach every
plane. In a single process, the controllers of a cell also send their requests to the cell through
these transports. The controllers of a disconnected cell therefore stop, while its machines keep
running. While the hub is disconnected, each cell works without it. A restart removes all faults.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from datum_compute.api.meta.codec import DecodeError
from datum_compute.api.planes import PlaneName
from datum_compute.client.transport.faults import (
    Fault,
    FaultsByPlane,
    FaultyTransport,
    decode_faults,
)
from datum_compute.client.transport.interface import Transport

FAULTS_FILE = "chaos.json"
POLL_S = 0.2

_log = logging.getLogger("datum_compute.chaos")


class FaultInjection:
    """Applies the faults in a file to the transports of controllers."""

    def __init__(self, state: Path, unix_s: Callable[[], float]) -> None:
        self._file = state / FAULTS_FILE
        self._unix_s = unix_s
        self._faults: FaultsByPlane = {}
        self._loaded: tuple[int, int] | None = None

    def wrap(self, plane: PlaneName, inner: Transport) -> Transport:
        return FaultyTransport(inner, lambda: self._current_fault(plane))

    def remove_all(self) -> None:
        self._file.unlink(missing_ok=True)

    async def run(self) -> None:
        self.remove_all()
        while True:
            self.load()
            await asyncio.sleep(POLL_S)

    def load(self) -> None:
        """Load the file if it has changed. An unreadable file changes nothing."""
        try:
            status = self._file.stat()
            found = (status.st_mtime_ns, status.st_ino)
            if found == self._loaded:
                return
            faults = decode_faults(self._file.read_bytes())
        except FileNotFoundError:
            found, faults = None, {}
        except (OSError, DecodeError) as error:
            _log.warning("cannot read %s: %s", self._file, error)
            return
        self._loaded = found
        if faults != self._faults:
            _log.warning("injected faults: %s", faults or "none")
        self._faults = faults

    def _current_fault(self, plane: PlaneName) -> Fault | None:
        fault = self._faults.get(plane)
        return fault if fault is not None and fault.is_active(self._unix_s()) else None
