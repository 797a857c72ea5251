"""Hears what the engine tells of the containers of a cell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from datum_compute.drivers.containers.engine import Engine, filters, json_lines
from datum_compute.drivers.containers.plan import CELL, MACHINE, PLATFORM, Owner
from datum_compute.drivers.driver import DriverError

# Between tries while the engine does not answer.
AWAY_S = 1.0

_log = logging.getLogger(__name__)


class Ears:
    """``heard`` receives the id of a machine of which there is news; an empty one means that it may
    be any of them, because the stream was interrupted. ``lost`` is called when the stream ends."""

    def __init__(
        self,
        engine: Engine,
        owner: Owner,
        heard: Callable[[str], None],
        lost: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._heard = heard
        self._lost = lost
        self.hears = True  # until proven otherwise

    async def listen(self) -> None:
        query = {"filters": filters(type=["container"])}
        while True:
            try:
                async with self._engine.stream("GET", "/events", query) as chunks:
                    self.hears = True
                    self._heard("")
                    async for event in json_lines(chunks):
                        self._hear((event.get("Actor") or {}).get("Attributes") or {})
            except (DriverError, AttributeError, TypeError) as error:
                if self.hears:
                    _log.warning("no events of the container engine: %s", error)
            if self.hears:
                self.hears = False
                self._lost()
            await asyncio.sleep(AWAY_S)

    def _hear(self, labels: dict[str, str]) -> None:
        ours = {PLATFORM: labels.get(PLATFORM), CELL: labels.get(CELL)} == self._owner.labels
        if ours and labels.get(MACHINE):
            self._heard(labels[MACHINE])
