"""Bugs that take machines which serve: after restarts, and by rollouts that do not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api.conditions import UNKNOWN, find_condition
from datum_compute.api.instance import READY, Instance
from datum_compute.api.reasons import Reason
from datum_compute.api.server import runs_other_spec
from datum_compute.controllers.cell import deployment
from datum_compute.controllers.hub import cluster
from datum_compute.drivers.driver import NOT_OBSERVED, MachineState
from datum_compute.drivers.simulated.driver import SimulatedDriver
from datum_compute.planning.availability import MinReady, min_ready_seconds
from datum_compute.planning.budget import has_unavailable_replacement, out_of_service
from datum_compute.planning.ordinals import Slots, is_observed_not_ready, is_ready, serves
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
def _unknown_does_not_serve() -> Iterator[None]:
    """Only Ready True counts as serving; what is Unknown is replaced outside the budget, and
    without asking the driver first."""
    with (
        attribute_replaced(deployment, "needs_confirmation", lambda _: lambda *_: False),
        function_replaced(serves, lambda _: lambda i: is_ready(i) and not i.is_terminating),
        function_replaced(is_observed_not_ready, lambda _: lambda i: not is_ready(i)),
    ):
        yield


@contextmanager
def _unknown_is_available() -> Iterator[None]:
    """A replacement whose readiness is Unknown counts as available, so the rollout goes on."""

    def make(original: Callable[..., bool]) -> Any:
        def is_available(self: MinReady, instance: Instance) -> bool:
            ready = find_condition(instance.status.conditions, READY)
            unknown = ready is not None and ready.status == UNKNOWN and serves(instance)
            return unknown or original(self, instance)

        return is_available

    def in_service(slots: Slots, wanted: int, _updated: frozenset[int]) -> int:
        return wanted - sum(number < wanted for number in slots.serving)

    def has_lost_replacement(slots: Slots, replacements: frozenset[int]) -> bool:
        return not replacements <= slots.serving

    with (
        attribute_replaced(MinReady, "is_available", make),
        function_replaced(out_of_service, lambda _: in_service),
        function_replaced(has_unavailable_replacement, lambda _: has_lost_replacement),
    ):
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


@contextmanager
def _machine_not_compared() -> Iterator[None]:
    """A machine that runs is as its Server asks for, whatever it was started from."""
    with function_replaced(runs_other_spec, lambda _: lambda _server: False):
        yield


@contextmanager
def _replaced_cell_not_noticed() -> Iterator[None]:
    """Whoever answers under the name of a cell is that cell."""
    with function_replaced(cluster.relist_if_replaced, lambda _: lambda _cell, _found: None):
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
        "unknown-does-not-serve",
        "a rollout replaces at once what a restarted driver has not observed for 30 s",
        _unknown_does_not_serve,
        meets=("ProviderAway", "StopHost"),
        shows=("I28",),
    ),
    PlantedBug(
        "unknown-counts-as-progress",
        "a rollout goes on because it does not know whether its replacement serves",
        _unknown_is_available,
        meets=("ProviderAway", "StopHost"),
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
    PlantedBug(
        "machine-not-compared",
        "a machine that was started from an edited Server runs the wrong image for ever",
        _machine_not_compared,
        meets=("LoseMachine",),
    ),
    PlantedBug(
        "replaced-cell-not-noticed",
        "a cell returns empty, and its versions pass those of the hub's watches",
        _replaced_cell_not_noticed,
        meets=("EmptyHost",),
    ),
)
