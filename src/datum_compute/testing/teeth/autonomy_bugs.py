"""Bugs of cells that cannot do without the centre, or forget what they owe it; and of cities that
are given up too soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import HUB
from datum_compute.controllers.cell import writeback
from datum_compute.planning.actions import Create, Delete, Plan
from datum_compute.planning.fallback import city_shares
from datum_compute.planning.instances import plan_slots
from datum_compute.planning.projection import plan_writeback
from datum_compute.runtime.controller import Done
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced, function_replaced


@contextmanager
def _debts_kept_in_memory() -> Iterator[None]:
    """A process removes the hub's copies of instances that it has seen itself, and no others: what
    its cell owed when it was killed is forgotten."""
    seen: list[tuple[Any, Any]] = []  # with the process, which is kept: no other takes its place

    def remembering(original: Any) -> Any:
        async def reconcile(context: Any, key: Any) -> Any:
            if context.planes.require(key.plane).read(INSTANCE).get(key.ref) is not None:
                seen.append((context, key))
            return await original(context, key)

        return reconcile

    def forgetful(original: Any) -> Any:
        async def withdraw(context: Any, view: Any, key: Any) -> Any:
            if not any(process is context and known == key for process, known in seen):
                return Done()
            return await original(context, view, key)

        return withdraw

    reconcile = attribute_replaced(writeback.CONTROLLER, "reconcile", remembering)
    with function_replaced(writeback._withdraw, forgetful), reconcile:
        yield


@contextmanager
def _instance_waits_for_the_hub() -> Iterator[None]:
    """An instance that goes stays on its cell until the hub's copy of it is gone."""

    def held(action: Any) -> Any:
        if not isinstance(action, Create):
            return action
        finalizers = [labels.INSTANCE_FINALIZER, labels.PROVISIONER_FINALIZER]
        metadata = msgspec.structs.replace(action.object.metadata, finalizers=finalizers)
        return replace(action, object=msgspec.structs.replace(action.object, metadata=metadata))

    def holding(original: Any) -> Any:
        def plan(*arguments: Any) -> Any:
            planned = original(*arguments)
            return replace(planned, actions=tuple(held(action) for action in planned.actions))

        return plan

    def waiting(original: Any) -> Any:
        def plan(cell: Any, instance: Any, hub_deployment: Any, copy: Any) -> Any:
            if not instance.is_terminating or copy is None:
                return original(cell, instance, hub_deployment, copy)
            if instance.metadata.finalizers != [labels.INSTANCE_FINALIZER]:
                return Plan(requeue_after_s=1)
            uid = copy.metadata.uid
            return Plan((Delete(HUB, INSTANCE, ref_of(copy), uid, "gone"),), requeue_after_s=5)

        return plan

    with function_replaced(plan_writeback, waiting), function_replaced(plan_slots, holding):
        yield


@contextmanager
def _evicted_before_replaced() -> Iterator[None]:
    """A city that has failed loses its share at once to one that has yet to come up."""

    def make(original: Any) -> Any:
        def shares(*arguments: Any) -> Any:
            return [
                replace(share, wanted=share.wanted[-1:])
                if share.told is not None and share.told.phase == "Engaging"
                else share
                for share in original(*arguments)
            ]

        return shares

    with function_replaced(city_shares, make):
        yield


BUGS = (
    PlantedBug(
        "debts-kept-in-memory",
        "what a cell owes the hub is lost with its process: control-plane.md k.13",
        _debts_kept_in_memory,
        meets=("StopHost", "DeleteObject"),
    ),
    PlantedBug(
        "instance-waits-for-the-hub",
        "nothing leaves a cell while the hub is away: control-plane.md k.13 (I19)",
        _instance_waits_for_the_hub,
        meets=("StopHost", "DeleteObject"),
        shows=("I19",),
    ),
    PlantedBug(
        "evicted-before-replaced",
        "both colours are gone: a user report on Fly, May 2026 (I16)",
        _evicted_before_replaced,
        meets=("AllowFallback",),
        shows=("I16",),
    ),
)
