"""Bugs between the planes: federator, policies, bindings, works, projections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api import labels
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.identity import federation_namespace
from datum_compute.api.kinds import WORK
from datum_compute.api.plane import HUB
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.hub import execution
from datum_compute.planning.actions import Plan, drop_finalizer
from datum_compute.planning.execution import plan_execution
from datum_compute.planning.propagation import plan_unbound_works, plan_works
from datum_compute.runtime.outcome import Later
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import function_replaced


@contextmanager
def _tombstone_released_early() -> Iterator[None]:
    """A Work lets go when it has asked the cell, not when the cell has confirmed."""

    def make(original: Any) -> Any:
        def plan(cell: Any, work: Any, *rest: Any, **named: Any) -> Any:
            planned = original(cell, work, *rest, **named)
            if not work.is_terminating:
                return planned
            release = drop_finalizer(HUB, WORK, work, labels.EXECUTION_FINALIZER)
            return Plan((*planned.actions, *release))

        return plan

    with function_replaced(plan_execution, make):
        yield


@contextmanager
def _silence_taken_for_absence() -> Iterator[None]:
    """No answer from the cell counts as "not there"."""

    def make(_original: Any) -> Any:
        async def release(context: Any, work: Any, view: Any, kind: Any, ref: Any) -> Any:
            try:
                found = await view.live(kind, ref)
            except (ApiError, Unreachable):
                found = None
            if found is not None:
                return Later(1)
            dropped = drop_finalizer(HUB, WORK, work, labels.EXECUTION_FINALIZER)
            return await carry_out(context.planes, Plan(tuple(dropped)))

        return release

    with function_replaced(execution._release, make):
        yield


@contextmanager
def _works_outlive_their_binding() -> Iterator[None]:
    """A deleted binding leaves its Works behind, and nothing collects them."""

    def make(original: Any) -> Any:
        def plan(kind: Any, binding: Any, template: Any, works: Any, now: str) -> Any:
            kept = [] if binding.is_terminating else works
            return original(kind, binding, template, kept, now)

        return plan

    def keep_unbound(_original: Any) -> Any:
        return lambda _works: Plan()

    with function_replaced(plan_works, make), function_replaced(plan_unbound_works, keep_unbound):
        yield


@contextmanager
def _namespaces_joined_by_name() -> Iterator[None]:
    """Two projects with a namespace of one name share it on the hub."""

    with function_replaced(federation_namespace, lambda _: lambda _uid: "ns-default"):
        yield


BUGS = (
    PlantedBug(
        "tombstone-released-early",
        "the Work goes before its copy: nobody removes it from a cell that was away (I15)",
        _tombstone_released_early,
        meets=("DeleteWorkload", "Move"),
    ),
    PlantedBug(
        "silence-taken-for-absence",
        "an unreachable cell is read as an empty one: Fly, April 2026 (I25)",
        _silence_taken_for_absence,
        meets=("AnswerFromCache",),
    ),
    PlantedBug(
        "works-outlive-their-binding",
        "a copy on the cell that nothing owns any more (I5)",
        _works_outlive_their_binding,
    ),
    PlantedBug(
        "projects-joined-by-namespace-name",
        "two tenants share a hub namespace: control-plane.md k.12 (I17)",
        _namespaces_joined_by_name,
    ),
)
