"""Bugs that take machines which serve: after restarts, and by rollouts that do not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api.reasons import Reason
from datum_compute.drivers.driver import NOT_OBSERVED, MachineState
from datum_compute.drivers.simulated import SimulatedDriver
from datum_compute.planning.availability import min_ready_seconds
from datum_compute.planning.budget import has_unavailable_replacement, out_of_service
from datum_compute.planning.ordinals import Slots
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced, function_replaced


@contextmanager
def _adopted_reports_pending() -> Iterator[None]:
    """A machine that was not observed yet is reported as being set up."""

    def make(original: Callable[..., Any]) -> Any:
        async def observe(self: SimulatedDriver, machine_id: str) -> Any:
            state = await original(self, machine_id)
            if state is NOT_OBSERVED:
                return MachineState("Pending", reason=Reason.STARTING, message="being set up")
            return state

        return observe

    with attribute_replaced(SimulatedDriver, "observe", make):
        yield


@contextmanager
def _min_ready_ignored() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def none(*_arguments: Any, **_options: Any) -> int:
            return 0

        return none

    with function_replaced(min_ready_seconds, make):
        yield


@contextmanager
def _replacement_not_awaited() -> Iterator[None]:
    """A replacement counts as in service as soon as it exists."""

    def counted(slots: Slots, wanted: int, updated: frozenset[int]) -> int:
        return wanted - sum(number < wanted for number in slots.serving | updated)

    with (
        function_replaced(out_of_service, lambda _: counted),
        function_replaced(has_unavailable_replacement, lambda _: lambda *_: False),
    ):
        yield


BUGS = (
    PlantedBug(
        "adopted-machine-reports-pending",
        "after a restart of the cell process its instances are called not ready, and replaced",
        _adopted_reports_pending,
        meets=("StopHost", "CrashAtCommit"),
        shows=("I28",),
    ),
    PlantedBug(
        "min-ready-ignored",
        "a replacement that has just started lets the next instance go",
        _min_ready_ignored,
        meets=("RollCarefully",),
        shows=("I29",),
    ),
    PlantedBug(
        "replacement-not-awaited",
        "a replacement that has exited does not count against maxUnavailable",
        _replacement_not_awaited,
        meets=("ChangeImage",),
        shows=("I28",),
    ),
)
