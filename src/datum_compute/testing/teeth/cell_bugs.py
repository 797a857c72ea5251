"""Bugs on the cell: rollout, provisioning, machines.

Most of them change what the public planners answer, so that they outlive a rewrite of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import INSTANCE, SERVER
from datum_compute.api.meta import ref_of
from datum_compute.controllers.cell import machine
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Create, Delete, Plan, drop_finalizer
from datum_compute.planning.instances import plan_slots, wanted_replicas
from datum_compute.planning.ordinals import Slots, build_slots, slots_of
from datum_compute.planning.readiness import plan_readiness
from datum_compute.runtime.view import View
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import Make, attribute_replaced, function_replaced
from datum_compute.testing.teeth.runtime_bugs import reading_anything


@contextmanager
def _stale_cache_double_create() -> Iterator[None]:
    """Instances under names that nobody chose, created from a cache that has not seen the last
    create. Names by ordinal are what makes the stale cache harmless in the product."""
    with (
        function_replaced(plan_slots, _drawing_names()),
        function_replaced(slots_of, _slots_by_label),
        attribute_replaced(View, "read", reading_anything),
    ):
        yield


def _drawing_names() -> Make:
    drawn = iter(range(1_000_000))

    def renamed(action: Any) -> Any:
        metadata = action.object.metadata
        metadata = msgspec.structs.replace(metadata, name=f"{metadata.name}-{next(drawn)}")
        return replace(action, object=msgspec.structs.replace(action.object, metadata=metadata))

    return _with_creates(renamed)


def _slots_by_label(_original: Any) -> Any:
    """A name says nothing about the slot; of two that claim one the first is taken."""

    def found_slots(_deployment_name: str, instances: Any, *min_ready: Any) -> Slots:
        held: dict[int, Instance] = {}
        strays = []
        for instance in sorted(instances, key=lambda i: (i.is_terminating, i.metadata.name)):
            number = _ordinal(instance)
            if number in held:
                strays.append(instance)
            held.setdefault(number, instance)
        return build_slots(held, strays, *min_ready)

    return found_slots


def _with_creates(change: Callable[[Any], Any]) -> Make:
    """What the planner wants to create, changed."""

    def make(original: Any) -> Any:
        def plan(*arguments: Any) -> Any:
            planned = original(*arguments)
            actions = (change(a) if isinstance(a, Create) else a for a in planned.actions)
            return replace(planned, actions=tuple(actions))

        return plan

    return make


@contextmanager
def _lowest_ordinal_first() -> Iterator[None]:
    """Scale-down takes from the bottom and leaves the youngest."""

    def make(original: Any) -> Any:
        def plan(plane: Any, deployment: Any, slots: Slots) -> Any:
            live = [i for i in slots.held.values() if not i.is_terminating]
            if deployment.is_terminating or len(live) <= wanted_replicas(deployment):
                return original(plane, deployment, slots)
            lowest = live[0]
            uid = lowest.metadata.uid
            return Plan((Delete(plane, INSTANCE, ref_of(lowest), uid, "no longer wanted"),))

        return plan

    with function_replaced(plan_slots, make):
        yield


def _ordinal(instance: Instance) -> int:
    return int(instance.metadata.labels.get(labels.INSTANCE_INDEX, "0"))


@contextmanager
def _rolled_all_at_once() -> Iterator[None]:
    def make(original: Any) -> Any:
        def plan(*arguments: Any) -> Any:
            planned = original(*arguments)
            actions = (
                replace(a, skipped=False) if isinstance(a, Create | Delete) else a
                for a in planned.actions
            )
            return replace(planned, actions=tuple(actions))

        return plan

    with function_replaced(plan_slots, make):
        yield


@contextmanager
def _machine_not_confirmed_gone() -> Iterator[None]:
    """The Server is released when the driver has been asked, not when the machine is gone."""

    def make(original: Any) -> Any:
        async def reconcile(context: Any, key: Any) -> Any:
            server = context.planes.need(key.plane).read(SERVER).get(key.ref)
            if server is None or not server.is_terminating:
                return await original(context, key)
            await context.drivers[key.plane].remove(machine.machine_id_of(server))
            release = drop_finalizer(key.plane, SERVER, server, labels.DRIVER_FINALIZER)
            return await carry_out(context.planes, Plan(tuple(release)))

        return reconcile

    with attribute_replaced(machine.CONTROLLER, "reconcile", make):
        yield


@contextmanager
def _ready_while_terminating() -> Iterator[None]:
    """Ready looks at the machine only; that the instance is leaving is nobody's business."""

    def make(original: Any) -> Any:
        def plan(plane: Any, instance: Any, *arguments: Any) -> Any:
            metadata = msgspec.structs.replace(instance.metadata, deletion_timestamp=None)
            staying = msgspec.structs.replace(instance, metadata=metadata)
            return original(plane, staying, *arguments)

        return plan

    with function_replaced(plan_readiness, make):
        yield


@contextmanager
def _lost_machine_noticed_late() -> Iterator[None]:
    """Only the sweep of all machines notices one that is gone, after half a minute."""
    with attribute_replaced(machine, "LOST_MACHINE_CHECK_S", lambda _original: 1e6):
        yield


BUGS = (
    PlantedBug(
        "lost-machine-noticed-late",
        "Available for half a minute after the machine is gone: found by a slow resync only (I7)",
        _lost_machine_noticed_late,
        meets=("LoseMachine",),
        shows=("I7",),
    ),
    PlantedBug(
        "stale-cache-double-create",
        "a second create from a cache that has not seen the first: Sieve, Fly April 2026",
        _stale_cache_double_create,
        meets=("StopHost", "CrashAtCommit", "LagWatches"),
        shows=("I1",),
    ),
    PlantedBug(
        "lowest-ordinal-first",
        "scale-down takes the oldest instances (I14)",
        _lowest_ordinal_first,
        meets=("scale-down",),
    ),
    PlantedBug(
        "rolled-all-at-once",
        "a new template takes everything down (I12)",
        _rolled_all_at_once,
        meets=("ChangeImage",),
    ),
    PlantedBug(
        "machine-not-confirmed-gone",
        "a request to the driver is taken for its effect: Fly, deleted yet alive (F33)",
        _machine_not_confirmed_gone,
        meets=("LyingProvider", "ChangeImage"),
    ),
    PlantedBug(
        "ready-while-terminating",
        "traffic is sent to what is leaving (I7)",
        _ready_while_terminating,
        meets=("ChangeImage", "scale-down"),
    ),
)
