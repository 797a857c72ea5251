"""Bugs of sleeping and waking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.app.traffic.sleepers import Sleepers
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced


@contextmanager
def _lost_on_the_way_to_sleep() -> Iterator[None]:
    """A machine that is just being put to sleep is taken for awake."""

    def planted(original: Any) -> Any:
        async def awake(self: Any, machine_id: str, arrived_s: float) -> Any:
            sleeper = self._known.get(machine_id)
            if sleeper is not None and sleeper.turn.locked():
                return None
            return await original(self, machine_id, arrived_s)

        return awake

    with attribute_replaced(Sleepers, "awake", planted):
        yield


BUGS = (
    PlantedBug(
        "lost-on-the-way-to-sleep",
        "a connection that comes while an instance falls asleep is passed to nobody",
        _lost_on_the_way_to_sleep,
        meets=("Visit",),
        shows=("I27",),
    ),
)
