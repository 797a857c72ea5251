"""Bugs of sleeping and waking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api.conditions import FALSE, Verdict
from datum_compute.app.traffic.sleepers import Sleepers
from datum_compute.planning import provisioning
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced, function_replaced


@contextmanager
def _asleep_under_a_connection() -> Iterator[None]:
    """Who was idle once is put to sleep, whoever has come since."""
    running_on = attribute_replaced(Sleepers, "_stop_idling", lambda _: lambda self, sleeper: None)
    unneeded = attribute_replaced(Sleepers, "_is_needed", lambda _: lambda self, sleeper: False)
    with running_on, unneeded:
        yield


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


@contextmanager
def _asleep_is_not_available() -> Iterator[None]:
    """A sleeper counts as one that is not ready: rollouts wait for it, and nobody is sent to it."""

    def planted(original: Any) -> Any:
        def verdicts(instance: Any, server: Any) -> Any:
            programmed, available = original(instance, server)
            asleep = server is not None and server.status.phase == "Sleeping"
            return programmed, Verdict(FALSE, "Stopped", "asleep") if asleep else available

        return verdicts

    with function_replaced(provisioning.machine_verdicts, planted):
        yield


BUGS = (
    PlantedBug(
        "asleep-under-a-connection",
        "an idle timer that nobody takes back pauses an instance in the middle of a request",
        _asleep_under_a_connection,
        meets=("Visit",),
        shows=("I27",),
    ),
    PlantedBug(
        "lost-on-the-way-to-sleep",
        "a connection that comes while an instance falls asleep is passed to nobody",
        _lost_on_the_way_to_sleep,
        meets=("Visit",),
        shows=("I27",),
    ),
    PlantedBug(
        "asleep-is-not-available",
        "zero processes are taken for zero instances: control-plane.md, Available while asleep",
        _asleep_is_not_available,
        meets=("Visit",),
    ),
)
