"""Faults on purpose between the planes of the local platform: ``datumctl compute local chaos``.

The command writes what is wrong into the state directory (``client/transport/faults.py`` has the
words); the server looks there a few times a second. Only the controllers suffer: whoever looks at a
plane
from outside sees it as it is. In one process the controllers of a cell reach it the same way as
everybody else, so a cell that is cut off stands still while its machines run on; a hub that is cut
off leaves every cell to itself. A new start heals everything.
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
    FaultyTransport,
    Troubles,
    decoded_troubles,
)
from datum_compute.client.transport.interface import Transport

FILE = "chaos.json"
LOOK_S = 0.2

_log = logging.getLogger("datum_compute.chaos")


class FaultInjector:
    """Applies the faults in a file to the transports of the controllers."""

    def __init__(self, state: Path, unix_s: Callable[[], float]) -> None:
        self._file = state / FILE
        self._unix_s = unix_s
        self._troubles: Troubles = {}
        self._seen: tuple[int, int] | None = None

    def around(self, plane: PlaneName, inner: Transport) -> Transport:
        return FaultyTransport(inner, lambda: self._of(plane))

    def heal(self) -> None:
        self._file.unlink(missing_ok=True)

    async def run(self) -> None:
        self.heal()
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Take over what the file says; one that cannot be read changes nothing."""
        try:
            found = self._file.stat()
            seen = (found.st_mtime_ns, found.st_ino)
            if seen == self._seen:
                return
            troubles = decoded_troubles(self._file.read_bytes())
        except FileNotFoundError:
            seen, troubles = None, {}
        except (OSError, DecodeError) as error:
            _log.warning("%s cannot be read: %s", self._file, error)
            return
        self._seen = seen
        if troubles != self._troubles:
            _log.warning("faults on purpose: %s", troubles or "none any more")
        self._troubles = troubles

    def _of(self, plane: PlaneName) -> Fault | None:
        if not self._troubles:
            return None
        trouble = self._troubles.get(plane)
        return trouble if trouble is not None and trouble.lasts(self._unix_s()) else None
