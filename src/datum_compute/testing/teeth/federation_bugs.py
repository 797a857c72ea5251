"""Bugs between the planes: federator, policies, bindings, works, projections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.identity import federation_namespace
from datum_compute.api.kinds import DEPLOYMENT, WORK
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, PlaneName
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.hub import execution
from datum_compute.controllers.management import federator
from datum_compute.planning import federation, placement, projection
from datum_compute.planning.actions import Action, Patch, Plan, drop_finalizer
from datum_compute.planning.execution import plan_execution
from datum_compute.planning.federation import HubState, plan_federation
from datum_compute.planning.policies import plan_policies
from datum_compute.planning.propagation import plan_unbound_works, plan_works
from datum_compute.planning.workloadremoval import plan_removals
from datum_compute.runtime.controller import Requeue
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import function_replaced


@contextmanager
def _finalizer_released_early() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def release_at_once(project: Any, deployment: Any, _hub: Any, _now: str) -> Plan:
            finalizer = labels.FEDERATOR_FINALIZER
            return Plan(tuple(drop_finalizer(project, DEPLOYMENT, deployment, finalizer)))

        return release_at_once

    with function_replaced(federation._plan_removal, make):
        yield


@contextmanager
def _cells_not_awaited() -> Iterator[None]:
    """Gone from the hub is gone, whatever the cells have confirmed."""
    with function_replaced(federator._awaited, lambda _: lambda _hub, _target: ()):
        yield


@contextmanager
def _finalizer_after_the_hub() -> Iterator[None]:
    """The hub is written first, and only then the guard that would clean it up."""

    def make_deployment(original: Any) -> Any:
        def deployment(*arguments: Any) -> Any:
            found = original(*arguments)
            metadata = msgspec.structs.replace(found.metadata, finalizers=[])
            return msgspec.structs.replace(found, metadata=metadata)

        return deployment

    def make_plan(original: Any) -> Any:
        def plan(project: Any, deployment: Any, namespace: Any, hub: HubState, now: str) -> Any:
            guarded = labels.FEDERATOR_FINALIZER in deployment.metadata.finalizers
            if guarded or deployment.is_terminating or namespace is None or hub.deployment:
                return original(project, deployment, namespace, hub, now)
            actions = federation._plan_hub(project, deployment, namespace, hub)
            return Plan(tuple(actions), requeue_after_s=1)

        return plan

    with (
        function_replaced(placement._deployment, make_deployment),
        function_replaced(plan_federation, make_plan),
    ):
        yield


@contextmanager
def _finalizer_never_released() -> Iterator[None]:
    """A deployment whose hub copy was already gone when it was looked for stays for ever."""

    def make(original: Any) -> Any:
        def removal(project: Any, deployment: Any, hub: HubState, now: str) -> Any:
            planned = original(project, deployment, hub, now)
            told = bool(deployment.status.observed_generation)
            return planned if told else Plan()

        return removal

    with function_replaced(federation._plan_removal, make):
        yield


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
                found = await view.get_uncached(kind, ref)
            except (ApiError, Unreachable):
                found = None
            if found is not None:
                return Requeue(1)
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
def _moved_city_keeps_its_work() -> Iterator[None]:
    """Deployments of a placement that nobody asks for any more stay."""

    def make(right: Callable[..., list[Action]]) -> Callable[..., list[Action]]:
        def kept(plane: PlaneName, deployments: object, reason: str) -> list[Action]:
            unwanted = reason == placement.UNWANTED
            return [] if unwanted else right(plane, deployments, reason)

        return kept

    with function_replaced(plan_removals, make):
        yield


@contextmanager
def _policy_of_one_deployment() -> Iterator[None]:
    """Policies follow one deployment of the namespace; those that others use are cleaned up."""

    def make(original: Any) -> Any:
        def plan(namespace: Any, deployments: Any, policies: Any, namespace_policy: Any) -> Any:
            found = list(deployments)[:1]
            return original(namespace, found, policies, namespace_policy)

        return plan

    with function_replaced(plan_policies, make):
        yield


@contextmanager
def _projection_left_on_scale_down() -> Iterator[None]:
    with function_replaced(projection.plan_unprojection, lambda _: lambda _project, _found: Plan()):
        yield


@contextmanager
def _namespaces_joined_by_name() -> Iterator[None]:
    """Two projects with a namespace of one name share it on the hub."""

    with function_replaced(federation_namespace, lambda _: lambda _uid: "ns-default"):
        yield


@contextmanager
def _copies_overwritten_whole() -> Iterator[None]:
    """PUT instead of a merge: what the cell added to its copy is wiped out."""

    def make(original: Any) -> Any:
        def plan(cell: Any, work: Any, kind: Any, copy: Any, now: str, **more: Any) -> Any:
            planned = original(cell, work, kind, copy, now, **more)
            if copy is None or work.is_terminating or not copy.metadata.finalizers:
                return planned
            wiped = {"metadata": {"finalizers": None}}
            ref = Ref(copy.metadata.namespace, copy.metadata.name)
            put = Patch(cell, kind, ref, wiped, "as the hub wants it")
            return replace(planned, actions=(put, *planned.actions))

        return plan

    with function_replaced(plan_execution, make):
        yield


BUGS = (
    PlantedBug(
        "finalizer-released-early",
        "the project's deployment goes before the hub's: Sieve, leaked resources (I15)",
        _finalizer_released_early,
    ),
    PlantedBug(
        "cells-not-awaited",
        "called gone while a cell that answers still runs it (I15)",
        _cells_not_awaited,
    ),
    PlantedBug(
        "finalizer-after-the-hub",
        "crash between the remote write and its guard: Sieve, intermediate states (F2)",
        _finalizer_after_the_hub,
        meets=("DeleteWorkload",),
    ),
    PlantedBug(
        "finalizer-never-released",
        "a removal that finds nothing to remove never ends: RabbitMQ #758",
        _finalizer_never_released,
        meets=("DeleteWorkload",),
    ),
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
        "old-placement-kept",
        "a placement is dropped and goes on running (I3)",
        _moved_city_keeps_its_work,
        meets=("Move",),
    ),
    PlantedBug(
        "policy-cleaned-while-used",
        "the policy of a city goes with one of its users: control-plane.md k.11",
        _policy_of_one_deployment,
        meets=("2 cells",),
    ),
    PlantedBug(
        "projection-left-on-scale-down",
        "the project shows an instance that is gone: control-plane.md k.3",
        _projection_left_on_scale_down,
        meets=("scale-down",),
    ),
    PlantedBug(
        "projects-joined-by-namespace-name",
        "two tenants share a hub namespace: control-plane.md k.12 (I17)",
        _namespaces_joined_by_name,
    ),
    PlantedBug(
        "copies-overwritten-whole",
        "one writer takes away what another owns: k0smotron #1478 (I6)",
        _copies_overwritten_whole,
    ),
)
